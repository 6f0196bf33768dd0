/**
 * The contract of every lock, on real servers. The suite asserts each capability that a lock lists, and the absence of
 * every other one except order: it must observe the flaw. lock-divergences.ts covers failures around a lock.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { LockClients } from '../../lab/clients/lock-clients.ts';
import { type LockDescription, using } from '../../src/locks/lock.ts';
import { DEFAULT_TTL_MS, DEFAULT_WAIT_MS, MAX_MS, MAX_NAME_BYTES } from '../../src/locks/options.ts';
import { reached } from '../support/caller-clients.ts';
import type { LockFixture, LockProcess } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { bySize, contractParts } from '../support/tier.ts';
import { divergences } from './lock-divergences.ts';
import {
  ends,
  type Harness,
  hold,
  kindOf,
  once,
  PATIENCE_MS,
  type Scope,
  soon,
  timed,
  untilAvailable,
} from './lock-steps.ts';

export type { LockFixture, LockProcess };

/**
 * The contract runs whole for one lock of each kit, and here for others what the name says. For the other locks it runs without what
 * their kit alone decides. In the nightly size it runs whole for all.
 */
const WHOLE = ['redis', 'postgres-row', 'postgres-advisory', 'zookeeper'];
const isNightly = bySize({ core: false, full: false, nightly: true });

/** @param parts of the contract to run; by default the tier's. Processes use the service's clients, and not a caller's. */
export function lockContract(
  description: LockDescription,
  open: () => Promise<LockFixture>,
  parts: ReturnType<typeof contractParts> & { readonly isOfCaller?: boolean } = contractParts(
    `lock-${description.name}`,
  ),
): void {
  const { name, capabilities } = description;
  const isWhole = isNightly || WHOLE.includes(name);

  describe.concurrent(`lock ${name}`, () => {
    const fixture = opened(open);
    const harness: Harness = {
      fixture,
      test: (title, body) => it(title, () => withProcesses(harness, description, body)),
    };
    if (parts.core) {
      exclusion(harness, description);
      ending(harness);
      if (name === 'redis' || isNightly) options(harness);
    }
    if (parts.timed && isWhole) waiting(harness, description);
    if (parts.rest) {
      if (capabilities.includes('fair')) queueing(harness);
      divergences(harness, description, isWhole);
      if (isWhole && !parts.isOfCaller) realProcesses(harness, description);
    }
  });
}

let resources = 0;

async function withProcesses(
  { fixture }: Harness,
  { capabilities }: LockDescription,
  body: (scope: Scope) => Promise<void>,
): Promise<void> {
  const processes: LockProcess[] = [];
  const process = async () => {
    const process = await reached(() => fixture.process());
    processes.push(process);
    if (capabilities.includes('ambiguous-acquire-resolved')) return process;
    return { ...process, onLate: (resource: string) => fixture.evict!(resource) };
  };
  try {
    const resource = () => `r${++resources}`;
    const [a, b] = [await process(), await process()];
    await body({ a, b, r: resource(), process, resource });
  } finally {
    await Promise.all(processes.map((process) => process.close()));
  }
}

function exclusion({ test }: Harness, { capabilities }: LockDescription): void {
  test('grants one holder, releases once, and grants the next one', async ({ a, b, r, resource }) => {
    const lease = await hold(a, r);
    expect(await kindOf(b, r)).toBe('contended');
    expect(await kindOf(a, r)).toBe('contended');
    const other = await hold(b, resource()); // each resource is locked by itself
    expect(lease.resource).toBe(r);
    expect(lease.signal.aborted).toBe(false);
    expect(lease.deadlineMs).toBeGreaterThan(performance.now());
    const ended = await ends(lease, 'released');
    expect(await kindOf(a, other.resource)).toBe('contended');
    const next = await hold(b, r);
    expect(next.token).not.toBe(lease.token);
    expect(await lease.release()).toBe(ended); // the same result, without an effect
    await lease[Symbol.asyncDispose]();
    expect(await kindOf(a, r)).toBe('contended');
    for (const one of [next, other]) await ends(one, 'released');
  });

  const isFenced = capabilities.includes('fencing-tokens');
  test(isFenced ? 'issues growing fencing tokens' : 'has no fencing tokens', async ({ a, b, r }) => {
    const tokens: (number | null)[] = [];
    for (const holder of [a, b, a, a, b]) {
      const lease = await hold(holder, r, { waitMs: PATIENCE_MS });
      tokens.push(lease.fencingToken);
      await lease.release();
    }
    if (!isFenced) expect(tokens).toEqual([null, null, null, null, null]);
    else for (let i = 1; i < tokens.length; i++) expect(tokens[i]).toBeGreaterThan(tokens[i - 1]!);
  });

  const isReentrant = capabilities.includes('reentrant');
  test(isReentrant ? 'grants the same owner again' : 'refuses its own owner too', async ({ a, b, r }) => {
    const first = await hold(a, r, { owner: 'me' });
    if (!isReentrant) {
      expect(await kindOf(a, r, { owner: 'me' })).toBe('contended');
    } else {
      const second = await hold(a, r, { owner: 'me' });
      expect(await kindOf(a, r, { owner: 'you' })).toBe('contended');
      expect(await kindOf(b, r, { owner: 'you' })).toBe('contended');
      await second.release();
      expect(await kindOf(b, r)).toBe('contended');
    }
    await first.release();
    await (await hold(b, r, { waitMs: PATIENCE_MS })).release();
  });
}

