/**
 * `segmented-lock`: the stock is split into SEGMENTS parts, each under its own lock, so that as many attempts run at once. A
 * customer's home segment is a hash of the user id: all attempts of one customer use one lock, which limits them to one order.
 *
 *   lock home ──▶ enough units at home? ──yes──▶ deduct ──▶ unlock
 *                     │ no
 *                     ▼
 *                 read all segments at one instant ──too few──▶ sold-out, or not enough
 *                     │ home and some others have enough
 *                     ▼
 *                 unlock; lock all of these ──still enough──▶ deduct from all of them, or from none
 *                     └──fewer by now──▶ read again
 *
 * An attempt that needs several locks takes all of them or none, in one order: see locks/all-of.ts.
 */
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { type StepInRedis, shortage } from '../../domain/outcome.ts';
import { homeSegment, type Part, partsOf } from '../../domain/segments.ts';
import { usingAll } from '../../locks/all-of.ts';
import type { Lease } from '../../locks/lock.ts';
import type { SaleInEpoch } from '../../store/redis/sale-records.ts';
import {
  deductUnderLease,
  NOT_LOADED,
  type RedisStrategy,
  readSaleInRedis,
  redisStrategy,
  resultOfHeld,
} from '../kit/redis-strategy.ts';
import { ALL_GUARANTEES, type RedisStrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'segmented-lock',
  summary:
    'Stock split into SEGMENTS parts, each under its own lock; an empty home segment borrows from the others.',
  store: 'redis',
  usesLock: true,
  roundTrips: 4,
  guarantees: ALL_GUARANTEES,
};

export function create(context: RedisStrategyContext): RedisStrategy {
  return redisStrategy(context, description, context.segments, async (attempt, place) => {
    const home = homeSegment(attempt.userId, context.segments);
    let parts: readonly Part[] = [{ segment: home, units: attempt.quantity }];
    let untilMs = performance.now() + context.lockWaitMs;
    for (let borrows = false; ; borrows = true) {
      const result = await underLocks(context, attempt, parts, untilMs, (held) =>
        take(context, attempt, place, home, held),
      );
      if (result.kind !== 'done') return { kind: 'busy', reason: `lock-${result.kind}` };
      if (result.value.kind !== 'elsewhere') return result.value;
      if (!borrows) untilMs = performance.now() + context.lockWaitMs;
      else if (performance.now() >= untilMs) return { kind: 'busy', reason: 'lock-contended' };
      parts = result.value.parts;
    }
  });
}

/** Units of a segment under its lock. */
type HeldPart = Part & { readonly lease: Lease };
/** The units are in other segments than those that were locked. */
interface Elsewhere {
  readonly kind: 'elsewhere';
  readonly parts: readonly Part[];
}

/** Runs `work` while all the segments are locked. */
function underLocks<T>(
  context: RedisStrategyContext,
  { saleId }: Attempt,
  parts: readonly Part[],
  untilMs: number,
  work: (held: readonly HeldPart[]) => Promise<T>,
) {
  const ttlMs = Math.min(context.lockTtlMs, limits.attemptLeaseMs);
  const waitMs = Math.max(0, untilMs - performance.now());
  // On the server of the sale: see locks/kit/redis.ts.
  const resourceOf = ({ segment }: Part) => `{sale:${saleId}}:segment:${segment}`;
  return usingAll(context.lock, parts.map(resourceOf), { ttlMs, waitMs }, ({ leases }) =>
    work(parts.map((part) => ({ ...part, lease: leases.get(resourceOf(part))! }))),
  );
}

/** Takes the units from the locked segments, of which one is the customer's home, or says where they are. */
async function take(
  context: RedisStrategyContext,
  attempt: Attempt,
  place: SaleInEpoch,
  home: number,
  held: readonly HeldPart[],
): Promise<StepInRedis | Elsewhere> {
  const own = held.find(({ segment }) => segment === home)!;
  const sale = await readSaleInRedis(context, place, attempt, String(home), own.lease);
  if ('kind' in sale) return sale;
  if (sale.held !== null) return resultOfHeld(attempt, sale.held);
  if (sale.rejection !== null) return sale.rejection;
  if (sale.units >= own.units) {
    const counters = held.map(({ segment, ...part }) => ({ ...part, counter: String(segment) }));
    const taken = await deductUnderLease(context, place, attempt, counters);
    if (taken.kind !== 'empty') return taken;
  }
  const counters = await context.redis.redis.hgetall(place.keys.counters);
  const units = Array.from({ length: Object.keys(counters).length }, (_, i) => Number(counters[i] ?? 0));
  if (units.length === 0) return NOT_LOADED;
  const parts = partsOf(home, units, attempt.quantity);
  if (parts !== null) return { kind: 'elsewhere', parts };
  const free = units.reduce((sum, n) => sum + Math.max(0, n), 0);
  return shortage(free, attempt.quantity)!;
}
