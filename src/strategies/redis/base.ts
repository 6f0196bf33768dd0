/**
 * What the strategies that decide in Redis have in common: opening a sale that Redis does not know, settling an
 * answer that was lost, giving units back, restocking.
 *
 *   ask ──'not-loaded'──▶ read the sale in Postgres ──none──▶ unknown-sale
 *    │                        └──▶ open it in Redis, or wait for who does ──▶ ask again, within bounds
 *    └──no answer──▶ wait until the command cannot take effect any more (store/late-requests.ts) ──▶ ask again under
 *                    the same order id: a unit that was taken is found, not taken twice
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import type { Refusal, Reservation, ReserveOutcome } from '../../domain/outcome.ts';
import type { Lease } from '../../locks/lock.ts';
import { storeFailure } from '../../store/failures.ts';
import { wroteNothing } from '../../store/postgres/failures.ts';
import { classifyPostgresError, type PostgresFailure } from '../../store/postgres/pool.ts';
import { tellRestocks } from '../../store/postgres/restock-moves.ts';
import { classifyRedisError, type RedisFailure } from '../../store/redis/connection.ts';
import {
  claimEndMs,
  createSaleMirror,
  type SaleMirror,
  withFirstClaim,
} from '../../store/redis/sale-mirror.ts';
import type { Fence, SaleKeys } from '../../store/redis/scripts.ts';
import type { Strategy, StrategyContext } from '../strategy.ts';

/** An answer of a store that does not know the sale yet. */
export const NOT_LOADED = { kind: 'not-loaded' } as const;
/** The command came after its deadline, and took nothing. */
export const LATE = { kind: 'late' } as const;
export type Decision =
  | Exclude<ReserveOutcome, { readonly kind: 'reserved' }>
  | { readonly kind: 'reserved'; readonly reservation: Reservation }
  | typeof NOT_LOADED
  | typeof LATE;

/** Redis decided, or did not answer: then the command may take effect until `lateUntilMs`, by Redis's clock. */
type Try =
  | Exclude<Decision, typeof NOT_LOADED | typeof LATE>
  | { readonly kind: 'unanswered'; readonly reason: string; readonly lateUntilMs: number };

/** Where a sale is in Redis, and in which epoch it must have been opened. */
export interface SalePlace {
  readonly keys: SaleKeys;
  readonly epoch: number;
}

const BUSY_REASONS = { 'not-loaded': 'sale-is-being-loaded', late: 'clock-of-redis' } as const;

/** How long an attempt waits for a sale to be opened, by itself or by another process, in milliseconds. */
const OPEN_WAIT_MS = 1_000;
/** Between two looks whether another process has opened it. */
const OPEN_POLL_MS = 25;
/** A process that opens a sale and dies keeps the others from it for so long. */
const OPEN_CLAIM_MS = 10_000;

/**
 * Builds a strategy from the one thing that is its own.
 * @param segments how many counters a sale has; 0 for a single one
 * @param decide asks Redis once; it may throw what Redis throws
 */
