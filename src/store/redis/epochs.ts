/**
 * The epoch of Redis: whether this is the Redis that the service wrote to, or one that has since lost its data, was restored
 * from an older snapshot, or was a replica meanwhile; and whether Postgres still has the orders that Redis has.
 *
 *   connected ──▶ read what identifies the server ──as before──▶ the same epoch
 *       ▲                   └──another──▶ Postgres draws a number ──▶ a new epoch
 *       └──connection lost, or the key is on another server: the epoch is unknown, and attempts wait or are answered busy
 *
 *   every second, and before a sale is loaded: read it again, and Postgres's timeline ──another──▶ a new epoch
 *
 *   a load writes the epoch into the sale in Postgres ──▶ an order that was reserved in another epoch is not committed
 *       └──so a process whose epoch is not the sale's is connected to the wrong server, or was: it looks which is the right one
 *
 *   a sale that was loaded elsewhere is loaded again ──▶ its server begins a new epoch: what was reserved in the old one stays refused
 *
 *   connected ──▶ no sale is confirmed ──Postgres says that a sale is loaded in this epoch──▶ confirmed: 202 may come before the commit
 *
 * A process with another epoch than the sale's commits nothing and refuses no customer as `sold-out`: the sale's row in Postgres is the fence, as a
 * token is between two holders of a lock (M. Kleppmann, "How to do distributed locking", 2016). Why, and what a load keeps:
 * docs/explanation/consistency.md, "When Redis loses its data, or restores a snapshot".
 *
 * A server is identified by its run id, which ends with the process, and by its replication id, which changes with each promotion: a primary
 * that becomes a replica and is promoted again keeps its run id. The replication id also changes when the first replica connects, or when
 * none did for an hour: processes then disagree for up to a second, and the sales are loaded again. The timeline of Postgres grows with each
 * promotion of a standby, which may lack orders that Redis has. FLUSHALL needs none of this: missing data are not taken for current ones.
 */
import { shared } from '../../concurrency/coalesce.ts';
import { limits } from '../../config/limits.ts';
import { FailureError } from '../../domain/failure.ts';
import type { PostgresStore } from '../postgres/pool.ts';
import { TIMELINE } from '../postgres/standby-wait.ts';
import type { RedisStore } from './connection.ts';
import type { RedisServer } from './server.ts';

export type RedisEpochs = ReturnType<typeof redisEpochs>;

/** What is known about a server. */
interface Found {
  readonly identity: string;
  readonly timeline: string;
  readonly epoch: number;
  readonly retired: readonly number[];
  /** How often the server's connection had been lost when it was found. */
  readonly connections: number;
  /** Ids of the sales that Postgres says are loaded in this epoch: it was read while this connection was in use. */
  readonly confirmed: Set<number>;
}

/** `loadedIn`: the epoch in which a sale was last loaded, according to Postgres; null: it never was. */
type FoundNow = Found & { readonly loadedIn: number | null };

export type FoundServer = Pick<Found, 'epoch' | 'connections' | 'confirmed'>;

