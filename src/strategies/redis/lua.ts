/**
 * `lua`: one atomic script decides: time window, stock, one per customer, deduction, and the record of the order.
 *
 *   attempt ──▶ gathered (see batches.ts) ──▶ lua/sale/reserve-many.lua decides all of them in one round trip
 *                                               └─ sold out ──▶ the process remembers it (see sold-out-latch.ts)
 *
 * A batch holds attempts on any sales: each sale in it costs one more look at its state. A lone attempt goes at once, to
 * lua/sale/reserve.lua, which decides the same for one.
 */

import { microBatcher } from '../../concurrency/micro-batcher.ts';
import { limits } from '../../config/limits.ts';
import { bySale } from '../../domain/by-sale.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { isUnforeseen } from '../../store/redis/connection.ts';
import type { ReserveReply, SaleAttempts } from '../../store/redis/scripts.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';
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

interface Asked {
  readonly attempt: Attempt;
  readonly place: SalePlace;
}

/** All attempts form one line, whatever their sale. */
const LINE = 0;

export function create(context: StrategyContext): Strategy {
  const { redis, scripts } = context.redis;

  /** One by itself has the script that knows of no others: it does a little less. */
  async function replyTo({ attempt, place }: Asked): Promise<ReserveReply> {
    return scripts.reserve(place.keys, attempt.userId, attempt.orderId, place.epoch);
  }

  async function work(_line: number, asked: readonly Asked[], answer: Answer): Promise<void> {
    if (asked.length === 1) {
      const [one] = asked as [Asked];
      return answer(one, decisionOf(one.attempt, await replyTo(one), latch));
    }
    const sales: SaleAttempts[] = [];
    const inOrder: Asked[] = [];
    for (const together of bySale(asked, ({ attempt }) => attempt.saleId).values()) {
      sales.push({ keys: together[0]!.place.keys, members: together.map(({ attempt }) => attempt) });
      inOrder.push(...together);
    }
    // The last one asked in the newest epoch; in an older one the sale is closed to the others, too.
    const replies = await scripts.reserveMany(sales, asked.at(-1)!.place.epoch);
    for (const [i, one] of inOrder.entries()) answer(one, decisionOf(one.attempt, replies[i]!, latch));
  }

  const { submit } = microBatcher<Asked, Decision>({
    work,
    maxBatch: limits.scriptBatchSize,
    inFlight: limits.scriptInFlight,
    eagerBelow: limits.batchEagerBelow,
    maxQueued: limits.admission.maxLimit,
    waitMs: limits.redisCommandMs,
    rejected: (reason) => ({ kind: 'busy', reason }),
    isMemberError: isUnforeseen, // a sale whose keys are of another type is no reason to fail the others
    onBatch: context.onBatch,
  });
  const strategy = redisStrategy(context, description, 0, (attempt, place) =>
    submit(LINE, { attempt, place }),
  );
  const { keys, epoch } = strategy.mirror;
  const latch = soldOutLatch({ redis, soldOut: scripts.soldOut, keys, epoch, onError: context.onError });
  return { ...strategy, latch, maxBatch: limits.scriptBatchSize };
}

type Answer = (asked: Asked, decision: Decision) => void;

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
