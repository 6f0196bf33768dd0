/**
 * `skip-locked`: one row per unit. An attempt takes the first free rows that no other transaction has locked
 * (`FOR UPDATE SKIP LOCKED`), as many as it wants or none, inserts the order and its points, and counts the units, in one statement.
 *
 *   take ──all rows, counted──▶ sold
 *     │ too few ──▶ read the sale ──▶ rejected, or a repeat
 *     │            └─the units are free─┬─ too few free rows exist ──▶ add the missing rows ──▶ retry
 *     │                                 └─ some of them are locked ──▶ take, waiting for rows ──▶ sold, or retry
 *     └─the CHECK fails: more rows than units ──▶ retry
 *
 * Rows are locked in their order, so that two attempts that wait do not deadlock. The rest: docs/explanation/strategies.md, "skip-locked".
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { shared } from '../../concurrency/coalesce.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { accepted } from '../../domain/outcome.ts';
import { once } from '../../store/postgres/idempotency.ts';
import {
  COUNT_UNLESS_PAUSED,
  insertOrders,
  isOpen,
  ONE_ORDER,
  placeOne,
} from '../../store/postgres/insert-orders.ts';
import { ACTIVE } from '../../store/postgres/orders.ts';
import { stockUnits } from '../../store/postgres/stock-units.ts';
import { RETRY, type Tried } from '../kit/placing.ts';
import { postgresStrategy, readAnswer } from '../kit/postgres-strategy.ts';
import { restocked } from '../kit/restock.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'skip-locked',
  summary: 'One row per unit, FOR UPDATE SKIP LOCKED; the count in the same statement, last.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

/** How long an attempt waits for missing rows. A million rows take longer; the answer is then `busy`. */
const ROWS_WAIT_MS = 1_000;

/**
 * The conditions of `free` name no column of stock_units, so they are evaluated once and the index yields the first rows. For one unit
 * the limit is a constant: a limit that is a parameter would be planned anew for each attempt.
 */
const takeUnits = (name: string, locked: '' | 'SKIP LOCKED', quantity: '1' | '$4') =>
  insertOrders({
    name,
    before: `free AS (
      SELECT unit FROM stock_units
      WHERE sale_id = $2 AND order_id IS NULL
        AND EXISTS (SELECT FROM sales WHERE id = $2 AND sold + $4::int <= stock AND $4 <= max_per_order AND ${isOpen('$7::boolean')})
        AND NOT EXISTS (SELECT FROM orders WHERE sale_id = $2 AND user_id = $3 AND ${ACTIVE})
      ORDER BY unit LIMIT ${quantity}::int FOR UPDATE ${locked}
    ), taken AS (
      UPDATE stock_units SET order_id = $1 FROM free
      WHERE sale_id = $2 AND stock_units.unit = free.unit${quantity === '1' ? '' : ' AND (SELECT count(*) FROM free) = $4'}
      RETURNING 1
    )`,
    rows: `${ONE_ORDER} AND EXISTS (SELECT FROM taken)`,
    count: COUNT_UNLESS_PAUSED,
  });
const ONE = {
  skipping: takeUnits('take-unit', 'SKIP LOCKED', '1'),
  waiting: takeUnits('take-unit-waiting', '', '1'),
};
const SEVERAL = {
  skipping: takeUnits('take-units', 'SKIP LOCKED', '$4'),
  waiting: takeUnits('take-units-waiting', '', '$4'),
};

export function create(context: StrategyContext): Strategy {
  const units = stockUnits(context.postgres);
  /** Attempts that find rows missing at the same time wait for the same work. */
  const complete = shared((saleId: number) => units.complete(saleId));

  async function place(attempt: Attempt): Promise<Tried> {
    const { saleId, quantity, isEarly = false } = attempt;
    const take = quantity === 1 ? ONE : SEVERAL;
    const placed = await placeOne(context.postgres, take.skipping, attempt, context.paymentWindowS, [
      isEarly,
    ]);
    if (placed !== false) return placed === true ? accepted(attempt) : placed;
    const { answer } = await readAnswer(context.postgres.pool, attempt);
    if (answer !== null) return answer;
    if (await units.lacking(saleId, quantity)) {
      const late = sleep(ROWS_WAIT_MS, 'late' as const, { ref: false });
      const end = await Promise.race([complete(saleId), late]);
      return end === 'late' ? { kind: 'busy', reason: 'units-are-being-made' } : RETRY;
    }
    const second = await placeOne(context.postgres, take.waiting, attempt, context.paymentWindowS, [isEarly]);
    if (second === false) return RETRY;
    return second === true ? accepted(attempt) : second;
  }

  const strategy = postgresStrategy(context, description, place, 'customer');
  return {
    ...strategy,
    async load(sale) {
      // Rows that cannot be added now are added by the first attempt that finds them missing.
      await complete(sale.id).catch((error) =>
        context.onError('create-stock-units', error, { saleId: sale.id }),
      );
    },
    async restock(saleId, by, key = null) {
      const result = await once(context.postgres, key, async (client) => {
        await units.prepare(client, saleId, by);
        return restocked(await context.sales.restock(saleId, by, false, client));
      });
      strategy.knownSoldOut?.forget(saleId);
      return result;
    },
  };
}
