/**
 * The rows of stock_units, one per unit for sale; `order_id` is the order that has it, with others if it has several units. They show where a free unit is; `sales`
 * says how many are free. A transaction that takes or releases a unit changes its row and `sales.sold`, so no snapshot shows a
 * difference that is only in progress:
 *
 *   fewer free rows than stock − sold   the sale was created or restocked, or an order was closed, without rows. Rows are added when the
 *                                       sale is loaded, and when an attempt finds none while a unit is free
 *   more                                units were sold or cut without rows. Harmless: `sales` limits what is sold.
 *                                       They are removed by the next alignment
 *
 * Rows are added and removed by one transaction at a time, under an advisory lock.
 */
import type pg from 'pg';
import { limits } from '../../config/limits.ts';
import { inTransaction, onAllRows, type PostgresStore } from './pool.ts';
import { lockNumber } from './purchases.ts';

export interface StockUnits {
  /** Whether fewer rows are free, locked or not, than an order wants and the sale has. */
  lacking(saleId: number, quantity: number): Promise<boolean>;
  /** Aligns the free rows with the sale; locked rows are left alone. */
  complete(saleId: number): Promise<void>;
  /**
   * Aligns the free rows with those that the sale will have after a restock, in whose transaction it is called first: an attempt locks
   * a unit's row, and then the sale's. @returns false when the stock would be below what is sold, or too large
   */
  prepare(client: pg.PoolClient, saleId: number, units: number): Promise<boolean>;
}

/**
 * Rows added at once, which takes seconds: each enters two indexes and has its foreign key checked. A sale with more units gets the next rows
 * when these are taken.
 */
const MAX_ROWS = 1_000_000;

/** Removes rows from the end; attempts search from the beginning. */
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

export function stockUnits({ pool }: PostgresStore, maxRows = MAX_ROWS): StockUnits {
  /** Aligns the free rows with the free units that the sale will have after `units` are added. */
  async function align(client: pg.PoolClient, saleId: number, units: number): Promise<void> {
    await onAllRows(client, REMOVE, [saleId, units]);
    await onAllRows(client, ADD, [saleId, units, maxRows]);
  }

  return {
    async lacking(saleId, quantity) {
      const { rows } = await pool.query<{ lacking: boolean }>({
        name: 'units-lacking',
        text: `SELECT least($2, stock - sold) > (
                 SELECT count(*) FROM (SELECT FROM stock_units WHERE sale_id = $1 AND order_id IS NULL LIMIT $2) AS free
               ) AS lacking FROM sales WHERE id = $1`,
        values: [saleId, quantity],
      });
      return rows[0]?.lacking ?? false;
    },
    complete: (saleId) =>
      inTransaction(pool, async (client) => {
        await lockNumber(client, 'units', saleId);
        await align(client, saleId, 0);
        return { commit: true, value: undefined };
      }),
    async prepare(client, saleId, units) {
      const possible = await client.query(
        `SELECT FROM sales WHERE id = $1 AND stock::bigint + $2 BETWEEN sold AND ${limits.maxUnits}`,
        [saleId, units],
      );
      if (possible.rowCount !== 1) return false;
      await lockNumber(client, 'units', saleId);
      await align(client, saleId, units);
      return true;
    },
  };
}
