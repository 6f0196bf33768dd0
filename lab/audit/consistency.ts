/** Judges how consistent the answers of a sale were: makes steps for the linearizability checker of its history. Pure. */

import type { HistoryRecord } from '../history.ts';
import { groupBy } from '../kit/group-by.ts';
import type { OrderRow } from './check.ts';
import { linearize, type Step } from './linearizable.ts';

/** An answer that said how many units Postgres counts as free; times as in the history. */
export interface SaleRead {
  readonly invokedUs: number;
  readonly completedUs: number;
  readonly free: number;
}

/** An order that Postgres has after the load. */
export type PlacedOrder = Pick<OrderRow, 'id' | 'userId'> & Partial<Pick<OrderRow, 'status' | 'quantity'>>;

/**
 * - linearizable: one sequence of the requests, each between its start and its answer, explains every answer.
 * - weakly consistent: the same, if a refusal may count units that a failed attempt had reserved, and
 *   a read may miss orders that were answered with 202.
 * - inconsistent: neither. `step` is the first that cannot be explained.
 * - undecided: the search was given up.
 */
export type Consistency =
  | { readonly verdict: 'linearizable' | 'weakly consistent' | 'undecided' }
  | { readonly verdict: 'inconsistent'; readonly step: Step };

/** How long a reservation without an order may hold a unit: twice what the reaper promises. */
const RESERVED_US = 20_000_000;
const LATER = Number.POSITIVE_INFINITY;

/** @param history of purchases; no order was cancelled, and none expired */
export function consistencyOf(
  stock: number,
  history: readonly HistoryRecord[],
  reads: readonly SaleRead[],
  orders: readonly PlacedOrder[],
): Consistency {
  const steps = (isWeak: boolean): Step[] => [
    ...history.flatMap((one) => stepOf(one, history, orders, isWeak)),
    ...lateOrders(history, orders),
    ...reads.map((read) => readStep(read, history, isWeak)),
  ];
  const strict = linearize(stock, steps(false));
  if (strict.verdict === 'linearizable') return { verdict: 'linearizable' };
  const weak = linearize(stock, steps(true));
  if (weak.verdict === 'not-linearizable') return { verdict: 'inconsistent', step: weak.step };
  if (strict.verdict === 'undecided' || weak.verdict === 'undecided') return { verdict: 'undecided' };
  return { verdict: 'weakly consistent' };
}

/** Which answers one sequence of the requests explains; `undecided`: the search was given up. */
export interface Linearity {
  readonly explains: 'all' | 'all but sold-out' | 'not all' | 'undecided';
  /** The first that cannot be explained. */
  readonly step?: Step;
}

/** @param history with cancellations, payments and restocks; no order expired */
export function linearityOf(
  stock: number,
  history: readonly HistoryRecord[],
  orders: readonly PlacedOrder[],
): Linearity {
  const steps = [
    ...history.flatMap((one) => stepOf(one, history, orders, false)),
    ...lateOrders(history, orders),
  ];
  const strict = linearize(stock, steps);
  if (strict.verdict === 'linearizable') return { explains: 'all' };
  if (strict.verdict === 'undecided') return { explains: 'undecided' };
  const others = linearize(
    stock,
    steps.filter(({ kind }) => kind !== 'sold-out' && kind !== 'not-enough-units'),
  );
  const explains = {
    linearizable: 'all but sold-out',
    'not-linearizable': 'not all',
    undecided: 'undecided',
  };
  return { explains: explains[others.verdict] as Linearity['explains'], step: strict.step };
}

const isSuccess = ({ result }: HistoryRecord): boolean => result === 'ok';
const isShortage = ({ outcome }: HistoryRecord): boolean =>
  outcome === 'sold-out' || outcome === 'not-enough-units';
const unitsIn = (purchases: readonly HistoryRecord[]): number =>
  purchases.reduce((sum, { units = 1 }) => sum + units, 0);

/** What a request did, if its answer or Postgres shows it. */
function stepOf(
  one: HistoryRecord,
  history: readonly HistoryRecord[],
  orders: readonly PlacedOrder[],
  isWeak: boolean,
): Step[] {
  const { op, userId: user, invokedUs: invoked, completedUs, outcome, result, orderId, units = 1 } = one;
  const times = { invoked, completed: completedUs ?? LATER };
  if (op !== 'purchase') {
    if (result === 'fail' || op === 'expire') return [];
    const when = result === 'ok' ? times : { invoked, completed: LATER, optional: true };
    if (op === 'restock') return [{ ...when, kind: 'restock', units }];
    const status = orders.find(({ id }) => id === orderId)?.status;
    const isActive = status === 'pending' || status === 'paid';
    if (op === 'cancel') {
      return status === undefined || isActive ? [] : [{ ...when, kind: 'return', order: orderId! }];
    }
    return status === 'paid' ? [{ ...when, kind: 'pay', order: orderId! }] : [];
  }
  if (outcome === 'accepted') return [{ ...times, kind: 'take', user, order: orderId!, units }];
  if (outcome === 'replayed') return [{ ...times, kind: 'holds', user, order: orderId! }];
  if (!isShortage(one)) return [];
  const mayHold = (other: HistoryRecord): boolean =>
    !isSuccess(other) &&
    !isShortage(other) &&
    other.invokedUs < times.completed &&
    (other.completedUs ?? other.invokedUs) + RESERVED_US > invoked;
  const reserved = isWeak ? unitsIn(history.filter(mayHold)) : 0;
  if (outcome === 'sold-out') return [{ ...times, kind: 'sold-out', user, reserved }];
  return [{ ...times, kind: 'not-enough-units', user, remaining: one.remaining!, reserved }];
}

function readStep(
  { invokedUs: invoked, completedUs: completed, free }: SaleRead,
  history: readonly HistoryRecord[],
  isWeak: boolean,
): Step {
  const isUncommitted = (other: HistoryRecord): boolean =>
    other.status === 202 && other.completedUs! < completed && other.completedUs! + RESERVED_US > invoked;
  return {
    invoked,
    completed,
    kind: 'read',
    free,
    pending: isWeak ? unitsIn(history.filter(isUncommitted)) : 0,
  };
}

/** Orders in no answer: each was placed at any time after the first attempt of unknown outcome that may have placed it. */
function lateOrders(history: readonly HistoryRecord[], orders: readonly PlacedOrder[]): Step[] {
  const purchases = history.filter(({ op }) => op === 'purchase');
  const named = new Set(
    purchases.filter(({ outcome }) => outcome === 'accepted').map(({ orderId }) => orderId),
  );
  const unknown = groupBy(
    purchases.filter(({ result }) => result === 'info'),
    ({ userId }) => userId,
  );
  return orders
    .filter(({ id }) => !named.has(id))
    .map(({ id, userId, quantity = 1 }) => {
      const mayHave = (unknown.get(userId) ?? []).filter(({ orderId }) => (orderId ?? id) === id);
      const invoked = mayHave.length === 0 ? 0 : Math.min(...mayHave.map(({ invokedUs }) => invokedUs));
      return { kind: 'take', user: userId, order: id, units: quantity, invoked, completed: LATER };
    });
}
