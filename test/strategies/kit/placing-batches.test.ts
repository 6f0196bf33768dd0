import { expect, it } from 'vitest';
import { limits } from '../../../src/config/limits.ts';
import { rowTurns } from '../../../src/strategies/kit/placing-batches.ts';

const SALE = 1;
/** Notes statements that waited so long, each after another one of this process (1) or of others. */
function after(...statements: readonly (readonly [versions: number, waitedMs: number])[]) {
  const turns = rowTurns();
  let version = 7;
  turns.note(SALE, { version, waitedMs: 0 });
  for (const [versions, waitedMs] of statements) {
    version += versions;
    turns.note(SALE, { version, waitedMs });
  }
  return { inFlight: turns.inFlight(SALE), holdMs: turns.holdMs(SALE) };
}
const ALONE = { inFlight: limits.commitInFlight, holdMs: 0 };

it('holds nothing back while no other process changes the sale, however long a statement waited', () => {
  expect(after()).toEqual(ALONE);
  expect(after([1, 100], [1, 100])).toEqual(ALONE);
  expect(rowTurns().inFlight(SALE)).toBe(limits.commitInFlight);
});

it('holds back for most of hold and wait, up to the limit, and for less when the row was free', () => {
  expect(after([2, 10])).toEqual({ inFlight: 1, holdMs: 8 });
  expect(after([2, 10], [3, 2]).holdMs).toBeCloseTo(8);
  expect(after([2, 10], [2, 0]).holdMs).toBeCloseTo(6.4);
  expect(after([2, 1_000])).toEqual({ inFlight: 1, holdMs: limits.commitHoldMs });
});

it('stays beside others for a few statements without one of theirs, and is alone then', () => {
  const silent = (count: number) => Array.from({ length: count }, () => [1, 0] as const);
  expect(after([2, 10], ...silent(3)).inFlight).toBe(1);
  expect(after([2, 10], ...silent(3), [2, 10], ...silent(3)).inFlight).toBe(1);
  expect(after([2, 10], ...silent(4))).toEqual(ALONE);
});

it('takes no shared batch of this process for one of another', () => {
  const turns = rowTurns();
  turns.note(SALE, { version: 7, waitedMs: 0 });
  turns.noteShared(SALE);
  turns.note(SALE, { version: 9, waitedMs: 10 });
  expect(turns.holdMs(SALE)).toBe(0);
  turns.note(SALE, { version: 11, waitedMs: 10 });
  expect(turns.holdMs(SALE)).toBeGreaterThan(0);
});
