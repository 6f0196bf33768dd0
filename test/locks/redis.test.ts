import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LeaseLostError, type Lock, using } from '../../src/locks/lock.ts';
import { createRedisLock } from '../../src/locks/redis.ts';
import { openRedis, type RedisStore } from '../../src/store/redis.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

let stores: TestStores;
let mine: RedisStore;
let theirs: RedisStore;
/** Two processes, as far as Redis can tell. */
let a: Lock;
let b: Lock;

beforeAll(async () => {
  stores = await openTestStores();
  mine = await openRedis(stores.redisUrl, () => {});
  theirs = await openRedis(stores.redisUrl, () => {});
  a = createRedisLock(mine);
  b = createRedisLock(theirs);
});

afterAll(async () => {
  await mine?.close();
  await theirs?.close();
  await stores?.[Symbol.asyncDispose]();
});

const options = { ttlMs: 2_000, waitMs: 0 };
async function held(lock: Lock, resource: string, more = {}) {
  const result = await lock.acquire(resource, { ...options, ...more });
  if (result.kind !== 'held') throw new Error(result.kind);
  return result.lease;
}

describe('the lock in one Redis', () => {
  it('lets one holder in, and the next one after the release', async () => {
    const lease = await held(a, 'one');
    expect((await b.acquire('one', options)).kind).toBe('contended');
    expect((await a.acquire('one', options)).kind).toBe('contended');
    expect((await b.acquire('other', options)).kind).toBe('held');
    expect(await lease.release()).toBe(true);
    expect(await lease.release()).toBe(false);
    const next = await held(b, 'one');
    expect(next.fencingToken).toBeGreaterThan(lease.fencingToken!);
    await next.release();
  });

  it('loses no increment of an unprotected counter', async () => {
    const locks = [a, b, createRedisLock(mine), createRedisLock(theirs)];
    let inside = 0;
    const work = locks.flatMap((lock) =>
      Array.from({ length: 30 }, () =>
        using(lock, 'counter', { ttlMs: 5_000, waitMs: 20_000 }, async () => {
          expect(++inside).toBe(1);
          const value = Number((await mine.redis.get('counter')) ?? 0);
          await mine.redis.set('counter', value + 1);
          inside--;
        }),
      ),
    );
    for (const result of await Promise.all(work)) expect(result.kind).toBe('done');
    expect(await mine.redis.get('counter')).toBe('120');
  });

  it('does not release what a stranger holds', async () => {
    const lease = await held(a, 'stranger');
    await mine.redis.set('stampede:{stranger}:lock', 'somebody else', 'PX', 5_000);
    expect(await lease.release()).toBe(false);
    expect(await mine.redis.get('stampede:{stranger}:lock')).toBe('somebody else');
  });

  it('keeps a lease by renewal for longer than its TTL', async () => {
    const lease = await held(a, 'long', { ttlMs: 300 });
    await sleep(1_200);
    expect(lease.signal.aborted).toBe(false);
    expect((await b.acquire('long', options)).kind).toBe('contended');
    expect(await lease.release()).toBe(true);
  });

  it('tells the holder that the lock is lost before another can have it', async () => {
    const own = await openRedis(stores.redisUrl, () => {});
    const lease = await held(createRedisLock(own), 'silent', { ttlMs: 600 });
    let lostMs = Number.POSITIVE_INFINITY;
    lease.signal.addEventListener('abort', () => {
      lostMs = performance.now();
    });
    own.redis.disconnect(); // renewal cannot succeed any more
    const next = await held(b, 'silent', { waitMs: 5_000 });
    const nextMs = performance.now();
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(lostMs).toBeLessThan(nextMs);
    await next.release();
  });

  it('tells the holder when the key was deleted', async () => {
    const lease = await held(a, 'deleted', { ttlMs: 300 });
    await mine.redis.del('stampede:{deleted}:lock');
    await sleep(300);
    expect(lease.signal.aborted).toBe(true);
  });

  it('ends waiting at the asked time, and when it is told to', async () => {
    const lease = await held(a, 'waiting');
    const startMs = performance.now();
    expect((await b.acquire('waiting', { ttlMs: 1_000, waitMs: 400 })).kind).toBe('contended');
    expect(performance.now() - startMs).toBeGreaterThanOrEqual(395);
    const aborting = b.acquire('waiting', { ttlMs: 1_000, waitMs: 10_000, signal: AbortSignal.timeout(100) });
    expect((await aborting).kind).toBe('aborted');
    const local = a.acquire('waiting', { ttlMs: 1_000, waitMs: 10_000, signal: AbortSignal.timeout(100) });
    expect((await local).kind).toBe('aborted');
    await lease.release();
    await (await held(a, 'waiting')).release();
  });

  it('never hides what the work itself threw', async () => {
    const work = using(a, 'throwing', options, async () => {
      throw new RangeError('mine');
    });
    await expect(work).rejects.toThrow(RangeError);
    await (await held(b, 'throwing')).release();
  });

  it('answers unavailable when Redis is away', async () => {
    const away = await openRedis(stores.redisUrl, () => {});
    away.redis.disconnect();
    expect((await createRedisLock(away).acquire('away', options)).kind).toBe('unavailable');
  });
});
