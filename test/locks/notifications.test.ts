/** The wake-ups of the lock `redis`, and its places in the queue, where a process has more than one contender or is not notified. */
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { RedisClient } from '../../src/locks/clients.ts';
import type { RenewingLease } from '../../src/locks/kit/renewing-lease.ts';
import type { Lease } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis.ts';
import { held, kindOf, PATIENCE_MS, stopTimers } from '../contract/lock-steps.ts';
import { type LockProcess, redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

const WAITS = { ttlMs: 5 * PATIENCE_MS, waitMs: PATIENCE_MS };
const lockOf = (resource: string) => `stampede:{${resource}}:lock`;
const waitersOf = (resource: string) => `stampede:{${resource}}:waiters`;

/** Whether messages reach the processes, as far as they know. */
let isNotified = true;

function switched(redis: RedisClient): RedisClient {
  const subscriber: RedisClient['subscriber'] = (...given) => {
    const real = redis.subscriber(...given);
    return {
      get isReady() {
        return isNotified && real.isReady;
      },
      subscribe: () => real.subscribe(),
      close: () => real.close(),
    };
  };
  return { ...redis, subscriber };
}

const fixture = opened(() => redisLocks(({ redis }) => create({ redis: switched(redis) })));
let server: Redis;
let a: LockProcess;
let b: LockProcess;

beforeAll(() => {
  server = new Redis(fixture.servers.redisUrl);
});
beforeEach(async () => {
  isNotified = true;
  [a, b] = await Promise.all([fixture.process(), fixture.process()]);
});
afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all([a.close(), b.close()]);
});
afterAll(() => server?.disconnect());

/** A process joins the queue in Redis only when it can be notified. */
const queued = (resource: string, count: number) =>
  expect.poll(() => server.zcard(waitersOf(resource))).toBe(count);

/** Subscribes a process, and from then on no waiter polls. */
async function withoutPolls(...processes: LockProcess[]): Promise<void> {
  for (const process of processes) {
    const lease = await held((process === a ? b : a).lock, 'subscribing');
    const next = held(process.lock, 'subscribing', WAITS);
    await queued('subscribing', 1);
    await lease.release();
    await (await next).release();
  }
  stopTimers();
}

/** The lease of a waiter, which a message must wake. */
async function woken(waiting: Promise<Lease>): Promise<Lease> {
  let lease: Lease | undefined;
  void waiting.then((granted) => {
    lease = granted;
  });
  await expect.poll(() => lease).toBeDefined();
  return lease!;
}

it("a try for an owner leaves the wake-ups to its process's waiter", async () => {
  await withoutPolls(b);
  const lease = await held(a.lock, 'tried');
  const next = held(b.lock, 'tried', WAITS);
  await queued('tried', 1);
  expect(await kindOf(b, 'tried', { owner: 'another' })).toBe('contended');
  await lease.release();
  await (await woken(next)).release();
});

it('the late release of a lost lease leaves the next contender its wake-ups and its place', async () => {
  await withoutPolls(a, b);
  const lease = await held(a.lock, 'lost');
  const first = held(b.lock, 'lost', WAITS);
  await queued('lost', 1);
  const second = held(a.lock, 'lost', WAITS);
  const third = held(a.lock, 'lost', WAITS);
  (lease as RenewingLease).lose('the test says so'); // the second asks Redis now, and the third is behind it
  await queued('lost', 2);
  const [, channel] = await server.zrange(waitersOf('lost'), '0', '1');
  const since = () => server.zscore(waitersOf('lost'), channel!);
  const before = await since();
  expect(await lease.release()).toBe('lost');
  const next = await woken(first);
  expect(await since()).toBe(before);
  await next.release();
  for (const waiting of [second, third]) await (await woken(waiting)).release();
});

it.each(['gives up', 'is granted the lock'])(
  'a waiter that is no longer notified leaves its place in the queue when it %s',
  async (how) => {
    const lease = await held(a.lock, how);
    const stop = new AbortController();
    const acquiring = b.lock.acquire(how, { ...WAITS, signal: stop.signal });
    await queued(how, 1);
    isNotified = false;
    const before = b.link.requests;
    // One try may have begun earlier.
    await expect.poll(() => b.link.requests).toBeGreaterThan(before + 1);
    if (how === 'gives up') stop.abort();
    else await server.del(lockOf(how));
    const result = await acquiring;
    expect(result.kind).toBe(how === 'gives up' ? 'aborted' : 'held');
    await queued(how, 0);
    await lease.release();
    if (result.kind === 'held') await result.lease.release();
  },
);
