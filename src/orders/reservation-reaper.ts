/**
 * The reservation reaper: commits or releases abandoned reservations, and repairs the drift of a mirror.
 *
 * One script call checks many sales. A reservation whose claim has ended is abandoned: the reaper claims it, and commits it or, when Postgres
 * rejects it, releases it. Terms that were changed in Postgres are taken over. A sale whose mirror differs from Postgres in two passes, and
 * looks the same in both, is compared again and, when nothing is in progress, loaded again: docs/explanation/consistency.md, "Drift".
 *
 * Each pass first checks whether Postgres or Redis has failed over. Passes of several processes may overlap: each claims different
 * reservations.
 */

import type { LoopHealth } from '../concurrency/loop-health.ts';
import { limits } from '../config/limits.ts';
import type { ClaimedReservation, Result } from '../domain/outcome.ts';
import type { Sale } from '../domain/sale.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { isStoreUnavailable } from '../store/failures/any-store.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import type { SaleDigest, SaleMirror } from '../store/redis/sale-mirror.ts';
import { termsOf } from '../store/redis/sale-records.ts';
import type { Backlog } from './backlog.ts';
import { differs, repair } from './drift.ts';
import type { OrderCommitter } from './order-committer.ts';
import { carryOut, fateOf } from './settlement.ts';

export interface ReaperContext {
  readonly mirror: SaleMirror;
  readonly committer: Pick<OrderCommitter, 'commit'>;
  readonly backlog: Pick<Backlog, 'beginPass'>;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
  readonly instruments: Instruments;
  readonly log: (message: string, details: object) => void;
  /** The health of the loop `reservation-reaper`. */
  readonly health: LoopHealth;
}

/** The work of one pass. */
export interface ReaperCounts {
  committed: number;
  released: number;
  /** Left for the next pass, because Postgres did not answer. */
  postponed: number;
  /** Sales whose mirror was repaired. */
  repaired: number;
  /** Sales that failed in this pass. */
  failed: number;
}

/**
 * One pass over all sales that can have reservations.
 * @param isStopped ends the pass early when it becomes true
 * @param memory the digests of the previous pass, and then of this one. Null: every sale that differs is compared at once, which
 *   is right before the first request
 * @throws what the stores throw; the next pass continues
 */
export async function reapOnce(
  context: ReaperContext,
  isStopped: () => boolean = () => false,
  memory: PreviousPass | null = null,
): Promise<ReaperCounts> {
  const counts: ReaperCounts = { committed: 0, released: 0, postponed: 0, repaired: 0, failed: 0 };
  const { health } = context;
  let unavailable: unknown = null;
  await context.mirror.checkEpochs();
  const scanned = new Set<string>();
  for await (const { sale, seen } of suspects(context, memory)) {
    if (isStopped()) return counts;
    scanned.add(String(sale.id));
    const item = `sale ${sale.id}`;
    if (health.isBackingOff(item)) continue;
    try {
      const digest = seen ?? (await context.mirror.digest(sale.id));
      if (hasOtherTerms(digest, sale)) await takeOverTerms(context, sale);
      if (isAbandoned(digest)) await reapAbandoned(context, sale, counts, isStopped);
      if (await repair(context, sale.id, digest)) counts.repaired++;
      health.succeeded(item);
    } catch (error) {
      // A failing sale must not stop the others. An unavailable store is not the fault of any sale, so no sale is then backed
      // off.
      counts.failed++;
      if (isStoreUnavailable(error)) unavailable = error;
      else health.failed(item, error);
    }
  }
  health.retain('sale', (id) => scanned.has(id) || memory?.has(Number(id)) === true);
  if (unavailable === null) health.succeeded(REAP);
  else health.failed(REAP, unavailable);
  return counts;
}

const REAP = 'reap reservations';

/** The digests of the sales that differed in the previous pass: a sale with the same digest now is idle. */
export type PreviousPass = Map<number, string>;

interface Suspect {
  readonly sale: Sale;
  /** Null: it could not be read together with others. */
  readonly seen: SaleDigest | null;
}

