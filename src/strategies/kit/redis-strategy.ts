/**
 * What the strategies that decide in Redis share: loading a sale that is missing in Redis, resolving a lost reply, restocking.
 *
 *   decide ──refused, and Redis was replaced meanwhile──▶ decide again, within bounds
 *    ├──'not-loaded'──▶ read the sale in Postgres ──none──▶ unknown-sale
 *    │                          └──▶ load it, or wait for the process that does ──▶ decide again, within bounds
 *    └──no answer──▶ wait until the command can no longer take effect (store/late-requests.ts) ──▶ decide again with the same
 *                    order id: a unit that was taken is found, not taken twice; in another epoch this counts if the sale is loaded in it
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { shared } from '../../concurrency/coalesce.ts';
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import type {
  NotOpen,
  NoUnits,
  Rejection,
  Reservation,
  Retry,
  StepInRedis,
  Unanswered,
} from '../../domain/outcome.ts';
import type { Lease } from '../../locks/lock.ts';
import { expectedFailure } from '../../store/failures/any-store.ts';
import { classifyPostgresError } from '../../store/failures/postgres.ts';
import { classifyRedisError, expectedRedisFailure } from '../../store/failures/redis.ts';
import { createSaleMirror, type SaleMirror } from '../../store/redis/sale-mirror.ts';
import {
  claimEndMs,
  reservationOf,
  type SaleInEpoch,
  type SaleKeys,
  withFirstClaim,
} from '../../store/redis/sale-records.ts';
import type { CounterUnits, Fence } from '../../store/redis/scripts.ts';
import type { RedisStrategyContext, Strategy } from '../strategy.ts';
import { restock } from './restock.ts';

/** The sale is not in Redis, or is from another epoch. */
export const NOT_LOADED: Retry = { kind: 'retry', reason: 'sale-is-being-loaded' };
/** The command arrived after its deadline, and took nothing. */
export const LATE: Retry = { kind: 'retry', reason: 'clock-of-redis' };
/** The answer may come from another Redis than the one whose epoch is known. */
const STALE: Retry = { kind: 'retry', reason: 'redis-was-replaced' };
/** The lease has ended, or a later holder has written already. */
export const LEASE_LOST = { kind: 'busy', reason: 'lease-lost' } as const;

/** The counter turned out empty under its lock. */
const EMPTY = { kind: 'empty' } as const;
/** The copy that the process used was left meanwhile: Postgres names another. */
const SUPERSEDED: Retry = { kind: 'retry', reason: 'reserved-in-another-epoch' };
/** Its order would be unknown to the copy whose epoch it has; it can still be committed by a process that uses the other one. */
const RESERVED_ELSEWHERE: Unanswered = { kind: 'unanswered', reason: STALE.reason, lateUntilMs: 0 };

interface Tried {
  readonly step: Exclude<StepInRedis, Retry>;
  /** In which it was decided; outdated if another process has loaded the sale into another Redis since. Null: it did not come so far. */
  readonly epoch: number | null;
}

const TOO_FEW_REPLICAS = new Error(
  'too few replicas have the reservation, so it is committed before the answer',
);
const NOT_CONFIRMED = new Error(
  'the connection to Redis was lost meanwhile, so the reservation is committed before the answer',
);

/** How long an attempt waits for a sale to be loaded, milliseconds. */
const LOAD_WAIT_MS = 1_000;
/** Interval between checks whether another process has loaded it. */
const LOAD_POLL_MS = 25;
/**
 * Lifetime of the right to load a sale, which is renewed during the load: if its process dies, or can no longer reach Redis, the others
 * wait this long.
 */
const LOAD_CLAIM_MS = 10_000;

/** What only the copy decides that has the epoch. */
const DECIDED: ReadonlySet<string> = new Set([
  'reserved',
  'held',
  'sold-out',
  'not-enough-units',
  'not-open',
  'over-limit',
]);

/** A strategy that decides in Redis. */
export type RedisStrategy = Strategy & { readonly mirror: SaleMirror };

/**
 * Builds a strategy from its decision.
 * @param segments how many counters a sale has; 0 for a single one
 * @param decide one try in Redis; it may throw what Redis throws
 */
