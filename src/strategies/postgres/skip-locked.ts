/**
 * `skip-locked`: one row for each unit. An attempt takes the first free row that nobody else has locked
 * (`FOR UPDATE SKIP LOCKED`), inserts the order and its points, and counts the unit, in one statement.
 *
 *   take ──a row, counted──▶ sold
 *     │ none ──▶ look ──▶ refused, or a repeat
 *     │            └─a unit is free─┬─ no free row at all ──▶ add the rows that are missing ──▶ once more
 *     │                             └─ all of them locked ──▶ take, waiting for a row ──▶ sold, or once more
 *     └─the CHECK refuses: more rows than units ──▶ sold out
 *
 * Having found no row proves nothing, since who holds it may give it back: "sold out" is said only by who has seen
 * `sold = stock`.
 *
 * Attempts on one sale go side by side until they count, in the row of the sale, which is then held for no more than
 * the commit. Counting in the same transaction is what keeps `sales.sold` exact at every instant, for everybody who
 * reads it, for the fence, and for other strategies. Without it (counting the rows when asked, or later in the
 * background) attempts would never meet, and none of these could be believed; so SKIP LOCKED here buys less than it can
 * where nothing is counted.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { afterWrite } from '../../store/postgres/failures.ts';
import { ACTIVE } from '../../store/postgres/orders.ts';
import { EARN, OPEN, place, readSaleAndOrders } from '../../store/postgres/purchases.ts';
import { stockUnits } from '../../store/postgres/stock-units.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';
import { AGAIN, accepted, classify, type Decision, postgresStrategy } from './base.ts';

export const description: StrategyDescription = {
  name: 'skip-locked',
  summary: 'One row per unit, FOR UPDATE SKIP LOCKED LIMIT 1; the count in the same statement, last.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

/** How long an attempt waits for missing rows. A million take longer; then it is told `busy`. */
const ROWS_WAIT_MS = 1_000;

/**
 * The conditions of `free` name no column of stock_units, so that they are judged once and the index gives the first
 * row. `counted` stands before `earned` because Postgres runs such parts from the last one on: the points are written
 * before the row of the sale is held.
 */
const take = (locked: '' | 'SKIP LOCKED') => `
  WITH free AS (
    SELECT unit FROM stock_units
    WHERE sale_id = $2 AND order_id IS NULL
      AND EXISTS (SELECT FROM sales WHERE id = $2 AND sold < stock AND ${OPEN})
      AND NOT EXISTS (SELECT FROM orders WHERE sale_id = $2 AND user_id = $3 AND ${ACTIVE})
    ORDER BY unit LIMIT 1 FOR UPDATE ${locked}
  ), taken AS (
    UPDATE stock_units SET order_id = $1 FROM free
    WHERE sale_id = $2 AND stock_units.unit = free.unit
    RETURNING 1
  ), placed AS (
    INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
    SELECT $1::uuid, id, $3::text, 'pending', price_cents, now() + make_interval(secs => $4)
    FROM taken CROSS JOIN sales WHERE id = $2
    RETURNING id, user_id, price_cents
  ), counted AS (
    UPDATE sales SET sold = sold + before_deadline($5), version = version + 1 FROM placed WHERE sales.id = $2
  ), earned AS (${EARN})
  SELECT count(*)::int AS placed FROM placed`;
const SKIPPING = { name: 'take-unit', text: take('SKIP LOCKED') };
const WAITING = { name: 'take-unit-waiting', text: take('') };

export function create(context: StrategyContext): Strategy {
  const { pool } = context.postgres;
  const units = stockUnits(context.postgres);
  const completing = new Map<number, Promise<void>>();

  async function sell(how: typeof SKIPPING, { orderId, saleId, userId }: Attempt): Promise<boolean> {
    const values = [orderId, saleId, userId, context.paymentWindowS];
    const { rows } = await place<{ placed: number }>(context.postgres, { ...how, values });
    return rows[0]?.placed === 1;
  }

  /** Attempts that find rows missing at the same time wait for the same work. */
  function complete(saleId: number): Promise<void> {
    let work = completing.get(saleId);
    if (work === undefined) {
      work = units.complete(saleId).finally(() => completing.delete(saleId));
      completing.set(saleId, work);
    }
    return work;
  }

  async function decide(attempt: Attempt): Promise<Decision> {
    const { saleId, userId } = attempt;
    if (await sell(SKIPPING, attempt)) return accepted(attempt);
    const decision = classify(attempt, await readSaleAndOrders(pool, saleId, [userId]));
    if (decision.kind !== 'again') return decision;
    if (await units.lacking(saleId)) {
      const late = sleep(ROWS_WAIT_MS, 'late' as const, { ref: false });
      const end = await Promise.race([complete(saleId), late]);
      return end === 'late' ? { kind: 'busy', reason: 'units-are-being-made' } : AGAIN;
    }
    return (await sell(WAITING, attempt)) ? accepted(attempt) : AGAIN;
  }

  return {
    ...postgresStrategy(context, description, decide),
    async load(sale) {
      // Rows that cannot be made now are made by the first attempt that finds them missing.
      await complete(sale.id).catch((error) =>
        context.onError('create-stock-units', error, { saleId: sale.id }),
      );
    },
    async restock(saleId, by) {
      const done = await units.restock(saleId, by);
      const sale = await afterWrite(context.sales.get(saleId));
      return sale === null || done ? sale : 'below-sold';
    },
  };
}