export function redisStrategy(
  context: StrategyContext,
  description: StrategyDescription,
  segments: number,
  decide: (attempt: Attempt, place: SalePlace) => Promise<Decision>,
): Strategy & { readonly mirror: SaleMirror } {
  const mirror = createSaleMirror(context.redis, context.epochs, context.orders, segments);
  const openOnce = opener(context, mirror);

  async function tryOnce(attempt: Attempt): Promise<Try> {
    const { saleId } = attempt;
    const keys = mirror.keys(saleId);
    let untilMs = 0;
    try {
      for (;;) {
        const epoch = mirror.knownEpoch ?? (await mirror.epoch());
        const decision = await decide(attempt, { keys, epoch });
        if (decision.kind !== 'not-loaded' && decision.kind !== 'late') return decision;
        untilMs ||= performance.now() + OPEN_WAIT_MS;
        if (performance.now() > untilMs) return { kind: 'busy', reason: BUSY_REASONS[decision.kind] };
        if (decision.kind === 'late') {
          context.redis.clock.invalidate();
          continue;
        }
        const refusal = await openOnce(saleId).catch(busyOf);
        if (refusal !== null) return refusal;
      }
    } catch (error) {
      return classifyStoreError(error);
    }
  }

  /** Whether the commands of a try that was not answered have no effect any more. */
  async function isOver(lateUntilMs: number): Promise<boolean> {
    try {
      return await context.redis.clock.hasPassed(lateUntilMs, 2 * limits.redisCommandMs);
    } catch (error) {
      classifyRedisError(error); // throws a defect
      return false;
    }
  }

  async function reserveClaimed(attempt: Attempt): Promise<Try> {
    const first = await tryOnce(attempt);
    if (first.kind !== 'unanswered' || !(await isOver(first.lateUntilMs))) return first;
    const second = await tryOnce(attempt);
    // Not having got through proves nothing: the first try may have taken a unit.
    const isOpen = second.kind === 'busy' || second.kind === 'unanswered';
    return isOpen ? { ...first, reason: `${first.reason}, then ${second.reason}` } : second;
  }

  return {
    description,
    mirror,
    latch: null,
    maxBatch: 1,
    async load(sale) {
      // A sale that cannot be put into Redis now is opened by the first attempt that finds it missing.
      await mirror.load(sale).catch((error) => context.onError('load-sale', error, { saleId: sale.id }));
    },
    async reserve(attempt) {
      const untilMs = claimEndMs();
      const outcome = await reserveClaimed(attempt);
      if (outcome.kind === 'unanswered')
        return { kind: 'unknown', orderId: attempt.orderId, reason: outcome.reason };
      if (outcome.kind !== 'reserved') return outcome;
      return { kind: 'reserved', reservation: withFirstClaim(outcome.reservation, untilMs) };
    },
    release: (reservation, options) => mirror.release(reservation, options),
    restock: (saleId, units) => restock(context, mirror, saleId, units),
    async remaining(saleId) {
      return (await mirror.snapshot(saleId))?.remaining ?? null;
    },
  };
}

/**
 * Opens sales from Postgres: of all the attempts that find a sale missing, in all processes, one copies its buyers
 * while the others wait.
 * @returns opens one sale; null when it may be asked again, or why it cannot be opened
 */
function opener(context: StrategyContext, mirror: SaleMirror): (saleId: number) => Promise<Refusal | null> {
  const underWay = new Map<number, Promise<Refusal | null>>();

  async function open(saleId: number): Promise<Refusal | null> {
    const claim = `stampede:{sale:${saleId}}:opening`;
    const token = crypto.randomUUID();
    const { redis, scripts } = context.redis;
    if ((await redis.set(claim, token, 'PX', OPEN_CLAIM_MS, 'NX')) === null) {
      await sleep(OPEN_POLL_MS);
      return null;
    }
    try {
      const sale = await context.sales.get(saleId);
      if (sale === null) return { kind: 'unknown-sale' };
      await mirror.load(sale);
      return null;
    } finally {
      await scripts.unlock(claim, token).catch(() => {}); // it runs out by itself
    }
  }

  return (saleId) => {
    let opening = underWay.get(saleId);
    if (opening === undefined) {
      opening = open(saleId).finally(() => underWay.delete(saleId));
      underWay.set(saleId, opening);
    }
    return opening;
  };
}

/**
 * Units are never on offer in Redis while Postgres does not have them: added last, cut first. Once Postgres has
 * committed, the restock has happened: what Redis does not hear of added units now it hears later (restock-moves.ts), of
 * units whose cut failed from recovery.
 */
async function restock(context: StrategyContext, mirror: SaleMirror, saleId: number, units: number) {
  const putBack = async () => {
    try {
      await mirror.restock(saleId, -units);
    } catch (error) {
      context.onError('restock-redis', error, { saleId, units });
    }
  };
  if (units < 0) {
    const refusal = await cut(context, mirror, saleId, -units);
    if (refusal !== 'cut') return refusal;
  }
  let sale: Awaited<ReturnType<Strategy['restock']>>;
  try {
    sale = await context.sales.restock(saleId, units, units > 0);
  } catch (error) {
    if (units < 0 && wroteNothing(error)) await putBack();
    throw error;
  }
  if (units > 0) {
    const failed = (_: string, error: unknown) => context.onError('publish-restock', error, { saleId });
    const health = { failed, succeeded: () => {}, backingOff: () => [] };
    await tellRestocks({ postgres: context.postgres, mirror, health }, saleId);
  } else if (sale === null || sale === 'below-sold') await putBack();
  return sale;
}

