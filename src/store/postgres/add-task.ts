/** Inserts tasks, in the transaction of the change that causes them. src/tasks executes them. */
import type pg from 'pg';

/** An effect outside Stampede. */
export type TaskKind = 'ship' | 'award' | 'refund';

/** Adds a task. Idempotent: an order has at most one task of each kind. */
export async function addTask(
  db: Pick<pg.PoolClient, 'query'>,
  kind: TaskKind,
  orderId: string,
  payload: object,
): Promise<void> {
  await db.query('INSERT INTO tasks (kind, key, payload) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING', [
    kind,
    `${kind}:${orderId}`,
    payload,
  ]);
}
