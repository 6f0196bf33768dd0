/**
 * Limits for each customer over all processes, for routes that are not a purchase: counted in Redis, and in this process while
 * Redis does not answer. Without Redis each process counts for itself, so a customer can reach the limit in each of them.
 */
import {
  type RateLimiterAbstract,
  RateLimiterMemory,
  RateLimiterRedis,
  RateLimiterRes,
} from 'rate-limiter-flexible';
import { limits } from '../config/limits.ts';
import type { RedisStore } from '../store/redis/connection.ts';

export type LimitedUse = 'request' | 'ticket';

export interface SharedLimits {
  /** Counts a use. Never throws. @returns null: allowed; otherwise after how many seconds the next one is */
  use(kind: LimitedUse, customer: string): Promise<number | null>;
}

/** @param onRefused receives why a use was not allowed, such as `ticket-rate` */
export function sharedLimits(
  store: Pick<RedisStore, 'redis'> | null,
  onRefused: (reason: string) => void,
): SharedLimits {
  function limiter(kind: LimitedUse, points: number): RateLimiterAbstract {
    const inMemory = new RateLimiterMemory({ points, duration: 60 });
    if (store === null) return inMemory;
    return new RateLimiterRedis({
      storeClient: store.redis,
      keyPrefix: `stampede:limit:${kind}`,
      points,
      duration: 60,
      // Customers over the limit cost no round trip.
      inMemoryBlockOnConsumed: points,
      insuranceLimiter: inMemory,
    });
  }
  const limiters: Record<LimitedUse, RateLimiterAbstract> = {
    request: limiter('request', limits.clients.requestsAMinute),
    ticket: limiter('ticket', limits.clients.ticketsAMinute),
  };
  return {
    async use(kind, customer) {
      try {
        await limiters[kind].consume(customer);
        return null;
      } catch (result) {
        if (!(result instanceof RateLimiterRes)) return null;
        onRefused(`${kind}-rate`);
        return Math.max(1, Math.ceil(result.msBeforeNext / 1_000));
      }
    },
  };
}
