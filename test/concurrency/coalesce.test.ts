import { setImmediate as polled } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { coalesce } from '../../src/concurrency/coalesce.ts';

it('shares the next run, not the one in progress, which may fail or be older than the call; other keys do not wait', async () => {
  const runs: { readonly key: string; end(): void; fail(): void }[] = [];
  const work = (key: string) =>
    new Promise<number>((resolve, reject) => {
      const number = runs.length;
      runs.push({ key, end: () => resolve(number), fail: () => reject(new Error(`run ${number}`)) });
    });
  const shared = coalesce(work);
  const first = shared('a');
  const later = [shared('a'), shared('a'), shared('a')];
  const other = shared('b');
  expect(runs.map(({ key }) => key)).toEqual(['a', 'b']);
  runs[0]!.fail();
  runs[1]!.end();
  await expect(first).rejects.toThrow('run 0');
  expect(await other).toBe(1);
  await Promise.resolve();
  expect(runs).toHaveLength(3);
  runs[2]!.end();
  expect(await Promise.all(later)).toEqual([2, 2, 2]);
});

it('pauses between two runs, and calls during the pause share the next one', async () => {
  let runs = 0;
  const work = async () => ++runs;
  const shared = coalesce(work, 1);
  await shared('a');
  expect(await Promise.all(Array.from({ length: 100 }, () => shared('a')))).toEqual(Array(100).fill(2));

  const rare = coalesce(work, 3_600_000);
  await rare('a');
  void rare('a');
  for (let turn = 0; turn < 5; turn++) await polled();
  expect(runs).toBe(3);
});
