/**
 * A process in which clients of several schedules live. It is told over IPC what to do: see Order. So the whole process
 * can be stopped and go on, with all that its holders believe.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Lease, Lock } from '../../src/locks/lock.ts';
import { locks } from '../../src/locks/registry.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import {
  type ClaimStep,
  type ClientServers,
  type LeaseSeen,
  monotonicMs,
  type Order,
  type Part,
  type Played,
  type Reply,
} from './schedules.ts';

/** How often a holder looks whether its lease is valid, in milliseconds. */
const LOOK_MS = 2;
/** How many of the latest looks are remembered: more than any allowance. */
const KEPT_LOOKS = 16;
/** Between two tries while the server cannot be asked. */
const RETRY_MS = 25;

/** One who has a lease, and looks at it all the time. */
class Holder {
  readonly lease: Lease;
  /** Called when it claims nothing any more. */
  onEnd: () => void = () => {};
  readonly #contender: 'a' | 'b';
  readonly #askedMs: number;
  #firstMs = Number.MAX_VALUE;
  readonly #latestMs: number[] = [];
  #end: LeaseSeen['end'] | undefined;

  constructor(lease: Lease, contender: 'a' | 'b', askedMs: number) {
    this.lease = lease;
    this.#contender = contender;
    this.#askedMs = askedMs;
    this.look();
    if (!this.over) keepLooking(this);
  }

