/**
 * The rows of stock_units, one for each unit that is on offer; `order_id` is who has it. They say where a free unit is;
 * how many are free is said by `sales`. Whoever takes or frees a unit changes its row and `sales.sold` in one
 * transaction, so that in every snapshot the two differ by what really differs, whatever is under way:
 *
 *   fewer free rows than stock − sold   the sale was made, restocked, or had orders, without rows. Rows are added when
 *                                       the sale is opened, and when an attempt finds none while a unit is free
 *   more                                the sale was sold or cut without rows. Harmless: `sales` counts no more than
 *                                       the stock. They go the next time that rows are brought in line
 *
 * Rows are added and removed by one transaction at a time, under an advisory lock.
 */
import type pg from 'pg';
import { limits } from '../../config/limits.ts';
import { inTransaction, type PostgresStore } from './pool.ts';
import { lockNumber } from './purchases.ts';

export interface StockUnits {
  /** Whether a unit is free while there is no free row, not even one that somebody has locked. */
  lacking(saleId: number): Promise<boolean>;
  /** Brings the free rows in line with the sale; those that are locked are left alone. */
  complete(saleId: number): Promise<void>;
  /** Changes stock and rows together. @returns false when the stock would be below what is sold, or too large */
  restock(saleId: number, units: number): Promise<boolean>;
}

/** Rows that are added at once; a sale with more units gets the next ones when these are taken. */
const MOST_ROWS = 1_000_000;
/** For so many, which take some seconds: each goes into two indexes and has its foreign key checked. */
const ROWS_MS = 60_000;

/** Removed from the end; attempts look from the beginning. */
const REMOVE = `
  WITH excess AS (
    SELECT unit FROM stock_units WHERE sale_id = $1 AND order_id IS NULL ORDER BY unit DESC
    LIMIT (SELECT greatest(0, count(*) - (SELECT greatest(0, stock + $2 - sold - oversold) FROM sales WHERE id = $1))
           FROM stock_units WHERE sale_id = $1 AND order_id IS NULL)
    FOR UPDATE SKIP LOCKED
  )
  DELETE FROM stock_units USING excess WHERE sale_id = $1 AND stock_units.unit = excess.unit`;
const ADD = `
  INSERT INTO stock_units (sale_id, unit)
  SELECT $1, last + n FROM (
    SELECT coalesce((SELECT max(unit) FROM stock_units WHERE sale_id = $1), 0) AS last,
      stock + $2 - sold - oversold - (SELECT count(*)::int FROM stock_units WHERE sale_id = $1 AND order_id IS NULL) AS lacking
    FROM sales WHERE id = $1
  ) AS s, generate_series(1, least(lacking, $3)) AS n`;
const WITHIN_BOUNDS = `id = $1 AND stock::bigint + $2 BETWEEN sold AND ${limits.maxUnits}`;

export function stockUnits({ pool }: PostgresStore, mostRows = MOST_ROWS): StockUnits {
  /** Makes as many free rows as the sale will have free units when its stock has changed by `units`. */
  async function align(client: pg.PoolClient, saleId: number, units: number): Promise<void> {
    await client.query(`SET LOCAL statement_timeout = ${ROWS_MS}`);
    const slow = { query_timeout: ROWS_MS + limits.postgresConnectMs };
    const remove = { ...slow, text: REMOVE, values: [saleId, units] };
    await client.query(remove);
    const add = { ...slow, text: ADD, values: [saleId, units, mostRows] };
    await client.query(add);
  }

  return {
    async lacking(saleId) {
      const { rows } = await pool.query<{ lacking: boolean }>({
        name: 'units-lacking',
        text: `SELECT sold < stock AND NOT EXISTS (
                 SELECT FROM stock_units WHERE sale_id = $1 AND order_id IS NULL
               ) AS lacking FROM sales WHERE id = $1`,
        values: [saleId],
      });
      return rows[0]?.lacking ?? false;
    },
    complete: (saleId) =>
      inTransaction(pool, async (client) => {
        await lockNumber(client, 'units', saleId);
        await align(client, saleId, 0);
        return { commit: true, value: undefined };
      }),
    restock: (saleId, units) =>
      inTransaction(pool, async (client) => {
        const possible = await client.query(`SELECT FROM sales WHERE ${WITHIN_BOUNDS}`, [saleId, units]);
        if (possible.rowCount !== 1) return { commit: false, value: false };
        await lockNumber(client, 'units', saleId);
        await align(client, saleId, units);
        // Last, and in the order in which attempts go: a row of a unit, then the row of the sale. Units that were sold
        // beyond the stock come out of the new ones.
        const changed = await client.query(
          `UPDATE sales SET stock = stock + $2, sold = sold + least(oversold, greatest($2, 0)),
             oversold = oversold - least(oversold, greatest($2, 0)), version = version + 1
           WHERE ${WITHIN_BOUNDS}`,
          [saleId, units],
        );
        return { commit: changed.rowCount === 1, value: changed.rowCount === 1 };
      }),
  };
}