export function redisStrategy(
  context: RedisStrategyContext,
  description: StrategyDescription,
  segments: number,
  decide: (attempt: Attempt, place: SaleInEpoch) => Promise<StepInRedis>,
): RedisStrategy {
  const { redis, epochs, orders } = context;
  const mirror = createSaleMirror(redis, epochs, orders, segments, isAhead(context));
  const { tryOnce, tryAgain } = resolver(context, mirror, decide);

  return {
    description,
    locksFirst: 'customer', // as the order committer does
    mirror,
    maxBatch: 1,
    async load(sale) {
      // One that cannot be loaded now is loaded by the first attempt that finds it missing.
      await mirror.load(sale).catch((error) => context.onError('load-sale', error, { saleId: sale.id }));
    },
    setTerms: (sale) => mirror.setTerms(sale),
    async decide(attempt) {
      const untilMs = claimEndMs();
      const hasReplicas = isAhead(context) ? redis.watchReplication(mirror.keys(attempt.saleId).state) : null;
      const tried = await tryOnce(attempt);
      const { step, epoch } = tried.step.kind === 'unanswered' ? await tryAgain(attempt, tried) : tried;
      if (step.kind === 'unanswered')
        return { kind: 'unknown', orderId: attempt.orderId, reason: step.reason };
      if (isShortage(step)) return confirmShortage(context, mirror, attempt, step, epoch!);
      if (step.kind !== 'reserved' && step.kind !== 'held') return step;
      // A load keeps what an earlier try reserved in another copy, also a unit that Postgres has sold.
      const mayBeKept = tried.step.kind === 'unanswered' || attempt.isAgain === true;
      const mayBeAhead =
        hasReplicas !== null &&
        !(mayBeKept && step.kind === 'reserved') &&
        (await isSafeAhead(context, mirror, attempt, epoch!, hasReplicas));
      if (step.kind === 'held') return { ...step, mayBeAhead, epoch };
      const reservation = withFirstClaim(step.reservation, untilMs, epoch);
      return { kind: 'reserved', reservation, mayBeAhead };
    },
    restock: (saleId, units, key) => restock(context, mirror, saleId, units, key),
  };
}

/** Whether a reservation may be answered with 202 before its commit; why not is logged. */
async function isSafeAhead(
  { onError }: RedisStrategyContext,
  mirror: SaleMirror,
  attempt: Attempt,
  epoch: number,
  hasReplicas: () => boolean | Promise<boolean>,
): Promise<boolean> {
  let failure: unknown = null;
  try {
    if (!(await hasReplicas())) failure = TOO_FEW_REPLICAS;
    else if (!mirror.isConfirmed(attempt.saleId, epoch)) failure = NOT_CONFIRMED;
  } catch (error) {
    failure = error;
  }
  if (failure !== null) onError('accept-ahead-of-commit', failure, attempt);
  return failure === null;
}

/** Whether customers are answered before the commit. */
const isAhead = ({ confirm }: RedisStrategyContext): boolean => confirm === 'accepted';

const isShortage = <R extends { readonly kind: string }>(result: R): result is Extract<R, NoUnits> =>
  result.kind === 'sold-out' || result.kind === 'not-enough-units';

/**
 * The Redis that this process uses may not be the last one, whose copy of the sale has orders and units that this one lacks: see epochs.ts.
 * Its reservations are not committed; its refusals are checked here.
 */
async function confirmShortage(
  { onError }: RedisStrategyContext,
  mirror: SaleMirror,
  { saleId }: Attempt,
  shortage: NoUnits,
  epoch: number,
): Promise<Rejection | Retry> {
  try {
    if (await mirror.isCurrent(saleId, epoch)) return shortage;
  } catch (error) {
    return busyOf(error);
  }
  mirror.supersede(saleId, epoch).catch((error) => onError('supersede-epoch', error, { saleId, epoch }));
  return SUPERSEDED;
}