  get seen(): LeaseSeen {
    const [contender, askedMs, firstMs] = [this.#contender, this.#askedMs, this.#firstMs];
    return { contender, askedMs, firstMs, latestMs: this.#latestMs, end: this.#end ?? 'crashed' };
  }

  get over(): boolean {
    return this.#end !== undefined;
  }

  look(): void {
    const beforeMs = monotonicMs();
    const lost = this.lease.signal.aborted;
    const afterMs = monotonicMs();
    if (lost) {
      this.end('lost');
      return;
    }
    this.#firstMs = Math.min(this.#firstMs, afterMs);
    this.#latestMs.push(beforeMs);
    if (this.#latestMs.length > KEPT_LOOKS) this.#latestMs.shift();
  }

  /** Its release was in time. */
  confirm(): void {
    if (this.#end === 'late') this.#end = 'given back';
  }

  end(how: LeaseSeen['end']): void {
    if (this.over) return;
    this.#end = how;
    holders.delete(this);
    this.onEnd();
  }
}

const holders = new Set<Holder>();
let looking: NodeJS.Timeout | undefined;

/** In a process that was stopped and goes on, this timer is due before those of a lease. */
function keepLooking(holder: Holder): void {
  holders.add(holder);
  looking ??= setInterval(() => {
    for (const each of holders) each.look();
    if (holders.size > 0) return;
    clearInterval(looking);
    looking = undefined;
  }, LOOK_MS);
}

/** A lock, with the contenders who share it. */
class Client {
  readonly #lock: Lock;
  readonly #close: () => Promise<void>;
  #seen: { readonly holders: Holder[]; contended: number; unavailable: number };
  #finish = new AbortController();
  #crashed = false;
  #onCrash = () => {};

  constructor(lock: Lock, close: () => Promise<void>) {
    this.#lock = lock;
    this.#close = close;
    this.#seen = { holders: [], contended: 0, unavailable: 0 };
  }

  /** @returns when all its contenders are done, or at the crash */
  async play(part: Part): Promise<Played> {
    this.#finish = new AbortController();
    const seen = { holders: [] as Holder[], contended: 0, unavailable: 0 };
    this.#seen = seen;
    const crash = new Promise<void>((resolve) => {
      this.#onCrash = resolve;
    });
    const claimsOf = (name: string) => part.claims.filter(({ contender }) => contender === name);
    const contenders = ['a', 'b'].map((name) => this.#contend(part, claimsOf(name)));
    await Promise.race([Promise.all(contenders), crash]);
    return { ...seen, leases: seen.holders.map((holder) => holder.seen) };
  }

  end(): void {
    this.#finish.abort();
  }

  /** From here on it claims nothing, and gives nothing back. Its proxy ends its connections. */
  crash(): void {
    this.#crashed = true;
    for (const holder of this.#seen.holders) holder.end('crashed');
    this.#onCrash();
  }

  close(): Promise<void> {
    return this.#close();
  }

  get #over(): boolean {
    return this.#crashed || this.#finish.signal.aborted;
  }

  async #contend(part: Part, claims: readonly ClaimStep[]): Promise<void> {
    for (const claim of claims) {
      await this.#sleep(part.startMs + claim.atMs - monotonicMs());
      if (this.#over) return;
      const holder = await this.#acquire(part, claim);
      if (holder === null) continue;
      await this.#hold(holder, claim.holdMs);
      if (this.#crashed) return;
      holder.look();
      holder.end('late');
      if (await holder.lease.release()) holder.confirm();
    }
  }

  async #acquire({ resource, ttlMs }: Part, { waitMs, contender }: ClaimStep): Promise<Holder | null> {
    const untilMs = monotonicMs() + waitMs;
    for (;;) {
      const askedMs = monotonicMs();
      const leftMs = Math.max(0, untilMs - askedMs);
      const { signal } = this.#finish;
      const result = await this.#lock.acquire(resource, { ttlMs, waitMs: leftMs, signal });
      if (this.#crashed) return null;
      if (result.kind === 'held') {
        const holder = new Holder(result.lease, contender, askedMs);
        this.#seen.holders.push(holder);
        return holder;
      }
      if (result.kind === 'contended') this.#seen.contended++;
      if (result.kind !== 'unavailable') return null;
      this.#seen.unavailable++;
      if (monotonicMs() >= untilMs) return null;
      await this.#sleep(RETRY_MS);
    }
  }

  /** So long, or until the holder's end, or the schedule's. */
  async #hold(holder: Holder, ms: number): Promise<void> {
    if (holder.over) return;
    const ended = new Promise<void>((resolve) => {
      holder.onEnd = resolve;
    });
    await Promise.race([ended, this.#sleep(ms)]);
  }

  /** But not beyond the end of the schedule. */
  async #sleep(ms: number): Promise<void> {
    await sleep(Math.max(0, ms), undefined, { signal: this.#finish.signal }).catch(() => {});
  }
}

async function open(servers: ClientServers): Promise<Client> {
  const { lock: name, lockTtlMs = 10_000, redisUrl, databaseUrl } = servers;
  const { redlockUrls = [], zookeeperUrl = null } = servers;
  const redis = redisUrl === undefined ? undefined : await openRedis(redisUrl, () => {});
  const postgres = databaseUrl === undefined ? undefined : openPostgres(databaseUrl, () => {});
  const module = locks.get(name) as unknown as { create(context: object): Promise<Lock> };
  const onError = () => {};
  const lock = await module.create({ redis, postgres, lockTtlMs, redlockUrls, zookeeperUrl, onError });
  return new Client(lock, async () => {
    await lock.close();
    await redis?.close();
    await postgres?.close();
  });
}

const clients = new Map<number, Client>();

async function obey(order: Order): Promise<Played | undefined> {
  if (order.do === 'open') {
    clients.set(order.client, await open(order.servers));
    return undefined;
  }
  const client = clients.get(order.client);
  if (order.do === 'play') return client?.play(order.part);
  if (order.do === 'close') clients.delete(order.client);
  await client?.[order.do]();
  return undefined;
}

if (!process.connected) process.exit();
process.on('message', (order: Order) => {
  const answer = (reply: Reply) => process.send!(reply);
  obey(order).then(
    (value) => answer(value === undefined ? { id: order.id } : { id: order.id, value }),
    (error: Error) => answer({ id: order.id, error: String(error.stack) }),
  );
});
process.on('disconnect', () => process.exit());
