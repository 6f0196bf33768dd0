/** What a semaphore does beyond the contract of locks, which it keeps with one permit. */
import { expect, it } from 'vitest';
import { using } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis-semaphore.ts';
import { ends, held, kindOf, once, PATIENCE_MS, renewed, untilAvailable } from '../contract/lock-steps.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

const PERMITS = 3;
const fixture = opened(() => redisLocks(({ redis }) => create({ redis, permits: PERMITS })));
const processes = [1, 2, 3, 4].map(() => opened(() => fixture.process()));

it('has as many holders as permits, in one process and in several, and never more', async () => {
  const holders = (resource: string) => fixture.redis.zcard(`stampede:{${resource}}:permits`);
  let inside = 0;
  let most = 0;
  let isFull: () => void;
  const full = new Promise<void>((resolve) => {
    isFull = resolve;
  });
  const work = async () => {
    inside++;
    most = Math.max(most, inside);
    if (inside === PERMITS) isFull();
    await full; // the first holders stay until all permits are held
    expect(inside).toBeLessThanOrEqual(PERMITS);
    expect(await holders('crowd')).toBeLessThanOrEqual(PERMITS);
    inside--;
  };
  const options = { ...once, waitMs: PATIENCE_MS };
  const all = processes.flatMap(({ lock }) =>
    Array.from({ length: 15 }, () => untilAvailable(() => using(lock, 'crowd', options, work))),
  );
  for (const result of await Promise.all(all)) expect(result.kind).toBe('done');
  expect(most).toBe(PERMITS);
  await expect.poll(() => holders('crowd')).toBe(0);
  const { lock } = processes[0]!;
  const alone = [
    await held(lock, 'alone'),
    await held(lock, 'alone'),
    await held(lock, 'alone', { ttlMs: 9_000 }),
  ];
  await renewed(alone[2]!);
  expect(await fixture.redis.pttl('stampede:{alone}:permits')).toBeGreaterThan(60_000); // the shorter lease ends no other
  expect(await kindOf(processes[0]!, 'alone')).toBe('contended');
  expect(alone.map(({ fencingToken }) => fencingToken)).toEqual([null, null, null]);
  for (const lease of alone) await ends(lease, 'released');
});
