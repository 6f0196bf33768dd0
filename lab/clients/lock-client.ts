/** The process of lock clients: see protocol.ts. */
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { nowNs, untilNs } from '../kit/monotonic.ts';
import { Contenders } from './claims.ts';
import { type ClientLock, type Grant, openClientLock } from './open-lock.ts';
import type {
  Command,
  Commands,
  Contention,
  ContentionReport,
  Cycle,
  HolderEvent,
  Holding,
  Leftovers,
  Reply,
  What,
} from './protocol.ts';

/** How long a waiter would wait beyond the end of the run: longer than any timer is late. */
const SPARE_MS = 5_000;
/** How long cancelled waiters, and the lock's close, may take. */
const FAREWELL_MS = 3_000;
/** Pause after a failed acquisition: a lock that refuses at once is not called in a tight loop. */
const REFUSED_MS = 5;
/** Interval between a holder's writes. */
const WRITE_MS = 10;
const REFUSED_HOLDER_MS = 20;

/**
 * Requests that the clients of this process sent. A server's own counters do not distinguish commands of clients from commands
 * of scripts, so requests are counted where every command of ioredis and every query of pg passes. A command that is queued
 * until there is a connection passes twice: count when all clients are connected.
 */
let requests = 0;
const counted = <A extends unknown[], R>(send: (...args: A) => R) =>
  function (this: unknown, ...args: A): R {
    requests++;
    return send.apply(this, args);
  };
Redis.prototype.sendCommand = counted(Redis.prototype.sendCommand);
// The overloads of `query` say more than is needed here.
const pgClient = pg.Client.prototype as { query: (...args: unknown[]) => unknown };
pgClient.query = counted(pgClient.query);

class Client {
  readonly #lock: ClientLock;
  readonly #contenders: Contenders;
  #end = new AbortController();

  constructor(lock: ClientLock) {
    this.#lock = lock;
    this.#contenders = new Contenders(lock);
  }

  async contend(contention: Contention): Promise<ContentionReport> {
    const { waiters, beginNs, startNs, endNs } = contention;
    const report = { cycles: [] as Cycle[], refusals: {} as Record<string, number> };
    /** When each waiter without a grant asked for it. */
    const asking = new Map<number, number>();
    await untilNs(beginNs);
    // One signal for each waiter: thousands of listeners on one would be slow.
    const ends = waiters.map(() => new AbortController());
    const contending = waiters.map((waiter, n) =>
      this.#cycle(contention, waiter, ends[n]!.signal, asking, report),
    );
    await untilNs(startNs);
    const before = { ns: nowNs(), requests };
    await untilNs(endNs);
    const sent = { fromNs: before.ns, toNs: nowNs(), requests: requests - before.requests };
    for (const end of ends) end.abort();
    await Promise.race([Promise.all(contending), sleep(FAREWELL_MS)]);
    const waiting = [...asking].map(([waiter, askedNs]) => ({ waiter, askedNs }));
    return { ...report, sent, waiting };
  }

