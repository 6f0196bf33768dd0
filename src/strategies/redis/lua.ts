/**
 * `lua`: one atomic script decides: time window, stock, one per customer, deduction, and the record of the order.
 *
 *   attempt ──▶ batch (see micro-batcher.ts) ──▶ lua/sale/reserve-many.lua decides all of them in one round trip
 *                                                  └─ sold out ──▶ the process caches it (see sold-out-latch.ts)
 *
 * A batch holds attempts on any sales: each sale in it costs one more read of its state. A single attempt is sent at once, to
 * lua/sale/reserve.lua, which makes the same decision for one.
 */
import { microBatcher } from '../../concurrency/micro-batcher.ts';
import { limits } from '../../config/limits.ts';
import { bySale } from '../../domain/by-sale.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { isRedisDefect } from '../../store/redis/connection.ts';
import type { ReserveReply, SaleAttempts } from '../../store/redis/scripts.ts';
import { ALL_GUARANTEES, type ReservingStrategy, type StrategyContext } from '../strategy.ts';
import { type Decision, LATE, NOT_LOADED, redisStrategy, type SalePlace } from './base.ts';
import { type SoldOutLatch, soldOutLatch } from './sold-out-latch.ts';

export const description: StrategyDescription = {
  name: 'lua',
  summary: 'One atomic script: time window, stock, one per customer, deduct, record the order.',
  store: 'redis',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

interface Item {
  readonly attempt: Attempt;
  readonly place: SalePlace;
}

/** All attempts share one queue, whatever their sale. */
const QUEUE = 0;

export function create(context: StrategyContext): ReservingStrategy {
  const { redis, scripts } = context.redis;

  async function work(_queue: number, items: readonly Item[], answer: Answer): Promise<void> {
    const [first] = items as [Item];
    if (items.length === 1) {
      const { attempt, place } = first;
      const reply = await scripts.reserve(place.keys, attempt.userId, attempt.orderId, place.epoch);
      return answer(first, 'kind' in reply ? reply : decisionOf(attempt, reply, latch));
    }
    const sales: SaleAttempts[] = [];
    const inOrder: Item[] = [];
    for (const members of bySale(items, ({ attempt }) => attempt.saleId).values()) {
      sales.push({ keys: members[0]!.place.keys, members: members.map(({ attempt }) => attempt) });
      inOrder.push(...members);
    }
    // The last attempt has the newest epoch; in an older epoch the sale is not loaded for the others either.
    const replies = await scripts.reserveMany(sales, items.at(-1)!.place.epoch);
    for (const [i, item] of inOrder.entries())
      answer(item, 'kind' in replies ? replies : decisionOf(item.attempt, replies[i]!, latch));
  }

  const { submit } = microBatcher<Item, Decision>({
    work,
    maxBatch: limits.scriptBatchSize,
    inFlight: limits.scriptInFlight,
    eagerBelow: limits.batchEagerBelow,
    maxQueued: limits.admission.maxLimit,
    waitMs: limits.redisCommandMs,
    rejected: (reason) => ({ kind: 'busy', reason }),
    isMemberError: isRedisDefect, // a sale whose keys have another type must not fail the others
    onBatch: context.onBatch,
  });
  const strategy = redisStrategy(context, description, 0, (attempt, place) =>
    submit(QUEUE, { attempt, place }),
  );
  const { keys, epoch } = strategy.mirror;
  const latch = soldOutLatch({ redis, soldOut: scripts.soldOut, keys, epoch, onError: context.onError });
  return { ...strategy, latch, maxBatch: limits.scriptBatchSize };
}

type Answer = (item: Item, decision: Decision) => void;

function decisionOf(attempt: Attempt, reply: ReserveReply, latch: SoldOutLatch): Decision {
  switch (reply[0]) {
    case 'reserved':
    case 'held':
      return {
        kind: reply[0],
        reservation: {
          saleId: attempt.saleId,
          userId: attempt.userId,
          orderId: reply[1],
          reservedAt: reply[2],
        },
      };
    case 'not-loaded':
      return NOT_LOADED;
    case 'late':
      return LATE;
    case 'sold-out':
      latch.markSoldOut(attempt.saleId);
      return { kind: 'sold-out' };
    default:
      return { kind: 'not-open', reason: reply[0] };
  }
}
