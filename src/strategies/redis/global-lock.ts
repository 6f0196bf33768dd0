/**
 * `global-lock`: one distributed lock round the whole check-and-deduct of a sale. Simple, and one attempt at a time:
 * lock, read the sale, read the buyer, (read the clock,) deduct and record, unlock.
 */
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { type Lease, using } from '../../locks/lock.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';
import {
  type Decision,
  fenceOf,
  LEASE_LOST,
  REFUSED,
  readSaleInRedis,
  redisStrategy,
  type SalePlace,
} from './base.ts';

export const description: StrategyDescription = {
  name: 'global-lock',
  summary: 'One distributed lock round the whole check-and-deduct.',
  store: 'redis',
  usesLock: true,
  roundTrips: 5,
  guarantees: ALL_GUARANTEES,
};

export function create(context: StrategyContext): Strategy {
  async function decide(attempt: Attempt, place: SalePlace, lease: Lease): Promise<Decision> {
    const sale = await readSaleInRedis(context, place, attempt, 'remaining', lease);
    if ('kind' in sale) return sale;
    if (sale.held !== null) return sale.held;
    if (sale.refusal !== null) return sale.refusal;
    if (sale.units <= 0) return { kind: 'sold-out' };
    if (lease.signal.aborted) return LEASE_LOST;
    const reply = await context.redis.scripts.fencedDeduct(
      place.keys,
      'remaining',
      attempt.userId,
      attempt.orderId,
      fenceOf(context, lease),
      place.epoch,
    );
    if (reply[0] === 'reserved') {
      return { kind: 'reserved', reservation: { ...attempt, reservedAt: reply[1] } };
    }
    return REFUSED[reply[0]];
  }

  return redisStrategy(context, description, 0, async (attempt, place) => {
    const options = { ttlMs: Math.min(context.lockTtlMs, limits.attemptLeaseMs), waitMs: context.lockWaitMs };
    const result = await using(context.lock, `sale:${attempt.saleId}`, options, (lease) =>
      decide(attempt, place, lease),
    );
    return result.kind === 'done' ? result.value : { kind: 'busy', reason: `lock-${result.kind}` };
  });
}
