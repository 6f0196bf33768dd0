/**
 * `global-lock`: one distributed lock round the whole check-and-deduct of a sale. Simple, and one attempt at a time:
 * lock, read the sale, read the buyer, (read the clock,) deduct and record, unlock.
 */
import type { StrategyDescription } from '../domain/guarantees.ts';
import type { Attempt } from '../domain/order.ts';
import { type Lease, using } from '../locks/lock.ts';
import type { RedisSales } from '../store/redis-sale.ts';
import { CLOSED, type Decision, readSaleInRedis, redisStrategy } from './redis-base.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from './strategy.ts';

export const description: StrategyDescription = {
  name: 'global-lock',
  summary: 'One distributed lock round the whole check-and-deduct.',
  store: 'redis',
  usesLock: true,
  roundTrips: 5,
  guarantees: ALL_GUARANTEES,
};

export function create(context: StrategyContext): Strategy {
  async function decide(attempt: Attempt, sales: RedisSales, lease: Lease): Promise<Decision> {
    const sale = await readSaleInRedis(context, sales, attempt);
    if (sale === null || sale.remaining === null) return CLOSED;
    if (sale.held !== null) return sale.held;
    if (sale.refusal !== null) return sale.refusal;
    if (sale.remaining <= 0) return { kind: 'sold-out' };
    if (lease.signal.aborted) return { kind: 'busy', reason: 'lease-lost' };
    const reply = await context.redis.scripts.deduct(
      sales.keys(attempt.saleId),
      'remaining',
      attempt.userId,
      attempt.orderId,
      { token: lease.fencingToken, lock: context.lock.name },
    );
    if (reply[0] === 'reserved') {
      return { kind: 'reserved', reservation: { ...attempt, entryId: reply[1] } };
    }
    return reply[0] === 'closed' ? CLOSED : { kind: 'busy', reason: 'lease-lost' };
  }

  return redisStrategy(context, description, 0, async (attempt, sales) => {
    const options = { ttlMs: context.lockTtlMs, waitMs: context.lockWaitMs };
    const result = await using(context.lock, `sale:${attempt.saleId}`, options, (lease) =>
      decide(attempt, sales, lease),
    );
    return result.kind === 'done' ? result.value : { kind: 'busy', reason: `lock-${result.kind}` };
  });
}
