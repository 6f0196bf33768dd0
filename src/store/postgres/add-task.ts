/** Tasks as they are written: in the transaction of the change that causes them. What becomes of them: src/tasks. */
import type pg from 'pg';

/** What must happen outside of Stampede. */
export type TaskKind = 'ship' | 'award' | 'refund';

/** Adds a task; there is one of each kind for an order, however often it is added. */
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
