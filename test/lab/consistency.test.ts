/** The consistency verdict on good and on spoiled histories. */
import { describe, expect, it } from 'vitest';
import { consistencyOf, type PlacedOrder, type SaleRead } from '../../lab/audit/consistency.ts';
import { type AttemptOutcome, type HistoryRecord, resultOf } from '../../lab/history.ts';

const attempt = (
  id: number,
  outcome: AttemptOutcome,
  invokedUs: number,
  completedUs: number | null,
  status: number | null = null,
): HistoryRecord => {
  const orderId = outcome === 'accepted' || outcome === 'replayed' ? `o${id}` : null;
  const common = { id, op: 'purchase', saleId: 1, userId: `u${id}`, invokedUs, completedUs } as const;
  return { ...common, result: resultOf[outcome], outcome, orderId, status };
};
const order = (id: number): PlacedOrder => ({ id: `o${id}`, userId: `u${id}` });
const read = (free: number, invokedUs: number, completedUs: number): SaleRead => ({
  free,
  invokedUs,
  completedUs,
});
const verdict = (...args: Parameters<typeof consistencyOf>) => consistencyOf(...args).verdict;

/** One unit: the first customer buys it, the second is refused. */
const bought = attempt(1, 'accepted', 0, 10);
const refused = attempt(2, 'sold-out', 20, 30);
/** Its reservation is released after the refusal. */
const busy = attempt(3, 'busy', 0, 40);

describe('a history of one unit', () => {
  it.each<[string, string, HistoryRecord[], SaleRead[], PlacedOrder[]]>([
    [
      'linearizable',
      'a sale and a refusal',
      [bought, refused],
      [read(1, -2, -1), read(0, 12, 13)],
      [order(1)],
    ],
    ['linearizable', 'an answer that was lost', [attempt(1, 'unknown', 0, null), refused], [], [order(1)]],
    [
      'linearizable',
      'an unknown outcome without effect',
      [attempt(1, 'unknown', 0, null)],
      [read(1, 50, 60)],
      [],
    ],
    ['weakly consistent', 'a refusal for a reservation that was released', [busy, refused], [], []],
    [
      'weakly consistent',
      'a read before a 202 is committed',
      [attempt(1, 'accepted', 0, 10, 202)],
      [read(1, 12, 13)],
      [order(1)],
    ],
    ['inconsistent', 'a refusal while the unit was free', [refused], [], []],
    [
      'inconsistent',
      'a refusal before the sale began',
      [attempt(2, 'sold-out', -20, -10), bought],
      [],
      [order(1)],
    ],
    [
      'inconsistent',
      'a read that misses a 201',
      [attempt(1, 'accepted', 0, 10, 201)],
      [read(1, 12, 13)],
      [order(1)],
    ],
    ['inconsistent', 'a read that counts an order too early', [bought], [read(0, -2, -1)], [order(1)]],
    [
      'inconsistent',
      'two sales of one unit',
      [bought, attempt(2, 'accepted', 20, 30)],
      [],
      [order(1), order(2)],
    ],
  ])('is %s: %s', (expected, _, history, reads, orders) => {
    expect(verdict(1, history, reads, orders)).toBe(expected);
  });
});

it('names the step that cannot be explained', () => {
  expect(consistencyOf(1, [refused], [], [])).toMatchObject({ step: { kind: 'sold-out', user: 'u2' } });
});