/** @returns functions that decide an attempt even if Redis lacks the sale, and a second time if Redis gave no answer */
function resolver(
  context: RedisStrategyContext,
  mirror: SaleMirror,
  decide: (attempt: Attempt, place: SaleInEpoch) => Promise<StepInRedis>,
) {
  const loadOnce = loader(context, mirror);
  const { epochs } = context;

  async function tryOnce(attempt: Attempt): Promise<Tried> {
    const { saleId } = attempt;
    const keys = mirror.keys(saleId);
    let epoch: number | null = null;
    let untilMs = 0;
    try {
      for (;;) {
        const copy = epochs.foundOf(keys.state) ?? (await epochs.current(keys.state));
        epoch = copy.epoch;
        const isLeft =
          isAhead(context) && !mirror.isConfirmed(saleId, epoch) && !(await mirror.confirm(saleId));
        const decided = isLeft ? STALE : await decide(attempt, { keys, epoch });
        // The answer may come from another Redis than the one whose epoch it is: restored from a snapshot, promoted, or another copy.
        const isStale = DECIDED.has(decided.kind) && !epochs.isStill(keys.state, copy);
        if (isStale && decided.kind === 'reserved') return { step: RESERVED_ELSEWHERE, epoch };
        const step = isStale ? STALE : decided;
        if (step.kind !== 'retry') return { step, epoch };
        untilMs ||= performance.now() + LOAD_WAIT_MS;
        if (performance.now() > untilMs) return { step: { kind: 'busy', reason: step.reason }, epoch };
        if (step === LATE) context.redis.serverOf(keys.state).clock.invalidate();
        if (step !== NOT_LOADED) continue;
        const rejection = await loadOnce(saleId).catch(busyOf);
        if (rejection !== null) return { step: rejection, epoch };
      }
    } catch (error) {
      return { step: resultOfError(error), epoch };
    }
  }

  /**
   * Whether what a retry found is final. If it was in another epoch, the first try may have reached another Redis, and taken a unit there:
   * no order of that one is committed if the sale is loaded in the retry's.
   */
  const isCurrent = (saleId: number, first: Tried, second: Tried): Promise<boolean> | true =>
    first.epoch === second.epoch || mirror.isCurrent(saleId, second.epoch!).catch(() => false);

  async function tryAgain(attempt: Attempt, first: Tried): Promise<Tried> {
    const { step, epoch } = first;
    if (step.kind !== 'unanswered' || !(await isOver(context, mirror.keys(attempt.saleId), step)))
      return first;
    const second = await tryOnce(attempt);
    const { kind } = second.step;
    const open = (reason: string) => ({ step: { ...step, reason: `${step.reason}, then ${reason}` }, epoch });
    // A retry that was not executed proves nothing: the first try may have taken a unit.
    if (second.step.kind === 'busy' || second.step.kind === 'unanswered') return open(second.step.reason);
    const mayComeBack = step === RESERVED_ELSEWHERE || (isAhead(context) && isInAnother(first, second));
    if (mayComeBack && kind !== 'reserved') return open(kind);
    return (await isCurrent(attempt.saleId, first, second)) ? second : open(STALE.reason);
  }

  return { tryOnce, tryAgain };
}

/** Whether a retry was in another Redis. With CONFIRM=accepted, what is reserved in one that was left is committed when the address leads back. */
const isInAnother = (first: Tried, second: Tried): boolean =>
  first.epoch !== null && first.epoch !== second.epoch;

/** Whether the commands of an unanswered try can no longer take effect. */
async function isOver(
  { redis }: RedisStrategyContext,
  { state }: SaleKeys,
  { lateUntilMs }: Unanswered,
): Promise<boolean> {
  try {
    const { clock } = redis.serverOf(state); // the server that would execute it now
    return await clock.hasPassed(lateUntilMs, 2 * limits.redisCommandMs);
  } catch (error) {
    expectedRedisFailure(error);
    return false;
  }
}

/**
 * Loads sales from Postgres: of all attempts that find a sale missing, in all processes, one copies its buyers while the
 * others wait.
 * @returns a function that loads one sale; it resolves to null when the attempt may be decided again, or to why it cannot be
 * loaded
 */
function loader(
  context: RedisStrategyContext,
  mirror: SaleMirror,
): (saleId: number) => Promise<Rejection | null> {
  const release = context.redis.locks.script('lock/release', 1);
  const renew = context.redis.locks.script('lock/renew', 1);
  const token = crypto.randomUUID();

  return shared(async (saleId) => {
    const claim = `stampede:{sale:${saleId}}:loading`;
    const { redis } = context.redis;
    const isClaimed = (await redis.set(claim, token, 'PX', LOAD_CLAIM_MS, 'NX')) !== null;
    // This process's own claim is left of a load that lost its connection: it loads one sale once at a time.
    if (!isClaimed && (await redis.get(claim)) !== token) {
      await sleep(LOAD_POLL_MS);
      return null;
    }
    const renewEveryMs = LOAD_CLAIM_MS / 3;
    const renewing = setInterval(() => renew(claim, token, LOAD_CLAIM_MS).catch(() => {}), renewEveryMs);
    try {
      const sale = await context.sales.get(saleId);
      if (sale === null) return { kind: 'unknown-sale' };
      await mirror.load(sale);
      return null;
    } finally {
      clearInterval(renewing);
      await release(claim, token).catch(() => {}); // it expires by itself
    }
  });
}

/** The refusal when a store failed before anything was taken. @throws a defect */
function busyOf(error: unknown): Rejection {
  return { kind: 'busy', reason: expectedFailure(error).reason };
}

