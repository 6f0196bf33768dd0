/**
 * Deletes old rows that no promise depends on any more (RETENTION_DAYS), by the database's clock:
 *
 *   orders                 expired or cancelled, and closed for that long. Active ones, and those with a refund, are kept: their
 *                          status is what makes a payment count once
 *   payment_notifications  received that long ago, unless a refund of theirs is not sent. Without it a repetition finds an order
 *                          that is paid or has its refund, and changes nothing
 *   tasks                  done for that long. Nothing adds them again, because each follows from a change of status that
 *                          happens once
 *
 * A payment for a deleted order is one for an unknown order: nothing is written. Points and the audit log are kept.
 *
 * Several processes may do this at once. A row is deleted only if it is still old once it is locked; a locked row is skipped. A
 * row that Postgres does not let go (a table of the operator's refers to it) backs off, and does not stop the others.
 */
import { untilNone } from '../../concurrency/periodic.ts';
import { limits } from '../../config/limits.ts';
import type { LoopHealth } from '../../metrics/background.ts';
import type { Instruments } from '../../metrics/instruments.ts';
import { isolating, type PostgresStore } from './pool.ts';

interface OldRows {
  /** What a row is called in reports. */
  readonly kind: string;
  /** The type of `id`. */
  readonly idType: 'uuid' | 'text' | 'bigint';
  /** Which rows are old; $1: days. */
  readonly where: string;
  /** The index that finds them has this order. */
  readonly orderBy: string;
}

const BEFORE = `now() - $1 * interval '1 day'`;

const TABLES: Readonly<Record<string, OldRows>> = {
  orders: {
    kind: 'order',
    idType: 'uuid',
    // An order in the outbox is needed until Redis has its change.
    where: `status IN ('cancelled', 'expired') AND closed_at < ${BEFORE}
      AND NOT EXISTS (SELECT FROM mirror_outbox WHERE order_id = orders.id)`,
    orderBy: 'closed_at',
  },
  payment_notifications: {
    kind: 'notification',
    idType: 'text',
    where: `received_at < ${BEFORE} AND NOT EXISTS (
      SELECT FROM tasks WHERE key = 'refund:' || payment_notifications.order_id AND state <> 'done')`,
    orderBy: 'received_at',
  },
  tasks: {
    kind: 'task',
    idType: 'bigint',
    // A task is done after it was due, so the index on (state, run_at) finds these.
    where: `state = 'done' AND run_at < ${BEFORE} AND updated_at < ${BEFORE}`,
    orderBy: 'run_at',
  },
};

export interface Retention {
  /** Deletes from each table until nothing old is left. Never throws: a table that fails is reported. */
  deleteOld(isStopped: () => boolean): Promise<void>;
}

/** @param days age of the rows, at least `limits.retention.minDays` */
export function createRetention(
  { pool }: Pick<PostgresStore, 'pool'>,
  days: number,
  { rowsDeleted }: Pick<Instruments, 'rowsDeleted'>,
  health: LoopHealth,
): Retention {
  /** @returns how many rows of at most `limits.retention.batch` it deleted */
  async function deleteBatch(table: string, { kind, idType, where, orderBy }: OldRows): Promise<number> {
    const { rows } = await pool.query<{ id: string }>(
      `SELECT id FROM ${table} WHERE ${where} AND id <> ALL($2::${idType}[]) ORDER BY ${orderBy} LIMIT $3`,
      [days, health.backingOff(kind), limits.retention.batch],
    );
    const remove = async (ids: readonly string[]) => {
      const deleted = await pool.query<{ id: string }>(
        `WITH old AS MATERIALIZED (
           SELECT id FROM ${table} WHERE id = ANY($2::${idType}[]) AND ${where} FOR UPDATE SKIP LOCKED
         )
         DELETE FROM ${table} WHERE id IN (SELECT id FROM old) AND ${where} RETURNING id`,
        [days, ids],
      );
      rowsDeleted.inc({ table }, deleted.rows.length);
      return deleted.rows;
    };
    const ids = rows.map(({ id }) => id);
    const rejected = (id: string, error: unknown) => health.failed(`${kind} ${id}`, error);
    const { results } = await isolating(ids, remove, rejected, limits.retention.batch);
    for (const { id } of results) health.succeeded(`${kind} ${id}`);
    return results.length;
  }

  for (const table of Object.keys(TABLES)) rowsDeleted.inc({ table }, 0);
  return {
    async deleteOld(isStopped) {
      for (const [table, old] of Object.entries(TABLES)) {
        const batch = () => deleteBatch(table, old);
        await untilNone(async () => (await health.step(`delete from ${table}`, batch)) ?? 0, isStopped);
      }
    },
  };
}