function waiting({ test }: Harness, { capabilities }: LockDescription): void {
  test('waits for waitMs', async ({ a, b, r }) => {
    await hold(a, r);
    for (const waiter of [a, b]) {
      expect(await kindOf(waiter, r)).toBe('contended');
      const { value, tookMs } = await timed(() => kindOf(waiter, r, { waitMs: 1_000 }));
      expect(value).toBe('contended');
      expect(tookMs).toBeGreaterThanOrEqual(990);
    }
  });

  test('acquires the lock soon after its release', async ({ a, b, r }) => {
    const lease = await hold(a, r);
    const next = kindOf(b, r, { waitMs: 3_600_000 }); // a waiter that is not woken outlasts the test
    await sleep(300);
    await ends(lease, 'released');
    expect(await next).toBe('held');
  });

  test('releases everything when a wait is aborted', async ({ a, b, r, process }) => {
    const c = await process();
    expect(await kindOf(a, r, { signal: AbortSignal.abort() })).toBe('aborted');
    const lease = await hold(b, r);
    for (const waiter of [a, b]) {
      const stop = new AbortController();
      const waits = kindOf(waiter, r, { waitMs: PATIENCE_MS, signal: stop.signal });
      await sleep(150);
      stop.abort();
      expect(await waits).toBe('aborted');
    }
    await ends(lease, 'released');
    // Its last attempt may have been on its way when the signal fired.
    await ends(await hold(c, r, { waitMs: PATIENCE_MS }), 'released');
    await (await hold(a, r, { waitMs: PATIENCE_MS })).release();
  });

  const waitsByNotification = capabilities.includes('waits-by-notification');
  test(waitsByNotification ? 'waits without polling' : 'polls', async ({ a, b, r }) => {
    await hold(a, r);
    await kindOf(b, r, { waitMs: 1_000 }); // it subscribes
    const wait = async () => {
      const before = b.link.requests;
      const { kind } = await b.lock.acquire(r, { ...once, waitMs: 1_500 });
      return { kind, requests: b.link.requests - before };
    };
    if (waitsByNotification) expect((await untilAvailable(wait)).requests).toBeLessThanOrEqual(10);
    else await soon(async () => expect((await wait()).requests).toBeGreaterThan(10)); // fewer after a pause
  });
}

function queueing({ test }: Harness): void {
  test('serves waiters first come, first served', async ({ a, r, process }) => {
    const waiters = await Promise.all(Array.from({ length: 5 }, () => process()));
    const first = await hold(a, r);
    const order: number[] = [];
    /** A late server makes them ask again, behind the others. */
    const late = new Set<number>();
    const all: Promise<void>[] = [];
    for (const [i, waiter] of waiters.entries()) {
      const before = waiter.link.requests;
      const granted = hold({ ...waiter, onLate: async () => void late.add(i) }, r, { waitMs: PATIENCE_MS });
      all.push(
        granted.then(async (lease) => {
          order.push(i);
          await sleep(15);
          await lease.release();
        }),
      );
      // The third request follows the answer to the one that queued it.
      await soon(() => expect(waiter.link.requests).toBeGreaterThan(before + 2));
    }
    await first.release();
    await Promise.all(all);
    const kept = order.filter((i) => !late.has(i));
    expect(kept).toEqual([...kept].sort());
  });
}

