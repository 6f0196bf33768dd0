/**
 * `lua`: one atomic script decides: time window, stock, one per customer, deduction, and the record of the order.
 *
 *   attempt ──▶ batch (see micro-batcher.ts) ──▶ lua/sale/reserve-many.lua decides all of them in one round trip
 *                                                  └─ sold out ──▶ the process caches it (see sold-out-latch.ts)
 *
 * A batch holds attempts on any sales of one server: each sale in it costs one more read of its state or, in a cluster, one
 * more call of the same round trip. A single attempt is sent at once, to lua/sale/reserve.lua, which makes the same decision for
 * one.
 */
import { microBatcher } from '../../concurrency/micro-batcher.ts';
import { limits } from '../../config/limits.ts';
import { bySale } from '../../domain/by-sale.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import type { StepInRedis } from '../../domain/outcome.ts';
import { isRedisDefect } from '../../store/failures/redis.ts';
import { callsFor, reservationOf, type SaleInEpoch } from '../../store/redis/sale-records.ts';
import type { ReserveReply } from '../../store/redis/scripts.ts';
import { LATE, NOT_LOADED, type RedisStrategy, redisStrategy } from '../kit/redis-strategy.ts';
import { soldOutInRedis } from '../kit/sold-out-in-redis.ts';
import { soldOutLatch } from '../kit/sold-out-latch.ts';
import { ALL_GUARANTEES, type RedisStrategyContext } from '../strategy.ts';

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
  readonly place: SaleInEpoch;
}

export function create(context: RedisStrategyContext): RedisStrategy {
  const { scripts, serverOf, isCluster } = context.redis;

  async function work(_server: number, items: readonly Item[], answer: Answer): Promise<void> {
    const [first] = items as [Item];
    if (items.length === 1) {
      const { attempt, place } = first;
      const reply = await scripts.reserve(place.keys, attempt, place.epoch);
      return answer(first, 'kind' in reply ? reply : resultOf(attempt, reply));
    }
    const { epoch } = items.at(-1)!.place; // the newest: in an older one no sale is loaded
    const isCurrent = ({ place }: Item) => place.epoch === epoch;
    for (const item of items) if (!isCurrent(item)) answer(item, NOT_LOADED);
    const sales = [...bySale(items.filter(isCurrent), ({ attempt }) => attempt.saleId).values()];
    const calls = callsFor(sales, isCluster).map(async (some) => {
      const attempts = some.map((members) => ({
        keys: members[0]!.place.keys,
        members: members.map(({ attempt }) => attempt),
      }));
      const replies = await scripts.reserveMany(attempts, epoch);
      for (const [i, item] of some.flat().entries())
        answer(item, 'kind' in replies ? replies : resultOf(item.attempt, replies[i]!));
    });
    // A call that fails leaves the answers of the others.
    const failed = (await Promise.allSettled(calls)).find((call) => call.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  const { submit } = microBatcher<Item, StepInRedis>({
    name: 'attempts',
    work,
    maxBatch: limits.scriptBatchSize,
    leastBatch: limits.leastBatch,
    inFlight: () => limits.scriptInFlight,
    maxQueued: limits.admission.maxLimit,
    waitMs: limits.redisCommandMs,
    rejected: (reason) => ({ kind: 'busy', reason }),
    isMemberError: isRedisDefect, // a sale whose keys have another type must not fail the others
    onBatch: context.onBatch,
  });
  const strategy = redisStrategy(context, description, 0, (attempt, place) =>
    submit(serverOf(place.keys.state).id, { attempt, place }),
  );
  const knownSoldOut = soldOutLatch(
    soldOutInRedis(context.redis, context.epochs, strategy.mirror),
    context.onError,
  );
  return { ...strategy, knownSoldOut, maxBatch: limits.scriptBatchSize };
}

type Answer = (item: Item, result: StepInRedis) => void;

function resultOf(attempt: Attempt, reply: ReserveReply): StepInRedis {
  switch (reply[0]) {
    case 'reserved':
    case 'held':
      return { kind: reply[0], reservation: reservationOf(attempt, reply[1], reply[2]) };
    case 'not-loaded':
      return NOT_LOADED;
    case 'late':
      return LATE;
    case 'sold-out':
      return { kind: 'sold-out' };
    case 'not-enough-units':
      return { kind: 'not-enough-units', remaining: Number(reply[1]) };
    case 'over-limit':
      return { kind: 'over-limit', maxPerOrder: Number(reply[1]) };
    default:
      return { kind: 'not-open', reason: reply[0] };
  }
}
