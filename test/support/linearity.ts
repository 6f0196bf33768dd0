/** The history of a sale as steps for the linearizability checker: what Postgres holds in the end resolves unknown outcomes. */
import type pg from 'pg';
import { linearize, type Step } from '../../lab/audit/linearizable.ts';
import type { Ledger, Operation } from './ledger.ts';

interface Order {
  readonly id: string;
  readonly user: string;
  readonly status: string;
}

const ORDERS = 'SELECT id, user_id AS user, status FROM orders WHERE sale_id = $1';
const LATER = Number.POSITIVE_INFINITY;

/** Which answers one order of the operations explains; `undecided`: the search was given up. */
export interface Linearity {
  readonly explains: 'all' | 'all but sold-out' | 'not all' | 'undecided';
  /** The first that cannot be explained. */
  readonly step?: Step;
}

/**
 * Of sales without expired orders.
 * @param stock when the sale was opened
 */
export async function linearityOf(
  sql: pg.Pool,
  saleId: number,
  stock: number,
  { operations }: Ledger,
): Promise<Linearity> {
  const { rows } = await sql.query<Order>(ORDERS, [saleId]);
  const steps = [...operations.flatMap((one) => stepOf(one, rows)), ...lateOrders(operations, rows)];
  const strict = linearize(stock, steps);
  if (strict.verdict === 'linearizable') return { explains: 'all' };
  if (strict.verdict === 'undecided') return { explains: 'undecided' };
  const { verdict } = linearize(
    stock,
    steps.filter(({ kind }) => kind !== 'sold-out'),
  );
  const explains =
    verdict === 'linearizable' ? 'all but sold-out' : verdict === 'undecided' ? verdict : 'not all';
  return { explains, step: strict.step };
}

/** What an operation did, if its answer or Postgres says so. */
function stepOf(operation: Operation, orders: readonly Order[]): Step[] {
  const {
    action,
    userId: user,
    invokedMs: invoked,
    completedMs: completed,
    status,
    problem,
    units,
  } = operation;
  const orderId = operation.orderId ?? '';
  const isUnknown = status === null || problem === 'unknown-outcome';
  const times = isUnknown ? { invoked, completed: LATER, optional: true } : { invoked, completed };
  const isDone = isUnknown || (status ?? 500) < 300;
  if (action === 'restock') return isDone ? [{ ...times, kind: 'restock', units: units! }] : [];
  if (action === 'cancel') {
    const isCancelled = orders.some(
      ({ id, status: now }) => id === orderId && now !== 'pending' && now !== 'paid',
    );
    return isDone && isCancelled ? [{ ...times, kind: 'return', order: orderId }] : [];
  }
  if (action === 'pay') {
    const isPaid = orders.some(({ id, status: now }) => id === orderId && now === 'paid');
    return isDone && isPaid ? [{ ...times, kind: 'pay', order: orderId }] : [];
  }
  if (action !== 'purchase' || isUnknown) return [];
  if (problem === 'sold-out') return [{ ...times, kind: 'sold-out', user, reserved: 0 }];
  if (status === 200) return [{ ...times, kind: 'holds', user, order: orderId }];
  return isDone ? [{ ...times, kind: 'take', user, order: orderId }] : [];
}

/** Orders that no answer placed: of attempts whose outcome was unknown, at any time after the first of them. */
function lateOrders(operations: readonly Operation[], orders: readonly Order[]): Step[] {
  const purchases = operations.filter(({ action }) => action === 'purchase');
  const placed = new Set(
    purchases.filter(({ status }) => status === 201 || status === 202).map(({ orderId }) => orderId),
  );
  return orders
    .filter(({ id }) => !placed.has(id))
    .map(({ id, user }) => {
      const mayHave = purchases.filter(
        (one) =>
          one.userId === user &&
          (one.status === null || (one.problem === 'unknown-outcome' && (one.orderId ?? id) === id)),
      );
      const invoked = Math.min(...mayHave.map(({ invokedMs }) => invokedMs));
      return { kind: 'take', user, order: id, invoked, completed: LATER };
    });
}
