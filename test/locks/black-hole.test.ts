/**
 * The black hole: holder A reaches Redis through a proxy that stops passing bytes at 150 ms, with a TTL of 1,000 ms;
 * B reaches Redis directly. All clients are made as ioredis makes them when it is told nothing but where: no command
 * ever times out, so nothing but the lease's own clock can tell A.
 *
 * Everything happens in one process, whose events have an order. What is compared: the moment at which A's `abort`
 * listener was called, and the moment at which B's `acquire` resolved. A process that stands still calls its
 * timers late; it then may hear B's answer first. What holds even there is asserted in every run: A's deadline lies
 * before B's moment, and A's signal is aborted for whoever looks at it then. Such a run is told by a second timer,
 * due a moment after the deadline, which is late as well; it is repeated, so that the listener's order is judged in
 * as many runs as are named.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Mutex } from 'redis-semaphore';
// @ts-expect-error its package.json hides its types from a module
import UntypedRedlock from 'redlock';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { type Lease, LeaseLostError, type Lock } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/rungs/redis.ts';
import { storeClock } from '../../src/store/late-requests.ts';
import type { RedisStore } from '../../src/store/redis/connection.ts';
import { defineLockScripts } from '../../src/store/redis/script.ts';
import { defineSaleScripts } from '../../src/store/redis/scripts.ts';
import { eventually } from '../support/client.ts';
import { type LinkMode, TcpProxy } from '../support/proxy.ts';

const TTL_MS = 1_000;
const HOLE_MS = 150;
const WAIT_MS = 10_000;
/** The second timer is due so long after A's deadline; B cannot have the lock before twice that. */
const CONTROL_MS = 5;
/** Between the starts of two runs, so that one pause of the machine does not meet them all. */
const STAGGER_MS = 20;

let folder: string;
let server: RedisServer;
let b: Lock;
const closers: (() => unknown)[] = [];

/** A client as ioredis makes it by default. */
async function connect(url: string): Promise<Redis> {
  const redis = new Redis(url);
  redis.on('error', () => {});
  await redis.ping();
  return redis;
}

async function lockOn(redis: Redis): Promise<Lock> {
  const clock = storeClock(async () => Date.now());
  const store: RedisStore = {
    redis,
    clock,
    scripts: {
      ...defineSaleScripts(redis, clock),
      ...defineLockScripts(redis),
    },
    ping: async () => void (await redis.ping()),
    evictionPolicy: async () => null,
    close: async () => redis.disconnect(),
  };
  return create({ redis: store });
}

async function hold(lock: Lock, resource: string, ttlMs = TTL_MS): Promise<Lease> {
  for (let tries = 1; ; tries++) {
    const result = await lock.acquire(resource, { ttlMs, waitMs: WAIT_MS });
    if (result.kind === 'held') return result.lease;
    // An answer that took longer than the TTL is none.
    if (tries === 10) throw new Error(`${resource} was not held: ${JSON.stringify(result)}`);
  }
}

let resources = 0;
const newResource = () => `resource-${++resources}`;

/** Runs that do not begin all at once, so many at a time. A run without a result is repeated. */
async function runs<T>(count: number, run: () => Promise<T | null>): Promise<T[]> {
  const results: T[] = [];
  for (let tries = 0; results.length < count; tries++) {
    if (tries === 10) throw new Error(`only ${results.length} of ${count} runs were not disturbed`);
    const batch = Array.from({ length: Math.min(25, count - results.length) }, (_, i) =>
      sleep(i * STAGGER_MS).then(run),
    );
    results.push(...(await Promise.all(batch)).filter((result) => result !== null));
  }
  return results;
}

/** When this process stood still, and for how long. */
const pauses: { readonly endMs: number; readonly ms: number }[] = [];

function watchPauses(): void {
  let lastMs = performance.now();
  const timer = setInterval(() => {
    const endMs = performance.now();
    if (endMs - lastMs > 50) pauses.push({ endMs, ms: endMs - lastMs });
    lastMs = endMs;
  }, 10);
  closers.push(() => clearInterval(timer));
}

/** For how long this process stood still since, altogether. */
const stoodStillMs = (sinceMs: number) =>
  pauses.filter(({ endMs }) => endMs > sinceMs).reduce((sum, { ms }) => sum + ms, 0);

beforeAll(async () => {
  watchPauses();
  folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-hole-'));
  server = await startRedisServer({ folder, args: ['--appendonly', 'no'] });
  const direct = await connect(server.url);
  closers.push(() => direct.disconnect());
  b = await lockOn(direct);
});

afterAll(async () => {
  await b?.close();
  for (const close of closers.splice(0).reverse()) await close();
  await server?.kill();
  await rm(folder, { recursive: true, force: true });
});