/** How often a sale is opened to cut units of it. */
const CUT_TRIES = 3;

/** Takes free units in Redis, where it is known what is reserved: a sale that is not there is opened first. */
async function cut(context: StrategyContext, mirror: SaleMirror, saleId: number, units: number) {
  for (let tries = 0; tries < CUT_TRIES; tries++) {
    const taken = await mirror.restock(saleId, -units);
    if (taken !== null) return taken === 0 ? 'below-sold' : 'cut';
    const sale = await context.sales.get(saleId);
    if (sale === null) return null;
    await mirror.load(sale);
  }
  return 'busy';
}

/** A sale that could not be opened: nothing was taken, whichever store failed. @throws a defect */
function busyOf(error: unknown): Refusal {
  const failure = storeFailure(error);
  if (failure === null) throw error;
  return { kind: 'busy', reason: failure.reason };
}

/** @throws a defect */
function classifyStoreError(error: unknown): Extract<Try, { readonly kind: 'busy' | 'unanswered' }> {
  try {
    return tryOf(classifyRedisError(error));
  } catch {
    const failure = classifyPostgresError(error); // of `unsafe`, which inserts the order itself
    return failure.kind === 'refused' ? { kind: 'busy', reason: failure.constraint } : tryOf(failure);
  }
}

function tryOf(failure: Exclude<RedisFailure | PostgresFailure, { readonly kind: 'refused' }>) {
  if (failure.kind === 'busy') return failure;
  const { reason, lateUntilMs = 0 } = failure;
  return { kind: 'unanswered', reason, lateUntilMs } as const;
}

/** What a lock strategy reads before it decides. */
export interface SaleInRedis {
  readonly units: number;
  /** Set when the sale does not sell now. */
  readonly refusal: Refusal | null;
  /** The customer's earlier order, if any. */
  readonly held: Decision | null;
}

/** The answer to an attempt whose lease is over, or whose successor has been here. */
export const LEASE_LOST = { kind: 'busy', reason: 'lease-lost' } as const;

/** The answers of lua/sale/fenced-deduct.lua that take nothing. */
export const REFUSED = { 'not-loaded': NOT_LOADED, late: LATE, fenced: LEASE_LOST } as const;

/** The fencing token of a lease, as the store compares it. */
export function fenceOf({ lock }: StrategyContext, lease: Lease | null): Fence {
  return { token: lease?.fencingToken ?? null, lock: lock.name };
}

/**
 * Reads, one command after the other, what lua/sale/reserve.lua reads at once.
 * @param counter where the units are counted
 * @param lease null: none, for the control that has no lock
 * @returns the sale, or the decision when there is nothing to read
 */
export async function readSaleInRedis(
  context: StrategyContext,
  { keys, epoch }: SalePlace,
  attempt: Attempt,
  counter: string,
  lease: Lease | null,
): Promise<SaleInRedis | Decision> {
  const { redis, scripts } = context.redis;
  const [state, units, startsMs, endsMs] = await scripts.fencedRead(
    keys,
    counter,
    fenceOf(context, lease),
    epoch,
  );
  if (state === 'not-loaded') return NOT_LOADED;
  if (state === 'fenced') return LEASE_LOST;
  const buyer = await redis.hget(keys.buyers, attempt.userId);
  return {
    units: Number(units),
    refusal: await refusalOfWindow(context, startsMs!, endsMs!),
    held: buyer === null ? null : heldBy(attempt, buyer),
  };
}

/** The earlier order, or this very attempt's own when its first answer was lost. */
function heldBy(attempt: Attempt, buyer: string): Decision {
  const [orderId = '', reservedAt = ''] = buyer.split(' ');
  const reservation: Reservation = { ...attempt, orderId, reservedAt };
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
