/** Inserts tasks, in the transaction of the change that causes them. src/tasks executes them. */
import type pg from 'pg';

/** An effect outside Stampede. */
export type TaskKind = 'ship' | 'award' | 'refund';

/**
 * Adds a task. Idempotent: there is at most one task of each kind for an order and, of refunds, for each further payment.
 * @param payment id of the notification of a further payment
 */
export async function addTask(
  db: Pick<pg.PoolClient, 'query'>,
  kind: TaskKind,
  orderId: string,
  payload: object,
  payment: string | null = null,
): Promise<void> {
  await db.query('INSERT INTO tasks (kind, key, payload) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING', [
    kind,
    payment === null ? `${kind}:${orderId}` : `${kind}:${orderId}:${payment}`,
    payload,
  ]);
}
