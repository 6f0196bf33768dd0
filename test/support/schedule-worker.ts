/**
 * A process with clients of several schedules, controlled over IPC by `Command`s. A separate process can be paused together
 * with everything that its holders assume.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Lease, Lock } from '../../src/locks/lock.ts';
import { locks } from '../../src/locks/registry.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import {
  type ClaimStep,
  type ClientResult,
  type ClientServers,
  type Command,
  type LeaseRecord,
  monotonicMs,
  type Part,
  type Reply,
} from './schedules.ts';

/** Interval of a holder's checks of its lease, in milliseconds. */
const CHECK_MS = 2;
/** Recorded checks: more than any allowance. */
const MAX_CHECKS = 16;
/** Pause between two acquires while the server is unavailable. */
const RETRY_MS = 25;

/** Holds a lease and checks it continuously. */
class Holder {
  readonly lease: Lease;
  /** Called when the lease has ended for the holder. */
  onEnd: () => void = () => {};
  readonly #contender: 'a' | 'b';
  readonly #requestedMs: number;
  #firstMs = Number.MAX_VALUE;
  readonly #latestMs: number[] = [];
  #end: LeaseRecord['end'] | undefined;

  constructor(lease: Lease, contender: 'a' | 'b', requestedMs: number) {
    this.lease = lease;
    this.#contender = contender;
    this.#requestedMs = requestedMs;
    this.check();
    if (!this.hasEnded) keepChecking(this);
  }

  get record(): LeaseRecord {
    const [contender, requestedMs, firstMs] = [this.#contender, this.#requestedMs, this.#firstMs];
    return { contender, requestedMs, firstMs, latestMs: this.#latestMs, end: this.#end ?? 'crashed' };
  }

  get hasEnded(): boolean {
    return this.#end !== undefined;
  }

  check(): void {
    const beforeMs = monotonicMs();
    const lost = this.lease.signal.aborted;
    const afterMs = monotonicMs();
    if (lost) {
      this.end('lost');
      return;
    }
    this.#firstMs = Math.min(this.#firstMs, afterMs);
    this.#latestMs.push(beforeMs);
    if (this.#latestMs.length > MAX_CHECKS) this.#latestMs.shift();
  }

  /** The release was in time. */
  confirm(): void {
    if (this.#end === 'late') this.#end = 'released';
  }

  end(how: LeaseRecord['end']): void {
    if (this.hasEnded) return;
    this.#end = how;
    holders.delete(this);
    this.onEnd();
  }
}

const holders = new Set<Holder>();
let checking: NodeJS.Timeout | undefined;

/** After a pause of the process, this timer is due before those of a lease. */
function keepChecking(holder: Holder): void {
  holders.add(holder);
  checking ??= setInterval(() => {
    for (const each of holders) each.check();
    if (holders.size > 0) return;
    clearInterval(checking);
    checking = undefined;
  }, CHECK_MS);
}

/** A lock with its contenders. */
class Client {
  readonly #lock: Lock;
  readonly #close: () => Promise<void>;
  #results: { readonly holders: Holder[]; contended: number; unavailable: number };
  #finish = new AbortController();
  #hasCrashed = false;
  #onCrash = () => {};

  constructor(lock: Lock, close: () => Promise<void>) {
    this.#lock = lock;
    this.#close = close;
    this.#results = { holders: [], contended: 0, unavailable: 0 };
  }

  /** Resolves when all contenders are done, or at the crash. */
  async run(part: Part): Promise<ClientResult> {
    this.#finish = new AbortController();
    const results = { holders: [] as Holder[], contended: 0, unavailable: 0 };
    this.#results = results;
    const crash = new Promise<void>((resolve) => {
      this.#onCrash = resolve;
    });
    const claimsOf = (name: string) => part.claims.filter(({ contender }) => contender === name);
    const contenders = ['a', 'b'].map((name) => this.#contend(part, claimsOf(name)));
    await Promise.race([Promise.all(contenders), crash]);
    return { ...results, leases: results.holders.map((holder) => holder.record) };
  }

  end(): void {
    this.#finish.abort();
  }

  /** The client stops without a release. Its proxy ends its connections. */
  crash(): void {
    this.#hasCrashed = true;
    for (const holder of this.#results.holders) holder.end('crashed');
    this.#onCrash();
  }

  close(): Promise<void> {
    return this.#close();
  }

  get #hasEnded(): boolean {
    return this.#hasCrashed || this.#finish.signal.aborted;
  }

  async #contend(part: Part, claims: readonly ClaimStep[]): Promise<void> {
    for (const claim of claims) {
      await this.#sleep(part.startMs + claim.atMs - monotonicMs());
      if (this.#hasEnded) return;
      const holder = await this.#acquire(part, claim);
      if (holder === null) continue;
      await this.#hold(holder, claim.holdMs);
      if (this.#hasCrashed) return;
      holder.check();
      holder.end('late');
      if (await holder.lease.release()) holder.confirm();
    }
  }

  async #acquire({ resource, ttlMs }: Part, { waitMs, contender }: ClaimStep): Promise<Holder | null> {
    const untilMs = monotonicMs() + waitMs;
    for (;;) {
      const requestedMs = monotonicMs();
      const leftMs = Math.max(0, untilMs - requestedMs);
      const { signal } = this.#finish;
      const result = await this.#lock.acquire(resource, { ttlMs, waitMs: leftMs, signal });
      if (this.#hasCrashed) return null;
      if (result.kind === 'held') {
        const holder = new Holder(result.lease, contender, requestedMs);
        this.#results.holders.push(holder);
        return holder;
      }
      if (result.kind === 'contended') this.#results.contended++;
      if (result.kind !== 'unavailable') return null;
      this.#results.unavailable++;
      if (monotonicMs() >= untilMs) return null;
      await this.#sleep(RETRY_MS);
    }
  }

  /** Ends early with the lease or the schedule. */
  async #hold(holder: Holder, ms: number): Promise<void> {
    if (holder.hasEnded) return;
    const ended = new Promise<void>((resolve) => {
      holder.onEnd = resolve;
    });
    await Promise.race([ended, this.#sleep(ms)]);
  }

  /** Ends early with the schedule. */
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

async function execute(command: Command): Promise<ClientResult | undefined> {
  if (command.do === 'open') {
    clients.set(command.client, await open(command.servers));
    return undefined;
  }
  const client = clients.get(command.client);
  if (command.do === 'run') return client?.run(command.part);
  if (command.do === 'close') clients.delete(command.client);
  await client?.[command.do]();
  return undefined;
}

if (!process.connected) process.exit();
process.on('message', (command: Command) => {
  const reply = (message: Reply) => process.send!(message);
  execute(command).then(
    (value) => reply(value === undefined ? { id: command.id } : { id: command.id, value }),
    (error: Error) => reply({ id: command.id, error: String(error.stack) }),
  );
});
process.on('disconnect', () => process.exit());