/** Sales with abandoned reservations, or with a mirror that differs from Postgres. */
async function* suspects(context: ReaperContext, memory: PreviousPass | null): AsyncGenerator<Suspect> {
  const { sales, mirror, backlog } = context;
  const sawPending = backlog.beginPass();
  let pending = 0;
  const before = memory && new Map(memory);
  memory?.clear();
  const readOne = (saleId: number) =>
    mirror.digest(saleId).catch((error) => {
      if (isStoreUnavailable(error)) pending = Number.POSITIVE_INFINITY; // nothing is known of its reservations
      return null;
    });
  for await (const some of sales.recent(limits.scanBatch)) {
    const ids = some.map(({ id }) => id);
    // When one of them cannot be read, each is read by itself.
    const seen = await mirror.scan(ids).catch(() => Promise.all(ids.map(readOne)));
    for (const one of seen) pending += one?.pending ?? 0;
    await leaveOldEpochs(context, some, seen);
    for (const [i, sale] of some.entries()) {
      const one = seen[i]!;
      if (one === null || hasOtherTerms(one, sale) || isAbandoned(one)) {
        yield { sale, seen: one };
      } else if (differs(one, sale)) {
        const digest = JSON.stringify({ ...one, nowMs: 0 });
        memory?.set(sale.id, digest);
        if (before === null || before.get(sale.id) === digest) yield { sale, seen: one };
      }
    }
  }
  sawPending(pending);
}

/** Leaves those epochs in which a sale is loaded, although it was loaded in another one since. */
async function leaveOldEpochs(
  { mirror, log }: ReaperContext,
  scanned: readonly Sale[],
  seen: readonly (SaleDigest | null)[],
): Promise<void> {
  const loaded = scanned.flatMap(({ id }, i) =>
    seen[i] == null || seen[i].free === null ? [] : [[id, seen[i].epoch] as const],
  );
  if (loaded.length === 0) return;
  const loadedIn = await mirror.loadedIn(loaded.map(([id]) => id)); // read after Redis, so it is not older
  for (const [saleId, epoch] of loaded) {
    const now = loadedIn.get(saleId) ?? epoch;
    if (now !== epoch && (await mirror.supersede(saleId, epoch)))
      log('a sale was loaded in another epoch of Redis', { saleId, epoch, loadedIn: now });
  }
}

const isAbandoned = ({ ageMs }: SaleDigest): boolean => ageMs >= limits.claimMs;

const hasOtherTerms = ({ free, terms }: SaleDigest, sale: Sale): boolean =>
  free !== null && terms !== termsOf(sale);

/** The terms were changed in Postgres. */
async function takeOverTerms({ mirror, log }: ReaperContext, sale: Sale): Promise<void> {
  await mirror.setTerms(sale);
  log('took over changed terms', { saleId: sale.id });
}

async function reapAbandoned(
  context: ReaperContext,
  sale: Sale,
  counts: ReaperCounts,
  isStopped: () => boolean,
): Promise<void> {
  const { mirror } = context;
  while (!isStopped()) {
    const abandoned = await mirror.claimAbandoned(sale.id, limits.reapBatch);
    if (abandoned === null) {
      await mirror.load(sale); // reservations of a sale that is not loaded stay: see lua/sale/acknowledge.lua
      continue;
    }
    const { postponed } = counts;
    await Promise.all(abandoned.map((reservation) => reapOne(context, reservation, counts)));
    if (abandoned.length < limits.reapBatch || counts.postponed > postponed) return;
  }
}

/**
 * A reservation that fails does not stop the others of its sale. It keeps its claim, and is tried again when that has ended.
 * @throws what an unavailable store throws
 */
async function reapOne(
  context: ReaperContext,
  reservation: ClaimedReservation,
  counts: ReaperCounts,
): Promise<void> {
  const item = `order ${reservation.orderId}`;
  try {
    const result = await commitOrRelease(context, reservation, counts);
    if (result.kind === 'busy' && result.cause === 'order')
      context.health.failed(item, new Error(result.reason));
    else context.health.succeeded(item);
  } catch (error) {
    if (isStoreUnavailable(error)) throw error;
    counts.postponed++;
    context.health.failed(item, error);
  }
}

/** In the metric: whether the order was committed, or the customer has another one; else Postgres rejected it. */
const RESULTS: Record<string, string> = { accepted: 'committed', replayed: 'existing' };

async function commitOrRelease(
  context: ReaperContext,
  reservation: ClaimedReservation,
  counts: ReaperCounts,
): Promise<Result> {
  const { mirror, committer, instruments, log } = context;
  const result = await committer.commit(reservation);
  await carryOut(mirror, reservation, fateOf(reservation, result, false));
  switch (result.kind) {
    case 'accepted':
      counts.committed++;
      break;
    case 'retry':
    case 'busy':
    case 'unknown':
      counts.postponed++;
      return result;
    default:
      counts.released++;
  }
  const { orderId, saleId, userId } = reservation;
  const settled = RESULTS[result.kind] ?? 'rejected';
  instruments.reservationsReaped.inc({ result: settled });
  log('settled an abandoned reservation', { orderId, saleId, userId, result: settled });
  return result;
}
