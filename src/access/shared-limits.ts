/**
 * Limits for each customer over all processes, for routes that are not a purchase: counted in Redis, and in this process while
 * Redis does not answer.
 */
import { RateLimiterMemory, RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { limits } from '../config/limits.ts';
import type { RedisStore } from '../store/redis/connection.ts';

export type LimitedUse = 'request' | 'ticket';

export interface SharedLimits {
  /** Counts a use. Never throws. @returns null: allowed; otherwise after how many seconds the next one is */
  use(kind: LimitedUse, customer: string): Promise<number | null>;
}

export function sharedLimits({ redis }: RedisStore): SharedLimits {
  const limiter = (kind: LimitedUse, points: number) =>
    new RateLimiterRedis({
      storeClient: redis,
      keyPrefix: `stampede:limit:${kind}`,
      points,
      duration: 60,
      // Customers over the limit cost no round trip.
      inMemoryBlockOnConsumed: points,
      insuranceLimiter: new RateLimiterMemory({ points, duration: 60 }),
    });
  const limiters: Record<LimitedUse, RateLimiterRedis> = {
    request: limiter('request', limits.clients.requestsAMinute),
    ticket: limiter('ticket', limits.clients.ticketsAMinute),
  };
  return {
    async use(kind, customer) {
      try {
        await limiters[kind].consume(customer);
        return null;
      } catch (result) {
        return result instanceof RateLimiterRes ? Math.max(1, Math.ceil(result.msBeforeNext / 1_000)) : null;
      }
    },
  };
}
