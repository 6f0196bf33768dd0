/**
 * Holder A reaches Redis through a proxy that swallows bytes, and B reaches it directly. A's client has ioredis's default options, under
 * which no command times out, or is a caller's: only the lease's own clock can signal the loss.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import type { LinkMode } from '../../lab/proxy.ts';
import { type CallersRedis, redisLock } from '../../src/locks/index.ts';
import { create } from '../../src/locks/redis.ts';
import { storeOn } from '../../src/store/redis/connection.ts';
import { expectLossBefore, hold, PATIENCE_MS, watchLoss } from '../contract/lock-steps.ts';
import { ioredis, nodeRedis, reached } from '../support/caller-clients.ts';
import { redisLocksBy } from '../support/lock-groups.ts';
import { bySize } from '../support/tier.ts';

const RUNS = bySize({ core: 3, full: 5, nightly: 50 });
/** Interval between the starts of two runs, so that one pause of the machine does not affect all. */
const STAGGER_MS = 20;

type Open = Parameters<typeof redisLocksBy>[0];
const withoutTimeouts: Open = async (url) => {
  const redis = new Redis(url).on('error', () => {});
  await redis.ping();
  const store = storeOn(redis, () => Promise.reject(new Error('not used')));
  return { lock: await create({ redis: store.locks }), end: async () => redis.disconnect() };
};
const ofPackage =
  (clientOf: (url: string) => CallersRedis): Open =>
  async (url) => ({ lock: await redisLock({ redis: clientOf(url) }) });

it.each<[LinkMode, string, Open]>([
  ['black-hole', 'a connection without timeouts', withoutTimeouts],
  ['black-hole', 'ioredis', ofPackage(ioredis)],
  ['black-hole', 'node-redis', ofPackage(nodeRedis)],
  ['lose-requests', 'a connection without timeouts', withoutTimeouts],
  ['lose-replies', 'a connection without timeouts', withoutTimeouts],
])('%s: signals the loss before another claim is granted, with %s', async (mode, _, open) => {
  const fixture = await redisLocksBy(open);
  const run = async (n: number) => {
    await sleep(n * STAGGER_MS);
    const [a, b] = await Promise.all([reached(() => fixture.process()), reached(() => fixture.process())]);
    const lease = await hold(a, `r${n}`, { ttlMs: 1_000 });
    const loss = watchLoss(lease);
    a.link.set(mode);
    const next = await hold(b, `r${n}`, { waitMs: PATIENCE_MS });
    expectLossBefore(lease, loss);
    expect(next.fencingToken).toBeGreaterThan(lease.fencingToken!);
    await next.release();
    await Promise.all([a.close(), b.close()]);
  };
  try {
    await Promise.all(Array.from({ length: RUNS }, (_, n) => run(n)));
  } finally {
    await fixture.close();
  }
});