/** Calls back a moment after the lease's deadline, as often as that has moved; always from a timer, as the lease does. */
function whenOver(lease: Lease, call: () => void): void {
  const leftMs = () => lease.deadlineMs + CONTROL_MS - performance.now();
  setTimeout(() => (leftMs() > 0 ? whenOver(lease, call) : call()), Math.max(1, Math.ceil(leftMs())));
}

interface Told {
  /** When A's listener was called. */
  readonly toldMs: number;
  /** When B's acquire resolved. */
  readonly acquiredMs: number;
}

/** One run. @returns null when this process stood still, so that the order of its timers shows nothing */
async function blackHole(mode: LinkMode): Promise<Told | null> {
  const proxy = await TcpProxy.open({ port: server.port });
  const redis = await connect(proxy.through(server.url));
  const a = await lockOn(redis);
  const resource = newResource();
  try {
    const lease = await hold(a, resource);
    let toldMs = Number.POSITIVE_INFINITY;
    let over = false;
    lease.signal.addEventListener('abort', () => {
      toldMs = performance.now();
    });
    whenOver(lease, () => {
      over = true;
    });
    setTimeout(() => proxy.set(mode), HOLE_MS);
    const next = await hold(b, resource);
    const acquiredMs = performance.now();
    const late = toldMs > acquiredMs && !over;
    // Looking at the signal may make it fire, so this comes last.
    const told = { toldMs, acquiredMs };
    expect(lease.signal.aborted).toBe(true);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(lease.deadlineMs).toBeLessThan(acquiredMs);
    expect(next.fencingToken).toBeGreaterThan(lease.fencingToken!);
    await next.release();
    return late ? null : told;
  } finally {
    redis.disconnect();
    await a.close();
    await proxy.close();
  }
}

describe('a holder in a black hole', { timeout: 120_000 }, () => {
  it.each<[LinkMode, number]>([
    ['black-hole', 50],
    ['lose-requests', 10],
    ['lose-replies', 10],
  ])('%s: is told before another has the lock, every time', async (mode, count) => {
    const all = await runs(count, () => blackHole(mode));
    expect(all).toHaveLength(count);
    for (const { toldMs, acquiredMs } of all) expect(toldMs).toBeLessThan(acquiredMs);
  });
});

/**
 * Here a machine that is late is a failure, not a pass. So that it may be, everything takes three times as long: the
 * TTL is 3,000 ms, and the bytes stop at 450 ms. The times that are named are those for a TTL of 1,000 ms.
 */
const SLOW = 3;
/** Every renewal has more than twice this time to spare. */
const STILL_MS = 400;

/** A way to Redis that has trouble for a while, but in which every renewal could be answered before the deadline. */
interface Trouble {
  readonly url: string;
  /** Called when A has had the lock for a while. */
  begin(): Promise<void>;
  /** Called before A asks for the lock. */
  before?(): void;
  close(): Promise<void>;
}

async function holding(begin: (proxy: TcpProxy) => Promise<void>): Promise<Trouble> {
  const proxy = await TcpProxy.open({ port: server.port });
  return { url: proxy.through(server.url), begin: () => begin(proxy), close: () => proxy.close() };
}

const troubles: Record<string, () => Promise<Trouble>> = {
  'bytes stop at 150 ms and come at 600 ms': () =>
    holding(async (proxy) => {
      proxy.hold();
      await sleep(SLOW * 450);
      proxy.release();
    }),
  'bytes stop for 300 ms again and again': () =>
    holding(async (proxy) => {
      for (let i = 0; i < 6; i++) {
        proxy.hold();
        await sleep(SLOW * 300);
        proxy.release();
        await sleep(SLOW * HOLE_MS);
      }
    }),
  'every byte comes 100 ms later': () =>
    holding(async (proxy) => {
      proxy.delayMs = SLOW * 100;
    }),
  'the lock is given 700 ms after it was asked for': async () => {
    const proxy = await TcpProxy.open({ port: server.port });
    return {
      url: proxy.through(server.url),
      before() {
        proxy.hold();
        setTimeout(() => proxy.release(), SLOW * 700);
      },
      begin: async () => {},
      close: () => proxy.close(),
    };
  },
  'bytes are lost from 150 ms on, and new connections are made from 600 ms on': async () => {
    const proxy = await TcpProxy.open({ port: server.port });
    return {
      url: proxy.through(server.url),
      async begin() {
        proxy.set('black-hole');
        await sleep(SLOW * 450);
        proxy.set('pass'); // which cuts the connection; ioredis sends again what was not answered
      },
      close: () => proxy.close(),
    };
  },
};