function ending({ test }: Harness): void {
  test('returns unavailable while its server is unreachable, and recovers', async ({ a, resource }) => {
    a.link.set('refuse');
    await sleep(50);
    expect((await a.lock.acquire(resource(), once)).kind).toBe('unavailable');
    a.link.set('pass');
    await hold(a, resource());
  });

  test('takes every name within the bounds, and the longest lease', async ({ a }) => {
    const longest = 'x'.repeat(MAX_NAME_BYTES);
    const wide = 'é'.repeat(MAX_NAME_BYTES / 2);
    for (const name of [longest, wide, '{tag}:a', 'a{b', 'a}b', '{}a', '.', ' /%\n'])
      await (await hold(a, name, { owner: 'a\nb', ttlMs: MAX_MS })).release();
    const [tag, bare] = [await hold(a, '{bare}'), await hold(a, 'bare')]; // two resources
    for (const lease of [tag, bare]) await ends(lease, 'released');
  });
}

/** What no lock decides by itself. */
function options({ test }: Harness): void {
  test('rethrows the error of the work', async ({ a, b, r }) => {
    const failing = untilAvailable(() =>
      using(a.lock, r, { ...once, waitMs: PATIENCE_MS }, async () => {
        throw new RangeError('mine');
      }),
    );
    await expect(failing).rejects.toThrow(RangeError);
    await (await hold(b, r, { waitMs: PATIENCE_MS })).release();
  });

  test('refuses arguments outside their bounds, and keeps the other leases', async ({ a, resource }) => {
    const other = await hold(a, resource());
    const long = 'x'.repeat(MAX_NAME_BYTES + 1);
    const wide = 'é'.repeat(MAX_NAME_BYTES / 2 + 1);
    const wrong: Record<string, unknown[]> = {
      resource: ['', 'a\0b', 'a\ud800', '}a', long, wide],
      ttlMs: [0, -1, 1.5, Number.NaN, Infinity, 1_000.5, '1000'],
      waitMs: [-1, Number.NaN, Infinity],
      owner: ['', 'a\ud800', 7],
      mode: ['shared'],
      signal: [{}],
      ttl: [1_000],
    };
    for (const [option, values] of Object.entries(wrong))
      for (const value of values) {
        const isName = option === 'resource';
        const more = isName ? {} : { [option]: value };
        const refused = a.lock.acquire(isName ? (value as string) : resource(), { ...once, ...more });
        const error = await refused.catch((thrown: unknown) => thrown);
        expect([value, error]).toMatchObject([value, { name: 'LockOptionsError', option }]);
      }
    expect(other.signal.aborted).toBe(false);
    await other.release();
  });

  test('has a default for every option, and takes the shortest TTL that it names', async ({
    a,
    resource,
  }) => {
    const { ttlMs, waitMs } = a.lock.check('r');
    expect([ttlMs, waitMs]).toEqual([DEFAULT_TTL_MS, DEFAULT_WAIT_MS]);
    const mistake = await a.lock.acquire(resource(), { ttlMs: 0 }).catch(String);
    const shortestMs = Number(/from (\d+) to/.exec(String(mistake))?.[1]);
    const result = await untilAvailable(() => a.lock.acquire(resource(), { ttlMs: shortestMs }));
    expect(result.kind).toBe('held');
    if (result.kind === 'held') await result.lease.release();
  });
}

function realProcesses({ test, fixture }: Harness, { name: lock }: LockDescription): void {
  test('leaves no timer, socket or waiter when it closes', async ({ resource }) => {
    await using clients = new LockClients();
    const { servers: urls } = fixture;
    const { left, waiter } = await clients.send('leave', { lock, urls, resource: resource() });
    expect(left).toEqual([]);
    expect(['unavailable', 'aborted']).toContain(waiter);
    expect(clients.warnings).toEqual([]);
  });

  test('loses no increment of an unprotected counter: 4 processes × 100', async ({
    resource: newResource,
  }) => {
    const resource = newResource();
    const { servers: urls } = fixture;
    const counting = { resource, times: 100, counterUrl: urls.counterUrl ?? urls.redisUrl };
    const count = async () => {
      await using clients = new LockClients();
      await clients.send('open', { lock, urls });
      await clients.send('count', counting);
    };
    await Promise.all(Array.from({ length: 4 }, count));
    const redis = new Redis(counting.counterUrl);
    try {
      expect(await redis.get(`counter:${resource}`)).toBe('400');
    } finally {
      redis.disconnect();
    }
  });
}
