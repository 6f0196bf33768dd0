/**
 * `lua`: one atomic script decides (lua/reserve.lua): time window, stock, one per customer, deduction, and the
 * record of the order, in one round trip.
 */
import type { StrategyDescription } from '../domain/guarantees.ts';
import { CLOSED, type Decision, redisStrategy } from './redis-base.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from './strategy.ts';

export const description: StrategyDescription = {
  name: 'lua',
  summary: 'One atomic script: time window, stock, one per customer, deduct, record the order.',
  store: 'redis',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

export function create(context: StrategyContext): Strategy {
  return redisStrategy(context, description, 0, async (attempt, place): Promise<Decision> => {
    const reply = await context.redis.scripts.reserve(
      place.keys,
      attempt.userId,
      attempt.orderId,
      place.epoch,
    );
    switch (reply[0]) {
      case 'reserved':
      case 'held':
        return {
          kind: reply[0],
          reservation: { ...attempt, orderId: reply[1], entryId: reply[2] },
        };
      case 'closed':
        return CLOSED;
      case 'sold-out':
        return { kind: 'sold-out' };
      default:
        return { kind: 'not-open', reason: reply[0] };
    }
  });
}