/** One run. @returns how it ended, which should be `KEPT`; null when it did not, and this process had stood still */
async function throughTrouble(open: () => Promise<Trouble>): Promise<string | null> {
  const trouble = await open();
  const redis = await connect(trouble.url);
  const a = await lockOn(redis);
  const resource = newResource();
  const sinceMs = performance.now();
  try {
    trouble.before?.();
    const lease = await hold(a, resource, SLOW * TTL_MS);
    let told = 'not told';
    lease.signal.addEventListener('abort', () => {
      told = String(lease.signal.reason);
    });
    const troubled = sleep(SLOW * HOLE_MS).then(trouble.begin);
    await Promise.all([troubled, sleep(SLOW * (3 * TTL_MS + 100))]);
    const { kind } = await b.acquire(resource, { ttlMs: TTL_MS, waitMs: 0 });
    const end = `${lease.signal.aborted}, ${told}; B: ${kind}; released: ${await lease.release()}`;
    return end !== KEPT && stoodStillMs(sinceMs) > STILL_MS ? null : end;
  } finally {
    redis.disconnect();
    await a.close();
    await trouble.close();
  }
}

const KEPT = 'false, not told; B: contended; released: true';

describe.concurrent('a holder whose renewals can still be answered', { timeout: 120_000 }, () => {
  it.each(Object.entries(troubles))('%s: is not told in three TTLs, 12 times of 12', async (_, open) => {
    expect(await runs(12, () => throughTrouble(open))).toEqual(Array(12).fill(KEPT));
  });
});

/** What is used of redlock. */
interface Redlock {
  using(resources: string[], ttlMs: number, work: (signal: AbortSignal) => Promise<void>): Promise<void>;
  acquire(resources: string[], ttlMs: number, settings?: object): Promise<{ release(): Promise<unknown> }>;
}
const newRedlock = (redis: Redis): Redlock => new UntypedRedlock([redis]);

/** A lock of another library, held by A, while B waits for it. */
interface Foreign {
  /** Resolves when B has the lock. */
  readonly acquired: Promise<unknown>;
  /** Whether A was told. */
  told(): boolean;
  /** Once A has been told. */
  end(): void;
}

async function redlock(mine: Redis, theirs: Redis, resource: string): Promise<Foreign> {
  let signal: AbortSignal | undefined;
  let events = 0;
  let end = () => {};
  const work = newRedlock(mine).using([resource], TTL_MS, async (given) => {
    signal = given;
    given.addEventListener('abort', () => events++);
    await new Promise<void>((resolve) => {
      end = resolve;
    });
  });
  await eventually(
    async () => signal,
    (there) => there !== undefined,
  );
  return {
    acquired: newRedlock(theirs).acquire([resource], WAIT_MS, { retryCount: 500, retryDelay: 20 }),
    told: () => events > 0 || signal!.aborted,
    end() {
      end();
      work.catch(() => {}); // it tries for a while to give back what is not its own any more
    },
  };
}

async function semaphore(mine: Redis, theirs: Redis, resource: string): Promise<Foreign> {
  let events = 0;
  const mutex = new Mutex(mine, resource, { lockTimeout: TTL_MS, onLockLost: () => events++ });
  await mutex.acquire();
  const rival = { lockTimeout: WAIT_MS, acquireTimeout: WAIT_MS, retryInterval: 20, refreshInterval: 0 };
  return {
    acquired: new Mutex(theirs, resource, rival).acquire(),
    told: () => events > 0 || !mutex.isAcquired,
    end: () => void mutex.release(),
  };
}

/**
 * One run: whether A was told while B had the lock too, until 5 s after the hole began. Null when A was told and this
 * process stood still: what comes to ask too late sees by its own clock that the lock is over.
 */
async function foreignHole(take: typeof redlock): Promise<boolean | null> {
  const proxy = await TcpProxy.open({ port: server.port });
  const mine = await connect(proxy.through(server.url));
  const theirs = await connect(server.url);
  const sinceMs = performance.now();
  try {
    const { acquired, told, end } = await take(mine, theirs, newResource());
    await sleep(HOLE_MS);
    proxy.set('black-hole');
    await Promise.all([acquired, sleep(5_000)]);
    const wasTold = told();
    proxy.set('pass'); // it asks again, on a new connection, and hears that the lock is another's
    await eventually(
      async () => told(),
      (value) => value,
      20_000,
    );
    end();
    return wasTold && stoodStillMs(sinceMs) > STILL_MS ? null : wasTold;
  } finally {
    mine.disconnect();
    theirs.disconnect();
    await proxy.close();
  }
}

/** Measured, for comparison: with ioredis's defaults they wait for an answer, and hear of no loss without one. */
describe.concurrent('other libraries in the same black hole', { timeout: 120_000 }, () => {
  it.each([
    ['redlock 5.0.0-beta.2', redlock],
    ['redis-semaphore 5', semaphore],
  ])('%s never tells its holder, while another holds the lock too', async (_, take) => {
    expect(await runs(5, () => foreignHole(take))).toEqual(Array(5).fill(false));
  });
});
