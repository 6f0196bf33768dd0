/** The estimate of a store's clock, which deadlines are made from. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { storeClock } from '../../src/store/late-requests.ts';

it('is never ahead of the store, or never behind it, whichever half of a round trip is slow', async () => {
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
    const nowMs = Date.now();
    expect(clock.latestMs()).toBeGreaterThanOrEqual(nowMs - 1);
  }
});

it('has the time at the latest from the reading that bounds it best, until a later one refutes it', async () => {
  const [exactMs, slowMs] = [0, 60_000];
  let aheadMs = 0;
  let tookMs = exactMs;
  vi.useFakeTimers({ toFake: ['performance', 'Date'] });
  onTestFinished(() => void vi.useRealTimers());
  const clock = storeClock(async () => {
    vi.advanceTimersByTime(tookMs);
    return Date.now() + aheadMs;
  });
  const errorAfter = async (ms: number) => {
    tookMs = ms;
    await clock.hasPassed(1, Number.POSITIVE_INFINITY); // which reads the clock
    return clock.latestMs() - (Date.now() + aheadMs);
  };
  expect(await errorAfter(slowMs)).toBe(slowMs);
  expect(await errorAfter(exactMs)).toBe(0);
  expect(await errorAfter(slowMs)).toBe(slowMs / 1_000); // the clocks may have drifted apart
  aheadMs = 3_600_000;
  expect(await errorAfter(slowMs)).toBe(slowMs);
  aheadMs = 0;
  expect(await errorAfter(exactMs)).toBe(0);
});

it('is read again after a deadline passed too early', async () => {
  const read = vi.fn(async () => Date.now());
  const clock = storeClock(read);
  for (const reads of [1, 1, 2]) {
    if (reads === 2) clock.invalidate();
    await clock.synchronize();
    expect(read).toHaveBeenCalledTimes(reads);
  }
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
