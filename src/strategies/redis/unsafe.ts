/**
 * `unsafe`: read, check, write, with nothing in between. The control: unless the harness detects that it oversells, its
 * verdict on the other strategies is worthless.
 *
 * Postgres's CHECK would reject the units that Redis oversold. So this strategy does what code without a CHECK does: it inserts
 * the order, stops `sold` at `stock`, and counts the units beyond it as `oversold`. No other code in Stampede bypasses the
 * CHECK.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { type StepInRedis, shortage } from '../../domain/outcome.ts';
import { isBeyondLimit } from '../../store/failures/postgres.ts';
import { insertOrders, ONE_ORDER, placeOne } from '../../store/postgres/insert-orders.ts';
import { findActive } from '../../store/postgres/purchases.ts';
import type { SaleInEpoch } from '../../store/redis/sale-records.ts';
import { readAnswer } from '../kit/postgres-strategy.ts';
import { readSaleInRedis, redisStrategy } from '../kit/redis-strategy.ts';
import type { RedisStrategyContext, Strategy } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'unsafe',
  summary: 'Read, check, write with nothing in between. The control: it must oversell.',
  store: 'redis',
  usesLock: false,
  roundTrips: 3,
  guarantees: {
    neverOversells: false,
    neverLoses: true,
    onePerCustomer: true,
    neverStrands: false,
    pointsOnce: true,
    survivesRedisLoss: false,
  },
};

const INSERT_UNFENCED = insertOrders({
  name: 'insert-unfenced',
  rows: ONE_ORDER,
  skipExisting: true,
  count: `UPDATE sales SET sold = least(stock, sold + $4::int * before_deadline($6)), oversold = oversold + greatest(0, sold + $4::int - stock),
      version = version + 1
    WHERE id IN (SELECT sale_id FROM placed)`,
});

export function create(context: RedisStrategyContext): Strategy {
  const { redis } = context.redis;

  async function insert(attempt: Attempt): Promise<StepInRedis> {
    const placed = await placeOne(context.postgres, INSERT_UNFENCED, attempt, context.paymentWindowS).catch(
      (error) => {
        if (isBeyondLimit(error)) return null;
        throw error;
      },
    );
    if (placed === null)
      return (
        (await readAnswer(context.postgres.pool, attempt)).answer ?? { kind: 'busy', reason: 'contended' }
      );
    if (placed === false) return (await replay(attempt)) ?? { kind: 'busy', reason: 'order-in-progress' };
    if (placed !== true) return { ...placed, lateUntilMs: 0 }; // by another clock than Redis's; the insert is idempotent
    const { orderId, saleId, userId, quantity } = attempt;
    const order = { orderId, saleId, userId, status: 'pending', quantity } as const;
    return { kind: 'accepted', order, durable: true };
  }

  async function replay(attempt: Attempt): Promise<StepInRedis | null> {
    const order = await findActive(context.postgres.pool, attempt);
    if (order === null) return null;
    const { saleId, userId } = attempt;
    const { id: orderId, status, quantity } = order;
    return { kind: 'replayed', order: { orderId, saleId, userId, status, quantity }, durable: true };
  }

  async function decide(attempt: Attempt, place: SaleInEpoch): Promise<StepInRedis> {
    const sale = await readSaleInRedis(context, place, attempt, 'remaining', null);
    if ('kind' in sale) return sale;
    // This control is not notified of a cancellation: the customer may have no order any more.
    const earlier = sale.held === null ? null : await replay(attempt);
    if (earlier !== null) return earlier;
    if (sale.rejection !== null) return sale.rejection;
    const short = shortage(sale.units, attempt.quantity);
    if (short !== null) return short;
    const { keys } = place;
    await redis.hset(keys.state, 'remaining', sale.units - attempt.quantity);
    await redis.hset(keys.buyers, attempt.userId, `${attempt.orderId} 0`);
    return insert(attempt);
  }

  // It commits by itself, without a reservation.
  return { ...redisStrategy(context, description, 0, decide), mirror: null };
}
