/** The checks of answers, on the requests of one customer and the state of an order. */
import { expect, it } from 'vitest';
import { checkNames, findingsOf } from '../../lab/audit/audit.ts';
import type { OrderRow } from '../../lab/audit/check.ts';
import type { HistoryRecord } from '../../lab/history.ts';

const saleId = 1;
const purchase: HistoryRecord = {
  ...{ id: 0, op: 'purchase', saleId, userId: 'c', invokedUs: 100_000, completedUs: 200_000 },
  ...{ result: 'ok', outcome: 'accepted', orderId: 'x', status: 201 },
};
const order: OrderRow = { id: 'x', saleId, userId: 'c', status: 'pending', quantity: 1, earns: 1 };
const later = { invokedUs: 300_000, completedUs: 310_000 };
const repeat = { ...purchase, outcome: 'replayed', status: 200 } as const;
const soldOut = { ...purchase, result: 'fail', outcome: 'sold-out', status: 409, orderId: null } as const;
const unknown = { ...purchase, result: 'info', outcome: 'unknown', status: 503 } as const;
const silent = { ...unknown, status: null, completedUs: null, orderId: null };
/** What another customer asked. */
const of = (userId: string) => ({ ...silent, userId });
const done = { ...purchase, ...later, outcome: 'done', status: 200 } as const;
const cancel = { ...done, op: 'cancel' } as const;
const pay = { ...done, op: 'pay', paymentId: 'n', orderStatus: 'paid' } as const;

/** Findings of the checks of lost, phantom and duplicate orders and of answers. */
function findings(
  history: HistoryRecord[],
  orders: OrderRow[],
  payments = [{ id: 'n', orderId: 'x', result: 'paid' }],
) {
  const sale = { id: saleId, stock: 1, sold: 0 };
  const postgres = { sale, orders, points: [], payments, tasks: [], unpublished: 0, heldUnits: 0 };
  const redis = { remaining: null, held: null, unsettled: 0, settling: false };
  const names = checkNames.filter((name) =>
    ['lost', 'phantom', 'duplicates', 'answersMismatch'].includes(name),
  );
  return findingsOf(names, history, { postgres, redis });
}

const refusedLater = { ...soldOut, invokedUs: 9_000_000, completedUs: 9_100_000 };
const again = { invokedUs: 9_200_000, completedUs: 9_300_000 };
const cancelled = { ...order, status: 'cancelled' };

it.each<[string, HistoryRecord[], OrderRow[]]>([
  ['an order behind a 409', [soldOut], [order]],
  ['a repeat that names an order which no attempt placed', [soldOut, repeat], [order]],
  ['an order that was placed twice', [purchase, purchase], [order]],
  ['a 409 to the owner of an order', [purchase, { ...soldOut, ...later }], [order]],
  ['a cancellation that was undone', [purchase, cancel], [order]],
  ['a payment that did nothing', [purchase, pay], [order]],
  ['an order of another customer', [purchase, of('d')], [{ ...order, userId: 'd' }]],
  [
    'an order that was transferred from another',
    [purchase, of('e')],
    [{ ...order, userId: 'd', transferredFrom: 'e' }],
  ],
  ['an order after a repeat that settled it', [unknown, refusedLater], [order]],
])('finds %s', (_, history, orders) => {
  expect(findings(history, orders)).toHaveLength(1);
});

it.each<[string, HistoryRecord[], OrderRow[]]>([
  ['an order that was answered', [purchase, repeat], [order]],
  ['an unknown outcome that took effect', [unknown], [order]],
  ['an unknown outcome that did not', [unknown, soldOut], []],
  ['no answer at all', [silent], [order]],
  ['a payment', [purchase, pay], [{ ...order, status: 'paid' }]],
  [
    'an order that was transferred',
    [purchase, pay],
    [{ ...order, userId: 'd', transferredFrom: 'c', status: 'paid' }],
  ],
  ['a transferred order to its customer', [soldOut, repeat, of('d')], [{ ...order, transferredFrom: 'd' }]],
  [
    'another order after a transfer',
    [purchase, { ...purchase, ...later, orderId: 'y' }],
    [
      { ...order, userId: 'd', transferredFrom: 'c' },
      { ...order, id: 'y' },
    ],
  ],
  ['a 409 after a cancellation', [purchase, cancel, refusedLater], [cancelled]],
  [
    'a 409 after the cancellation of an order that only repeats named',
    [unknown, { ...repeat, ...later }, cancel, refusedLater],
    [cancelled],
  ],
  [
    'a 409 to the second customer of an order that the first one had refunded',
    [
      { ...repeat, userId: 'd' },
      cancel,
      { ...refusedLater, userId: 'd' },
      { ...cancel, ...again, userId: 'd' },
    ],
    [{ ...cancelled, userId: 'd', transferredFrom: 'c' }],
  ],
  [
    'an order of a request that was answered with the next one, after a cancellation',
    [
      { ...repeat, orderId: 'x' },
      { ...repeat, completedUs: 9_400_000, orderId: 'y' },
      cancel,
      { ...purchase, ...again, orderId: 'y' },
    ],
    [cancelled, { ...order, id: 'y' }],
  ],
  [
    'another order after a cancellation',
    [purchase, cancel, { ...purchase, ...later, orderId: 'y' }],
    [cancelled, { ...order, id: 'y' }],
  ],
])('has nothing against %s', (_, history, orders) => {
  expect(findings(history, orders)).toEqual([]);
});
