/**
 * What the strategies that decide in Redis have in common: opening a sale that Redis does not know, settling an
 * answer that was lost, giving units back, restocking.
 *
 *   ask ──'closed'──▶ read the sale in Postgres ──none──▶ unknown-sale
 *    │                        └──▶ open it in Redis ──▶ ask again, a bounded number of times
 *    └──no answer──▶ ask again under the same order id: a unit taken by the lost answer is found, not taken twice
 */
import type { StrategyDescription } from '../domain/guarantees.ts';
import type { Attempt } from '../domain/order.ts';
import type { Refusal, Reservation, ReserveOutcome } from '../domain/outcome.ts';
import { classifyPostgresError } from '../store/postgres.ts';
import { classifyRedisError } from '../store/redis.ts';
import { type RedisSales, redisSales } from '../store/redis-sale.ts';
import type { Strategy, StrategyContext } from './strategy.ts';

/** An answer of a store that does not know the sale yet. */
export const CLOSED = { kind: 'closed' } as const;
export type Decision = ReserveOutcome | typeof CLOSED;

/** How often a sale is opened for one attempt: more than once only while Redis keeps losing its memory. */
const OPENINGS = 3;

/**
 * Builds a strategy from the one thing that is its own.
 * @param segments how many counters a sale has; 0 for a single one
 * @param decide asks Redis once; it may throw what Redis throws
 */
export function redisStrategy(
  context: StrategyContext,
  description: StrategyDescription,
  segments: number,
  decide: (attempt: Attempt, sales: RedisSales) => Promise<Decision>,
): Strategy & { readonly reservations: RedisSales } {
  const reservations = redisSales(context.redis, context.orders, segments);

  async function openFromPostgres(saleId: number): Promise<Refusal | null> {
    const sale = await context.sales.get(saleId);
    if (sale === null) return { kind: 'unknown-sale' };
    await reservations.open(sale);
    return null;
  }

  async function decideOpened(attempt: Attempt): Promise<ReserveOutcome> {
    for (let opened = 0; ; opened++) {
      const decision = await decide(attempt, reservations);
      if (decision.kind !== 'closed') return decision;
      if (opened === OPENINGS) return { kind: 'busy', reason: 'redis-keeps-forgetting' };
      const refusal = await openFromPostgres(attempt.saleId);
      if (refusal !== null) return refusal;
    }
  }

  return {
    description,
    reservations,
    async open(sale) {
      await reservations.open(sale);
    },
    async reserve(attempt) {
      let failure = await tryOnce(() => decideOpened(attempt));
      if (failure.kind === 'unknown') failure = await tryOnce(() => decideOpened(attempt), 'unknown');
      if (failure.kind === 'busy' || failure.kind === 'unknown')
        return { ...failure, orderId: attempt.orderId };
      return failure;
    },
    async release(reservation, options) {
      await reservations.release(reservation, options);
    },
    async restock(saleId, units) {
      // Units are never on offer in Redis while Postgres does not have them: added last, cut first.
      if (units < 0 && (await reservations.adjust(saleId, units)) === 0) return 'below-sold';
      const sale = await context.sales.restock(saleId, units);
      const refused = sale === null || sale === 'below-sold';
      if (refused === units < 0) await reservations.adjust(saleId, Math.abs(units));
      return sale;
    },
    async remaining(saleId) {
      return (await reservations.observe(saleId))?.remaining ?? null;
    },
  };
}

type Tried =
  | Exclude<ReserveOutcome, { kind: 'unknown' }>
  | { readonly kind: 'unknown'; readonly reason: string };

/** @param busyMeans what a failure to send says: after a lost answer it proves nothing, and the outcome stays unknown */
async function tryOnce(
  ask: () => Promise<ReserveOutcome>,
  busyMeans: 'busy' | 'unknown' = 'busy',
): Promise<Tried> {
  try {
    return await ask();
  } catch (error) {
    const { kind, reason } = classifyStoreError(error);
    return { kind: kind === 'busy' ? busyMeans : kind, reason };
  }
}

/** Redis decides, but a sale is opened from Postgres: reading there never leaves anything unknown. */
function classifyStoreError(error: unknown): { readonly kind: 'busy' | 'unknown'; readonly reason: string } {
  try {
    return classifyRedisError(error);
  } catch {
    const failure = classifyPostgresError(error);
    return { kind: 'busy', reason: failure.kind === 'refused' ? failure.constraint : failure.reason };
  }
}

/** What a lock strategy reads before it decides. */
export interface SaleInRedis {
  readonly remaining: number | null;
  /** Set when the sale does not sell now. */
  readonly refusal: Refusal | null;
  /** The customer's earlier order, if any. */
  readonly held: ReserveOutcome | null;
}

/** Reads, one command after the other, what lua/reserve.lua reads at once. Null: the sale is not in Redis. */
export async function readSaleInRedis(
  context: StrategyContext,
  sales: RedisSales,
  attempt: Attempt,
): Promise<SaleInRedis | null> {
  const { redis } = context.redis;
  const keys = sales.keys(attempt.saleId);
  const [remaining, startsMs, endsMs] = await redis.hmget(keys.state, 'remaining', 'startsMs', 'endsMs');
  if (startsMs == null || endsMs == null) return null;
  const buyer = await redis.hget(keys.buyers, attempt.userId);
  return {
    remaining: remaining == null ? null : Number(remaining),
    refusal: await refusalOfWindow(context, startsMs, endsMs),
    held: buyer === null ? null : heldBy(attempt, buyer),
  };
}

/** The earlier order, or this very attempt's own when its first answer was lost. */
function heldBy(attempt: Attempt, buyer: string): ReserveOutcome {
  const [orderId = '', entryId = ''] = buyer.split(' ');
  const reservation: Reservation = { ...attempt, orderId, entryId, counter: '' };
  return { kind: orderId === attempt.orderId ? 'reserved' : 'held', reservation };
}

async function refusalOfWindow(
  context: StrategyContext,
  startsMs: string,
  endsMs: string,
): Promise<Refusal | null> {
  if (startsMs === '' && endsMs === '') return null;
  const [seconds, micros] = await context.redis.redis.time();
  const nowMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  if (startsMs !== '' && nowMs < Number(startsMs)) return { kind: 'not-open', reason: 'not-started' };
  if (endsMs !== '' && nowMs >= Number(endsMs)) return { kind: 'not-open', reason: 'ended' };
  return null;
}
