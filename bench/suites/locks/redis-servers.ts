/** Redis servers of the bench: one, one with a replica, or several independent ones. */
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { type RedisServer, startRedisServer } from '../../../src/local/redis-server.ts';

/** No AOF, as Redis ships: no lock here waits for the disk. */
const plain = ['--appendonly', 'no'];
const REPLICA_MS = 20_000;

export interface RedisServers {
  readonly urls: readonly string[];
  readonly version: string;
  /** Commands that all of them carried out since they started, but for the ones that ask for this number. */
  commands(): Promise<number>;
  /** Deletes every key of all of them. */
  empty(): Promise<void>;
  stop(): Promise<void>;
}

export interface RedisGroup {
  readonly folder: string;
  readonly program: string;
  readonly count: number;
  /** The second server is a replica of the first. */
  readonly replica: boolean;
}

export async function startRedisServers(group: RedisGroup): Promise<RedisServers> {
  const servers: RedisServer[] = [];
  const clients: Redis[] = [];
  const stop = async (): Promise<void> => {
    for (const client of clients) client.disconnect();
    await Promise.all(servers.map((server) => server.kill()));
  };
  try {
    for (let i = 0; i < group.count; i++) {
      servers.push(await startOne(group, i, servers[0]?.port));
      const client = new Redis(servers[i]!.url, { lazyConnect: true });
      client.on('error', () => {}); // the command in flight fails as well
      clients.push(client);
      await client.connect();
    }
    if (group.replica) await untilInStep(clients[0]!);
    return { ...(await counting(clients)), urls: servers.map(({ url }) => url), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function startOne(
  { folder, program, replica }: RedisGroup,
  i: number,
  primary?: number,
): Promise<RedisServer> {
  const fast = replica ? ['--repl-diskless-sync-delay', '0'] : [];
  const copies = replica && primary !== undefined ? ['--replicaof', '127.0.0.1', String(primary)] : [];
  return startRedisServer({ folder: join(folder, String(i)), program, args: [...plain, ...fast, ...copies] });
}

/** A replica that is online may not have got what came since its copy was made. */
async function untilInStep(primary: Redis): Promise<void> {
  const untilMs = performance.now() + REPLICA_MS;
  do {
    if (performance.now() > untilMs) throw new Error('the Redis replica did not come online');
    await primary.set('in-step', 1);
  } while ((await primary.wait(1, 500)) < 1);
}

async function counting(clients: readonly Redis[]): Promise<Omit<RedisServers, 'urls' | 'stop'>> {
  const info = await clients[0]!.info('server');
  let own = 0;
  return {
    version: versionOf(info),
    async commands() {
      const texts = await Promise.all(clients.map((client) => client.info('stats')));
      const sum = texts.reduce((total, text) => {
        return total + Number(/^total_commands_processed:(\d+)/m.exec(text)?.[1] ?? Number.NaN);
      }, 0);
      const asked = own;
      own += clients.length; // an answer counts the questions before it
      return sum - asked;
    },
    async empty() {
      // What a replica has is deleted by its primary.
      await Promise.all(clients.map((client) => client.flushall().catch(() => {})));
    },
  };
}

function versionOf(info: string): string {
  const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1];
  return valkey === undefined ? (/^redis_version:(\S+)/m.exec(info)?.[1] ?? 'unknown') : `Valkey ${valkey}`;
}
