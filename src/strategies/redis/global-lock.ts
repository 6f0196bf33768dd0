/**
 * `global-lock`: one distributed lock around the whole check-and-deduct of a sale. Simple, but one attempt at a time: lock,
 * read the sale and the buyer, (read the clock,) deduct and record, unlock.
 */
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { type StepInRedis, shortage } from '../../domain/outcome.ts';
import { type Lease, using } from '../../locks/lock.ts';
import type { SaleInEpoch } from '../../store/redis/sale-records.ts';
import {
  deductUnderLease,
  LEASE_LOST,
  type RedisStrategy,
  readSaleInRedis,
  redisStrategy,
  resultOfHeld,
} from '../kit/redis-strategy.ts';
import { ALL_GUARANTEES, type RedisStrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'global-lock',
  summary: 'One distributed lock around the whole check-and-deduct.',
  store: 'redis',
  usesLock: true,
  roundTrips: 4,
  guarantees: ALL_GUARANTEES,
};

export function create(context: RedisStrategyContext): RedisStrategy {
  async function decide(attempt: Attempt, place: SaleInEpoch, lease: Lease): Promise<StepInRedis> {
    const sale = await readSaleInRedis(context, place, attempt, 'remaining', lease);
    if ('kind' in sale) return sale;
    if (sale.held !== null) return resultOfHeld(attempt, sale.held);
    if (sale.rejection !== null) return sale.rejection;
    const short = shortage(sale.units, attempt.quantity);
    if (short !== null) return short;
    if (lease.signal.aborted) return LEASE_LOST;
    const taken = await deductUnderLease(context, place, attempt, [
      { counter: 'remaining', units: attempt.quantity, lease },
    ]);
    return taken.kind === 'empty' ? decide(attempt, place, lease) : taken; // a late payment or a stock cut was faster
  }

  return redisStrategy(context, description, 0, async (attempt, place) => {
    const options = { ttlMs: Math.min(context.lockTtlMs, limits.attemptLeaseMs), waitMs: context.lockWaitMs };
    const result = await using(context.lock, `sale:${attempt.saleId}`, options, (lease) =>
      decide(attempt, place, lease),
    );
    return result.kind === 'done' ? result.value : { kind: 'busy', reason: `lock-${result.kind}` };
  });
}