  async #cycle(
    { resource, endNs, yieldsWhileHolding }: Contention,
    waiter: number,
    signal: AbortSignal,
    asking: Map<number, number>,
    { cycles, refusals }: { readonly cycles: Cycle[]; readonly refusals: Record<string, number> },
  ): Promise<void> {
    while (nowNs() < endNs) {
      const askedNs = nowNs();
      asking.set(waiter, askedNs);
      const waitMs = Math.ceil((endNs - askedNs) / 1e6) + SPARE_MS;
      const grant = await this.#lock.acquire(resource, waitMs, signal);
      const grantedNs = nowNs();
      if ('refused' in grant) {
        if (signal.aborted) return;
        refusals[grant.reason] = (refusals[grant.reason] ?? 0) + 1;
        await sleep(REFUSED_MS);
        continue;
      }
      if (yieldsWhileHolding) await turn();
      const releasedNs = nowNs();
      const released = grant.release();
      asking.delete(waiter);
      cycles.push({ waiter, askedNs, grantedNs, releasedNs });
      await released;
    }
  }

  async hold({ resource, workMs, patienceMs }: Holding): Promise<void> {
    const { signal } = this.#end;
    const untilMs = performance.now() + patienceMs;
    report({ kind: 'asked', ns: nowNs() });
    for (;;) {
      const leftMs = Math.max(1, untilMs - performance.now());
      const grant = await this.#lock.acquire(resource, leftMs, signal);
      if (signal.aborted) return;
      if (!('refused' in grant)) return this.#work(grant, workMs, signal);
      report({ kind: 'refused', ns: nowNs(), reason: grant.reason });
      await sleep(REFUSED_HOLDER_MS);
    }
  }

  /** Works as most programs do: writes while it holds, stops when the lock signals that the lease is lost, releases. */
  async #work(grant: Grant, workMs: number, signal: AbortSignal): Promise<void> {
    report({ kind: 'granted', ns: nowNs(), fencingToken: grant.fencingToken });
    grant.lost?.addEventListener('abort', () => report({ kind: 'lost', ns: nowNs() }), { once: true });
    const doneNs = nowNs() + workMs * 1e6;
    while (nowNs() < doneNs && !grant.lost?.aborted && !signal.aborted) {
      report({ kind: 'wrote', ns: nowNs() });
      await sleep(WRITE_MS);
    }
    report({ kind: 'releasing', ns: nowNs() });
    await grant.release().catch(() => {});
    report({ kind: 'released', ns: nowNs() });
  }

  async count({ resource, times, counterUrl }: What<'count'>): Promise<void> {
    const redis = new Redis(counterUrl);
    const key = `counter:${resource}`;
    const { signal } = this.#end;
    for (let i = 0; i < times; i++) {
      let grant = await this.#lock.acquire(resource, 60_000, signal, 20_000);
      // A busy machine may not reply in time: nothing is held then.
      for (let tries = 1; 'refused' in grant && grant.refused === 'unavailable' && tries < 20; tries++)
        grant = await this.#lock.acquire(resource, 60_000, signal, 20_000);
      if ('refused' in grant) throw new Error(grant.reason);
      await redis.set(key, Number(await redis.get(key)) + 1);
      await grant.release();
    }
    redis.disconnect();
  }

  claim(part: What<'claim'>) {
    return this.#contenders.claim(part);
  }

  end(): void {
    this.#contenders.end();
  }

  crash(): void {
    this.#contenders.crash();
  }

  /** Bounded: a lock that lost its servers may be slow to close. */
  async close(): Promise<void> {
    this.#end.abort();
    await Promise.race([this.#lock.close().catch(() => {}), sleep(FAREWELL_MS)]);
  }
}

/** Timers and sockets, without the pipes to the parent. */
const activeResources = (): string[] =>
  process.getActiveResourcesInfo().filter((kind) => !/^(Pipe|TTY)/.test(kind));

/** Anything left for longer counts as leftover, ms. */
const LEFT_MS = 10_000;

async function leave({ lock: name, urls, resource }: What<'leave'>): Promise<Leftovers> {
  const before = activeResources();
  const lock = await openClientLock(name, urls, 5_000);
  const never = new AbortController().signal;
  const hold = async (part: string): Promise<Grant> => {
    const grant = await lock.acquire(`${resource}:${part}`, 0, never);
    if ('refused' in grant) throw new Error(grant.reason);
    return grant;
  };
  await (await hold('released')).release();
  await hold('kept');
  const waiting = lock.acquire(`${resource}:kept`, 60_000, never);
  await lock.acquire(`${resource}:kept`, 60_000, AbortSignal.timeout(50));
  await lock.close();
  let left: string[];
  const untilMs = performance.now() + LEFT_MS;
  do {
    await sleep(100); // closed resources disappear one turn of the event loop later
    left = activeResources();
    for (const kind of before) if (left.includes(kind)) left.splice(left.indexOf(kind), 1);
  } while (left.length > 0 && performance.now() < untilMs);
  const ended = waiting.then((grant) => ('refused' in grant ? grant.refused : 'held'));
  return { left, waiter: await Promise.race([ended, sleep(LEFT_MS, 'waits', { ref: false })]) };
}

const clients = new Map<number, Client>();

/** The commands that need no client. */
const alone: { readonly [Name in keyof Commands]?: (what: What<Name>, client: number) => unknown } = {
  async open({ lock, urls, ttlMs }, client) {
    clients.set(client, new Client(await openClientLock(lock, urls, ttlMs)));
  },
  leave,
  stop: () => process.kill(process.pid, 'SIGSTOP'),
};

async function execute({ client, name, what }: Command): Promise<unknown> {
  const own = alone[name] as ((what: object, client: number) => unknown) | undefined;
  if (own !== undefined) return own(what, client);
  const used = clients.get(client);
  if (name === 'close') clients.delete(client);
  return (used as unknown as Record<string, (what: object) => unknown> | undefined)?.[name]?.(what);
}

function report(message: HolderEvent | Reply): void {
  process.send?.(message);
}

if (!process.connected) process.exit();
process.on('message', (command: Command) => {
  const { id } = command;
  execute(command).then(
    (value) => report({ kind: 'reply', id, value }),
    (error: Error) => report({ kind: 'reply', id, error: String(error.stack) }),
  );
});
// A rejection that a library lets escape must show in the history, not end the trial.
process.on('unhandledRejection', (error) => report({ kind: 'failed', ns: nowNs(), reason: String(error) }));
process.on('disconnect', () => process.exit(1));
