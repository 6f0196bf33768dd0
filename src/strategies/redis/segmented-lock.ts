/**
 * `segmented-lock`: the stock is split into SEGMENTS parts, each under its own lock, so that as many attempts run at once. A
 * customer's home segment is a hash of the user id: all attempts of one customer use one lock, which limits them to one order.
 *
 *   lock home ──▶ unit at home? ──yes──▶ deduct ──▶ unlock
 *                     │ no
 *                     ▼
 *                 read all segments at one instant ──all empty──▶ sold-out
 *                     │ one has a unit
 *                     ▼
 *                 lock it too ──still has one──▶ deduct
 *                     └──empty by now──▶ read again
 *
 * No unit is stranded: the answer is "sold out" only when every segment was empty at one instant. Two locks do not deadlock:
 * only customers of an empty home take a second lock, and only of a segment that has units. A unit that returns meanwhile can
 * still create a cycle; the bounded wait then breaks it with `busy`.
 */
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { homeSegment, lenderOf } from '../../domain/segments.ts';
import { type Lease, using } from '../../locks/lock.ts';
import type { SaleInEpoch } from '../../store/redis/sale-keys.ts';
import {
  deductUnderLease,
  EMPTY,
  fenceOf,
  LEASE_LOST,
  NOT_LOADED,
  type RedisStrategy,
  readSaleInRedis,
  redisStrategy,
  resultOfHeld,
  type TryResult,
} from '../kit/redis-strategy.ts';
import { ALL_GUARANTEES, type RedisStrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'segmented-lock',
  summary:
    'Stock split into SEGMENTS parts, each under its own lock; an empty home segment borrows from the others.',
  store: 'redis',
  usesLock: true,
  roundTrips: 5,
  guarantees: ALL_GUARANTEES,
};

export function create(context: RedisStrategyContext): RedisStrategy {
  return redisStrategy(context, description, context.segments, async (attempt, place) => {
    const home = homeSegment(attempt.userId, context.segments);
    const result = await underLock(context, attempt, home, context.lockWaitMs, (lease) =>
      decideAtHome(context, attempt, place, home, lease),
    );
    return result.kind === 'done' ? result.value : { kind: 'busy', reason: `lock-${result.kind}` };
  });
}

function underLock<T>(
  context: RedisStrategyContext,
  attempt: Attempt,
  segment: number,
  waitMs: number,
  work: (lease: Lease) => Promise<T>,
) {
  const resource = `{sale:${attempt.saleId}}:segment:${segment}`; // on the server of the sale: see locks/kit/redis.ts
  const ttlMs = Math.min(context.lockTtlMs, limits.attemptLeaseMs);
  return using(context.lock, resource, { ttlMs, waitMs }, work);
}

/**
 * Takes a unit of one segment.
 * @param leases all that this attempt holds, the segment's own last
 * @param seen the segment's units, where they were read under the lease already
 */
async function take(
  context: RedisStrategyContext,
  attempt: Attempt,
  place: SaleInEpoch,
  segment: number,
  leases: readonly [...Lease[], Lease],
  seen?: number,
): Promise<TryResult | typeof EMPTY> {
  const units = seen ?? (await unitsOf(context, place, segment, leases.at(-1)!));
  if (typeof units !== 'number') return units;
  if (units <= 0) return EMPTY;
  if (leases.some((lease) => lease.signal.aborted)) return LEASE_LOST;
  return deductUnderLease(context, place, attempt, String(segment), leases.at(-1)!);
}

async function unitsOf(
  context: RedisStrategyContext,
  { keys, epoch }: SaleInEpoch,
  segment: number,
  lease: Lease,
) {
  const { scripts } = context.redis;
  const [state, units] = await scripts.fencedRead(keys, String(segment), fenceOf(context, lease), epoch);
  if (state === 'loaded') return Number(units);
  return state === 'not-loaded' ? NOT_LOADED : LEASE_LOST;
}

async function borrow(
  context: RedisStrategyContext,
  attempt: Attempt,
  place: SaleInEpoch,
  home: number,
  homeLease: Lease,
): Promise<TryResult> {
  const untilMs = performance.now() + context.lockWaitMs;
  for (;;) {
    const counters = await context.redis.redis.hgetall(place.keys.counters);
    const units = Array.from({ length: Object.keys(counters).length }, (_, i) => Number(counters[i] ?? 0));
    if (units.length === 0) return NOT_LOADED;
    const lender = lenderOf(home, units);
    if (lender === null) return { kind: 'sold-out' };
    const waitMs = untilMs - performance.now();
    if (waitMs <= 0) return { kind: 'busy', reason: 'lock-contended' };
    const result =
      lender === home
        ? { kind: 'done' as const, value: await take(context, attempt, place, home, [homeLease]) } // a unit came back
        : await underLock(context, attempt, lender, waitMs, (lease) =>
            take(context, attempt, place, lender, [homeLease, lease]),
          );
    if (result.kind !== 'done') return { kind: 'busy', reason: `lock-${result.kind}` };
    if (result.value.kind !== 'empty') return result.value;
  }
}

async function decideAtHome(
  context: RedisStrategyContext,
  attempt: Attempt,
  place: SaleInEpoch,
  home: number,
  lease: Lease,
): Promise<TryResult> {
  const sale = await readSaleInRedis(context, place, attempt, String(home), lease);
  if ('kind' in sale) return sale;
  if (sale.held !== null) return resultOfHeld(attempt, sale.held);
  if (sale.rejection !== null) return sale.rejection;
  const taken = await take(context, attempt, place, home, [lease], sale.units);
  return taken.kind === 'empty' ? borrow(context, attempt, place, home, lease) : taken;
}
