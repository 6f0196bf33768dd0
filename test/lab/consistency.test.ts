/** The consistency verdict on good and on spoiled histories. */
import { expect, it } from 'vitest';
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
const read = (free: number, invokedUs: number, completedUs: number) => ({ free, invokedUs, completedUs });

/** One unit: the first customer buys it, the second is refused. */
const bought = attempt(1, 'accepted', 0, 10);
const refused = attempt(2, 'sold-out', 20, 30);
/** Its reservation is released after the refusal. */
const busy = attempt(3, 'busy', 0, 40);

const unknown = attempt(1, 'unknown', 0, null);
const early = attempt(2, 'sold-out', -20, -10);
const ahead = attempt(1, 'accepted', 0, 10, 202);
const committed = attempt(1, 'accepted', 0, 10, 201);
const second = attempt(2, 'accepted', 20, 30);

it.each<[string, string, HistoryRecord[], SaleRead[], PlacedOrder[]]>([
  ['linearizable', 'a sale', [bought, refused], [read(1, -2, -1), read(0, 12, 13)], [order(1)]],
  ['linearizable', 'an answer that was lost', [unknown, refused], [], [order(1)]],
  ['linearizable', 'an unknown outcome without effect', [unknown], [read(1, 50, 60)], []],
  ['weakly consistent', 'a refusal for a reservation that was released', [busy, refused], [], []],
  ['weakly consistent', 'a read before a 202 is committed', [ahead], [read(1, 12, 13)], [order(1)]],
  ['inconsistent', 'a refusal while the unit was free', [refused], [], []],
  ['inconsistent', 'a refusal before the sale began', [early, bought], [], [order(1)]],
  ['inconsistent', 'a read that misses a 201', [committed], [read(1, 12, 13)], [order(1)]],
  ['inconsistent', 'a read that counts an order too early', [bought], [read(0, -2, -1)], [order(1)]],
  ['inconsistent', 'two sales of one unit', [bought, second], [], [order(1), order(2)]],
])('a history of one unit is %s: %s', (expected, _, history, reads, orders) => {
  expect(consistencyOf(1, history, reads, orders).verdict).toBe(expected);
});

it('names the step that cannot be explained', () => {
  expect(consistencyOf(1, [refused], [], [])).toMatchObject({ step: { kind: 'sold-out', user: 'u2' } });
});