/** @throws a defect */
function resultOfError(error: unknown): Extract<Rejection, { kind: 'busy' }> | Unanswered {
  const redis = classifyRedisError(error);
  const { kind, reason } = redis.kind === 'defect' ? classifyPostgresError(error) : redis; // `unsafe` inserts the order itself
  if (kind === 'defect') throw error;
  return kind === 'unknown' ? { kind: 'unanswered', reason, lateUntilMs: 0 } : { kind: 'busy', reason };
}

/** What a strategy with a lock reads before it decides. */
export interface SaleInRedis {
  readonly units: number;
  /** Why the sale does not sell now; null when it does. */
  readonly rejection: Rejection | null;
  /** The customer's earlier order, if any. */
  readonly held: Reservation | null;
}

/** The replies of lua/sale/fenced-deduct.lua that take nothing. */
const REFUSED = { 'not-loaded': NOT_LOADED, late: LATE, fenced: LEASE_LOST, empty: EMPTY } as const;

/** The fencing token of a lease, as the store compares it. */
function fenceOf({ lock }: RedisStrategyContext, lease: Lease | null): Fence {
  return { token: lease?.fencingToken ?? null, lock: lock.name };
}

/** Takes the units of an order under leases: the write of a strategy with a lock. @param counters where they are */
export async function deductUnderLease(
  context: RedisStrategyContext,
  { keys, epoch }: SaleInEpoch,
  attempt: Attempt,
  counters: readonly (Omit<CounterUnits, 'token'> & { readonly lease: Lease })[],
): Promise<StepInRedis | typeof EMPTY> {
  if (counters.some(({ lease }) => lease.signal.aborted)) return LEASE_LOST;
  const parts = counters.map(({ counter, units, lease }) => ({ counter, units, token: lease.fencingToken }));
  const reply = await context.redis.scripts.fencedDeduct(keys, attempt, parts, context.lock.name, epoch);
  if ('kind' in reply) return reply;
  const [kind, reservedAt, held = attempt.orderId] = reply;
  if (kind !== 'reserved' && kind !== 'held') return REFUSED[kind];
  return resultOfHeld(attempt, reservationOf(attempt, held, reservedAt!));
}

/**
 * Reads what lua/sale/reserve.lua reads; what follows from it is written later.
 * @param counter the counter of the units
 * @param lease null: none, for the control without a lock
 * @returns the sale, or why it cannot be read
 */
export async function readSaleInRedis(
  context: RedisStrategyContext,
  { keys, epoch }: SaleInEpoch,
  attempt: Attempt,
  counter: string,
  lease: Lease | null,
): Promise<SaleInRedis | Retry | typeof LEASE_LOST> {
  const fence = fenceOf(context, lease);
  const { fencedRead } = context.redis.scripts;
  const [state, units, buyer, ...terms] = await fencedRead(keys, attempt, counter, fence, epoch);
  if (state === 'not-loaded') return NOT_LOADED;
  if (state === 'fenced') return LEASE_LOST;
  return {
    units: Number(units),
    rejection: await rejectionOfTerms(context, keys, attempt, terms),
    held: buyer ? heldBy(attempt, buyer) : null,
  };
}

function heldBy(attempt: Attempt, buyer: string): Reservation {
  const [orderId = '', reservedAt = ''] = buyer.split(' ');
  return reservationOf(attempt, orderId, reservedAt);
}

/** The decision for a customer with an earlier order, or for this same attempt if its first reply was lost. */
export function resultOfHeld({ orderId }: Attempt, reservation: Reservation): StepInRedis {
  return { kind: orderId === reservation.orderId ? 'reserved' : 'held', reservation };
}

async function rejectionOfTerms(
  context: RedisStrategyContext,
  { state }: SaleKeys,
  { quantity, isEarly }: Attempt,
  [startsMs = '', endsMs = '', paused = '', maxPerOrder = '1']: readonly string[],
): Promise<Rejection | null> {
  const notOpen = (reason: NotOpen) => ({ kind: 'not-open', reason }) as const;
  if (paused === '1') return notOpen('paused');
  if (startsMs !== '' || endsMs !== '') {
    const [seconds, micros] = await context.redis.serverOf(state).redis.time();
    const nowMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
    if (startsMs !== '' && isEarly !== true && nowMs < Number(startsMs)) return notOpen('not-started');
    if (endsMs !== '' && nowMs >= Number(endsMs)) return notOpen('ended');
  }
  return quantity > Number(maxPerOrder) ? { kind: 'over-limit', maxPerOrder: Number(maxPerOrder) } : null;
}