export function redisEpochs(
  { serverOf, findAgain }: Pick<RedisStore, 'serverOf' | 'findAgain'>,
  { pool }: PostgresStore,
) {
  const found = new Map<RedisServer, Found>();
  /** The epochs to which each connection has led. */
  const used = new WeakMap<RedisServer, Set<number>>();
  const findOnce = shared((server: RedisServer) => find(server));
  let timeline: string | null = null;

  /** @param saleId reads the epochs now, and `loadedIn` of this sale */
  async function find(server: RedisServer, saleId: number | null = null): Promise<FoundNow> {
    const { connections } = server;
    const { identity, isReplica } = await identify(server);
    if (isReplica) {
      findAgain(); // nothing is written here, so no reply says that it is read-only
      throw new FailureError('redis', 'unavailable', 'redis-readonly', 'this server is a replica');
    }
    const before = found.get(server);
    const isSame = saleId === null && before?.identity === identity && before.timeline === timeline;
    const { epoch, loadedIn, ...rest } = isSame
      ? { ...before, loadedIn: null }
      : await epochOf(identity, saleId);
    const last = found.get(server); // another search may have ended meanwhile, and its sales be confirmed
    const isKept = last?.connections === connections && last.epoch === epoch;
    const confirmed = isKept ? last.confirmed : new Set<number>();
    const now = { ...rest, epoch, connections, confirmed };
    found.set(server, now);
    used.set(server, (used.get(server) ?? new Set()).add(epoch));
    return { ...now, loadedIn };
  }

  async function epochOf(identity: string, saleId: number | null) {
    // The update changes nothing; it makes RETURNING yield the row that another process wrote.
    const { rows } = await pool.query<Pick<FoundNow, 'timeline' | 'epoch' | 'retired' | 'loadedIn'>>(
      `INSERT INTO redis_epochs (incarnation) VALUES (concat_ws(' ', $1::text, ${TIMELINE}))
       ON CONFLICT (incarnation) DO UPDATE SET incarnation = excluded.incarnation
       RETURNING right(incarnation, 8) AS timeline, epoch, retired,
         (SELECT mirror_epoch FROM sales WHERE id = $2) AS "loadedIn"`,
      [identity, saleId],
    );
    timeline = rows[0]!.timeline;
    return { identity, ...rows[0]! };
  }

  /** Forgets the epoch of a server that was promoted, or is a replica. The connection of one that does not answer is lost. */
  async function checkServer(server: RedisServer, { identity }: Found): Promise<void> {
    if (server.redis.status === 'end') found.delete(server); // it left the cluster
    const now = await identify(server).catch(() => null);
    const isSame = now === null || (now.identity === identity && !now.isReplica);
    if (!isSame && found.get(server)?.identity === identity) found.delete(server);
  }

  function knownOf(server: RedisServer): Found | null {
    const known = found.get(server);
    const isCurrent = known?.connections === server.connections && known.timeline === timeline;
    return isCurrent ? known : null;
  }

  return {
    /**
     * What is known about the server that has a key; null: nothing, or it is not connected. It belongs to one connection: what a read of
     * Postgres confirms is added to the set that was taken before the read.
     */
    foundOf(key: string): FoundServer | null {
      try {
        return knownOf(serverOf(key));
      } catch {
        return null;
      }
    },
    /** What is known about the server that has a key. @throws what Redis or Postgres throws when it cannot be determined now */
    async current(key: string): Promise<FoundServer> {
      const server = serverOf(key);
      return knownOf(server) ?? (await findOnce(server));
    },
    /** Whether the address of the server that has a key has led from an epoch to another one, in which it is now. */
    hasLeft(key: string, epoch: number): boolean {
      const now = this.foundOf(key);
      return now !== null && now.epoch !== epoch && used.get(serverOf(key))?.has(epoch) === true;
    },
    /** Whether what was found before a command holds after its reply: so it went to that server, over the same connection. */
    isStill(key: string, { epoch, connections }: FoundServer): boolean {
      const now = this.foundOf(key);
      return now?.epoch === epoch && now.connections === connections;
    },
    /**
     * The same as `current`, read from Redis and Postgres now, with the latest earlier epochs of this server that were renewed.
     * @param saleId whose `loadedIn` is read in the same statement
     */
    fresh: (key: string, saleId: number) => find(serverOf(key), saleId),
    /**
     * Ends this epoch of the server that has a key, unless another process has.
     * @param saleId a sale that is loaded there @returns the new one @throws as `current` does
     */
    async renew(key: string, epoch: number, saleId: number): Promise<number> {
      await pool.query(
        `UPDATE redis_epochs SET epoch = DEFAULT, first_seen_at = DEFAULT,
           retired = (array_append(retired, epoch))[greatest(1, cardinality(retired) + 2 - $2):] WHERE epoch = $1`,
        [epoch, limits.retiredEpochs],
      );
      return (await this.fresh(key, saleId)).epoch;
    },
    /**
     * Forgets the epoch of the server that has a key, because a sale there was loaded in another one: by a process that found the server
     * promoted, or that is connected to another server. In the latter case it looks again which server has the key.
     * @returns false when this process uses another epoch by now
     * @throws when the server is not connected
     */
    async supersede(key: string, epoch: number) {
      const server = serverOf(key);
      const before = found.get(server);
      if (before?.epoch !== epoch) return false;
      found.delete(server);
      const now = await identify(server).catch(() => null); // its connection is lost
      if (now !== null && (now.identity === before.identity || now.isReplica)) findAgain();
      return true;
    },
    /** Begins new epochs where Postgres or a Redis was promoted since they were found. @throws what Postgres throws */
    async check() {
      await Promise.all([...found].map(([server, of]) => checkServer(server, of)));
      if (timeline !== null) timeline = await timelineOf(pool);
    },
  };
}

/** @throws what Redis throws */
async function identify({ redis }: RedisServer) {
  const info = await redis.info();
  const field = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
  return { identity: `${field('run_id')} ${field('master_replid')}`, isReplica: field('role') === 'slave' };
}

/** @throws what Postgres throws */
async function timelineOf(pool: PostgresStore['pool']): Promise<string> {
  const { rows } = await pool.query<{ timeline: string }>(`SELECT ${TIMELINE} AS timeline`);
  return rows[0]!.timeline;
}
