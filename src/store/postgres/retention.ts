/**
 * Deletes rows older than RETENTION_DAYS, by the database's clock, that no guarantee depends on: docs/how-to/operate.md, "Keep the tables small",
 * lists them. No task is added again after it was deleted, because each follows from a change of status, or from a payment, that counts once.
 *
 * Several processes may run this at once. A locked row is skipped; a row is deleted only if it is still old after it was locked. If
 * a foreign key in an operator's table prevents a deletion, the row is retried after a growing pause, and the others are still
 * deleted.
 */

import type { LoopHealth } from '../../concurrency/loop-health.ts';
import { untilNone } from '../../concurrency/periodic.ts';
import { limits } from '../../config/limits.ts';
import { drain } from './drain.ts';
import { type PostgresStore, queryOnce } from './pool.ts';

interface OldRows {
  /** Name of a row in reports. */
  readonly kind: string;
  /** The type of `id`. */
  readonly idType: 'uuid' | 'bigint';
  /** Selects old rows; $1: days. */
  readonly where: string;
  /** The index that finds them has this order. */
  readonly orderBy: string;
  /** A table with rows of these orders. */
  readonly withTable?: string;
}

/** Where a row is in the order of its index. */
interface Row {
  readonly id: string;
  readonly at: string;
}

const BEFORE = `now() - $1 * interval '1 day'`;

const TABLES: Readonly<Record<string, OldRows>> = {
  orders: {
    kind: 'order',
    idType: 'uuid',
    // Kept while the outbox still has a change of the order for Redis.
    where: `status IN ('cancelled', 'expired') AND closed_at < ${BEFORE}
      AND NOT EXISTS (SELECT FROM mirror_outbox WHERE order_id = orders.id)`,
    orderBy: 'closed_at',
    withTable: 'payment_notifications',
  },
  waitlist: {
    kind: 'waiting customer',
    idType: 'bigint',
    where: `joined_at < ${BEFORE}`,
    orderBy: 'joined_at',
  },
  sale_code_uses: {
    kind: 'use of a code',
    idType: 'bigint',
    where: `taken_at < ${BEFORE} AND EXISTS (
      SELECT FROM sales WHERE id = sale_id AND coalesce(starts_at, '-infinity') < ${BEFORE})`,
    orderBy: 'taken_at',
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

/**
 * @param days age of the rows, at least `limits.retention.minDays`
 * @param onDeleted receives how many rows of a table were deleted; first 0 for each table
 */
export function createRetention(
  { pool }: Pick<PostgresStore, 'pool'>,
  days: number,
  onDeleted: (table: string, rows: number) => void,
  health: LoopHealth,
): Retention {
  /** Deletes what it can of at most `limits.retention.batch` rows behind `last`. @returns the last one; null: there was none */
  async function deleteBatch(table: string, old: OldRows, last: Row | null): Promise<Row | null> {
    const { kind, idType, where, orderBy, withTable } = old;
    const { rows } = await pool.query<Row>(
      `SELECT id, ${orderBy}::text AS at FROM ${table} WHERE ${where} AND id <> ALL($2::${idType}[])
         AND ($4::timestamptz IS NULL OR (${orderBy}, id) > ($4, $5::${idType}))
       ORDER BY ${orderBy}, id LIMIT $3`,
      [days, health.backingOff(kind), limits.retention.batch, last?.at ?? null, last?.id ?? null],
    );
    const more =
      withTable && `DELETE FROM ${withTable} USING deleted WHERE order_id = deleted.id RETURNING 1`;
    const remove = async (ids: readonly string[]) => {
      const deleted = await queryOnce<{ id: string; more: number }>(
        pool,
        `WITH old AS MATERIALIZED (
           SELECT id FROM ${table} WHERE id = ANY($2::${idType}[]) AND ${where} FOR UPDATE SKIP LOCKED
         ), deleted AS (
           DELETE FROM ${table} WHERE id IN (SELECT id FROM old) AND ${where} RETURNING id
         ), more AS (${more ?? 'SELECT WHERE false'})
         SELECT id, (SELECT count(*)::int FROM more) AS more FROM deleted`,
        [days, ids],
      );
      onDeleted(table, deleted.rows.length);
      if (withTable !== undefined) onDeleted(withTable, deleted.rows[0]?.more ?? 0);
      return deleted.rows;
    };
    const ids = rows.map(({ id }) => id);
    await drain({ health, kind, maxRejections: limits.retention.batch }, ids, remove);
    return rows.at(-1) ?? null;
  }

  for (const [table, { withTable = table }] of Object.entries(TABLES))
    for (const name of [table, withTable]) onDeleted(name, 0);
  return {
    async deleteOld(isStopped) {
      for (const [table, old] of Object.entries(TABLES)) {
        let last: Row | null = null;
        const batch = async () => {
          last = await deleteBatch(table, old, last);
          return last === null ? 0 : 1;
        };
        await health.step(`delete from ${table}`, () => untilNone(batch, isStopped));
      }
    },
  };
}
