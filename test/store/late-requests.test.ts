/** The estimate of a store's clock, which deadlines are made from. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { storeClock } from '../../src/store/late-requests.ts';

it('is never ahead of the store, whichever half of a round trip is slow', async () => {
  const slowRequest = async () => {
    await sleep(200);
    return Date.now();
  };
  const slowAnswer = async () => {
    const now = Date.now();
    await sleep(200);
    return now;
  };
  for (const read of [slowRequest, slowAnswer]) {
    const clock = storeClock(read);
    await clock.synchronize();
    expect(clock.nowMs()).toBeLessThanOrEqual(Date.now() + 1); // Date.now() is rounded down
  }
});

it('is read again after a deadline passed too early', async () => {
  let reads = 0;
  const clock = storeClock(async () => {
    reads++;
    return Date.now();
  });
  await clock.synchronize();
  await clock.synchronize();
  expect(reads).toBe(1);
  clock.invalidate();
  await clock.synchronize();
  expect(reads).toBe(2);
});

it('waits until an instant has passed by the clock of the store, unless it is too far away', async () => {
  let aheadMs = 0;
  const clock = storeClock(async () => Date.now() + aheadMs);
  await clock.synchronize();
  const instantMs = Date.now() + 100;
  expect(await clock.hasPassed(instantMs, 5_000)).toBe(true);
  expect(Date.now()).toBeGreaterThanOrEqual(instantMs);
  expect(await clock.hasPassed(0, 0)).toBe(true); // 0: a request that cannot be late
  aheadMs = -3_600_000; // the store's clock was set back
  expect(await clock.hasPassed(Date.now(), 5_000)).toBe(false);
});
