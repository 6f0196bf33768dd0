/** How consistent the answers of a sale were: its history as steps for the linearizability checker. Pure. */
import type { HistoryRecord } from '../history.ts';
import { linearize, type Step } from './linearizable.ts';

/** An answer that said how many units Postgres counts as free; times as in the history. */
export interface SaleRead {
  readonly invokedUs: number;
  readonly completedUs: number;
  readonly free: number;
}

/** An order that Postgres has after the load. */
export interface PlacedOrder {
  readonly id: string;
  readonly user: string;
}

/**
 * - linearizable: one order of the requests, each between its begin and its answer, explains every answer.
 * - weakly consistent: the same, if "sold out" may count units as taken that an attempt without success had reserved, and
 *   a read may lack orders that were answered with 202.
 * - inconsistent: neither. `step` is the first that cannot be explained.
 * - undecided: the search was given up.
 */
export type Consistency =
  | { readonly verdict: 'linearizable' | 'weakly consistent' | 'undecided' }
  | { readonly verdict: 'inconsistent'; readonly step: Step };

/** For so long a reservation without an order may hold a unit: the reaper's promise, with as much again. */
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
    ...history.flatMap((one) => stepOf(one, history, isWeak)),
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

const isSuccess = ({ result }: HistoryRecord): boolean => result === 'ok';

function stepOf(one: HistoryRecord, history: readonly HistoryRecord[], isWeak: boolean): Step[] {
  const { userId: user, invokedUs: invoked, completedUs, outcome, orderId } = one;
  const times = { invoked, completed: completedUs ?? LATER };
  if (outcome === 'accepted') return [{ ...times, kind: 'take', user, order: orderId! }];
  if (outcome === 'replayed') return [{ ...times, kind: 'holds', user, order: orderId! }];
  if (outcome !== 'sold-out') return [];
  const mayHold = (other: HistoryRecord): boolean =>
    !isSuccess(other) &&
    other.outcome !== 'sold-out' &&
    other.invokedUs < times.completed &&
    (other.completedUs ?? other.invokedUs) + RESERVED_US > invoked;
  return [{ ...times, kind: 'sold-out', user, reserved: isWeak ? history.filter(mayHold).length : 0 }];
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
    pending: isWeak ? history.filter(isUncommitted).length : 0,
  };
}

/** Orders that no answer named as placed: of attempts whose outcome was unknown, at any time after the first of them. */
function lateOrders(history: readonly HistoryRecord[], orders: readonly PlacedOrder[]): Step[] {
  const named = new Set(
    history.filter(({ outcome }) => outcome === 'accepted').map(({ orderId }) => orderId),
  );
  const firstOf = new Map<string, number>();
  for (const { userId, invokedUs, result } of history)
    if (result === 'info') firstOf.set(userId, Math.min(invokedUs, firstOf.get(userId) ?? LATER));
  return orders
    .filter(({ id }) => !named.has(id))
    .map(({ id, user }) => ({
      ...{ kind: 'take', user, order: id },
      ...{ invoked: firstOf.get(user) ?? 0, completed: LATER },
    }));
}
