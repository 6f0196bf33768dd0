/** What the contract tests leave out of `redis-watchdog`: an acquire that takes most of the lease. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { create } from '../../src/locks/rungs/redis-watchdog.ts';
import { openOne } from '../support/lock-groups.ts';
import { held } from './lock-checks.ts';

it('renews at once when a lost reply took most of the lease', async () => {
  const group = await openOne(create);
  const [a, b] = [await group.process(), await group.process()];
  a.link.set('lose-replies');
  const ttlMs = 1_500;
  const acquired = held(a.lock, 'late', { ttlMs, waitMs: ttlMs });
  await sleep(1_000);
  a.link.set('pass');
  const lease = await acquired;
  expect((await b.lock.acquire('late', { ttlMs, waitMs: ttlMs })).kind).toBe('contended');
  expect(await lease.release()).toBe('released');
  for (const process of [a, b]) await process.close();
  await group.close();
});
