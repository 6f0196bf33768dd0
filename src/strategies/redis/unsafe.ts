/**
 * `unsafe`: read, check, write, with nothing in between. The control: it must be *seen* to oversell, or the harness
 * that calls the others correct cannot be believed.
 *
 * Postgres's fence would refuse what Redis oversold, so this strategy does what code without a fence does: it
 * inserts the order, lets `sold` stop at `stock`, and counts the units beyond it as `oversold`. It is the only code in
 * Stampede that goes round the fence.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { EARNED, findActive } from '../../store/postgres/purchases.ts';
import type { Strategy, StrategyContext } from '../strategy.ts';
import { type Decision, readSaleInRedis, redisStrategy, type SalePlace } from './base.ts';

export const description: StrategyDescription = {
  name: 'unsafe',
  summary: 'Read, check, write with nothing in between: the control that must be seen to oversell.',
  store: 'redis',
  usesLock: false,
  roundTrips: 4,
  guarantees: {
    neverOversells: false,
    neverLoses: true,
    onePerCustomer: true,
    neverStrands: false,
    pointsOnce: true,
    survivesRedisLoss: false,
  },
};

const INSERT_UNFENCED = `
  WITH placed AS (
    INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
    SELECT $1::uuid, id, $3::text, 'pending', price_cents, now() + make_interval(secs => $4) FROM sales WHERE id = $2
    ON CONFLICT DO NOTHING
    RETURNING id, sale_id, user_id, price_cents
  ), earned AS (
    INSERT INTO points_entries (user_id, source_type, source_id, points)
    SELECT user_id, 'order', id::text, ${EARNED} FROM placed
  ), counted AS (
    UPDATE sales SET sold = least(stock, sold + 1), oversold = oversold + (sold >= stock)::int, version = version + 1
    WHERE id IN (SELECT sale_id FROM placed)
  )
  SELECT count(*)::int AS placed FROM placed`;

export function create(context: StrategyContext): Strategy {
  const { redis } = context.redis;
  const { pool } = context.postgres;

  async function insert(attempt: Attempt): Promise<Decision> {
    const { rows } = await pool.query<{ placed: number }>({
      name: 'insert-unfenced',
      text: INSERT_UNFENCED,
      values: [attempt.orderId, attempt.saleId, attempt.userId, context.paymentWindowS],
    });
    const { orderId, saleId, userId } = attempt;
    if (rows[0]?.placed === 1)
      return { kind: 'accepted', order: { orderId, saleId, userId, status: 'pending' } };
    return replay(attempt);
  }

  async function replay(attempt: Attempt): Promise<Decision> {
    const order = await findActive(pool, attempt);
    if (order === null) return { kind: 'busy', reason: 'order-under-way' };
    const { saleId, userId } = attempt;
    return { kind: 'replayed', order: { orderId: order.id, saleId, userId, status: order.status } };
  }

  async function decide(attempt: Attempt, place: SalePlace): Promise<Decision> {
    const sale = await readSaleInRedis(context, place, attempt, 'remaining', null);
    if ('kind' in sale) return sale;
    if (sale.held !== null) return replay(attempt);
    if (sale.refusal !== null) return sale.refusal;
    if (sale.units <= 0) return { kind: 'sold-out' };
    const keys = place.keys;
    await redis.hset(keys.state, 'remaining', sale.units - 1);
    await redis.hset(keys.buyers, attempt.userId, `${attempt.orderId} 0`);
    return insert(attempt);
  }

  return { ...redisStrategy(context, description, 0, decide), mirror: null };
}
