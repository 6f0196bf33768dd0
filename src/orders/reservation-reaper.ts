/**
 * Settles what dead processes left between the stores.
 *
 * Most sales need nothing; one script call checks many at once. A reservation whose claim is over is abandoned: the recovery
 * claims it, and commits it, or, when Postgres refuses, releases it. A sale of which Redis counts something else
 * than Postgres is compared once more and, when nothing is under way, corrected: a process that died between the two stores
 * can have left units that neither sells. A sale that is selling always seems to differ, since the stores are read one
 * after the other: only one that looks the same in two passes is compared. A thousand sales that sell, or one with a million
 * buyers, so cost a pass no more than a look; a difference does no harm before Redis has sold out, and then nothing moves.
 *
 * One pass is one call; several processes may make theirs at the same time: each claims other reservations.
 */
import { limits } from '../config/limits.ts';
import type { ClaimedReservation } from '../domain/outcome.ts';
import { freeUnits, type Sale } from '../domain/sale.ts';
import type { LoopHealth } from '../metrics/background.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { isStoreAway } from '../store/failures.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import type { SaleDigest } from '../store/redis/scripts.ts';
import type { Strategy } from '../strategies/strategy.ts';
import type { CommitResult, OrderCommitter } from './order-committer.ts';
import { repair } from './reconcile.ts';
import { repeatedly } from './sweep.ts';

export interface ReaperContext {
  readonly strategy: Strategy & { readonly mirror: SaleMirror };
  readonly writer: OrderCommitter;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
  readonly instruments: Instruments;
  readonly log: (message: string, details: object) => void;
  /** Of recovery. */
  readonly health: LoopHealth;
}

/** What one pass did. */
export interface ReaperCounts {
  committed: number;
  returned: number;
  /** Left for the next pass, because Postgres did not answer. */
  postponed: number;
  /** Sales whose units or buyers in Redis were corrected. */
  corrected: number;
  /** Sales that could not be looked after this time. */
  failed: number;
}

/**
 * One pass over all sales that can have reservations.
 * @param isStopped ends the pass early when it begins to hold
 * @param memory of the pass before, for the next one. Null: every sale that differs is compared at once, as is right before
 *   the first request
 * @throws what the stores throw; the next pass goes on
 */
export async function reapOnce(
  context: ReaperContext,
  isStopped: () => boolean = () => false,
  memory: ReaperMemory | null = null,
): Promise<ReaperCounts> {
  const counts: ReaperCounts = { committed: 0, returned: 0, postponed: 0, corrected: 0, failed: 0 };
  const { health } = context;
  let away: unknown = null;
  const looked = new Set<string>();
  for await (const sale of needy(context, memory)) {
    if (isStopped()) return counts;
    looked.add(String(sale.id));
    const item = `sale ${sale.id}`;
    if (health.isBackingOff(item)) continue;
    try {
      await settleAbandoned(context, sale, counts, isStopped);
      const { mirror } = context.strategy;
      if (await repair({ ...context, mirror }, sale)) counts.corrected++;
      health.succeeded(item);
    } catch (error) {
      // One sale's trouble is not the others'. A store that is away is no sale's: nothing rests when it is back.
      counts.failed++;
      if (isStoreAway(error)) away = error;
      else health.failed(item, error);
    }
  }
  health.retain('sale', (id) => looked.has(id) || memory?.has(Number(id)) === true);
  if (away === null) health.succeeded(RECOVER);
  else health.failed(RECOVER, away);
  return counts;
}

const RECOVER = 'recover sales';

/** What the sales looked like that differed in the pass before: one that looks the same now stands still. */
export type ReaperMemory = Map<number, string>;

/** Sales that have abandoned reservations, or differ from Postgres; the others cost one look for many of them. */
async function* needy(
  { sales, strategy: { mirror } }: ReaperContext,
  memory: ReaperMemory | null,
): AsyncGenerator<Sale> {
  const all = await sales.recent();
  const before = memory && new Map(memory);
  memory?.clear();
  for (let from = 0; from < all.length; from += limits.scanBatch) {
    const some = all.slice(from, from + limits.scanBatch);
    // Where one of them cannot be read, each is looked at by itself.
    const seen = await mirror.scan(some.map(({ id }) => id)).catch(() => null);
    for (const [i, sale] of some.entries()) {
      if (seen === null || seen[i]!.ageMs >= limits.claimMs) {
        yield sale;
      } else if (differs(seen[i]!, sale)) {
        const glance = JSON.stringify(seen[i]);
        memory?.set(sale.id, glance);
        if (before === null || before.get(sale.id) === glance) yield sale;
      }
    }
  }
}

/** What is under way would explain any difference. */
function differs({ free, pending, buyers }: SaleDigest, sale: Sale): boolean {
  return free !== null && pending === 0 && (free !== freeUnits(sale) || buyers !== sale.sold);
}

async function settleAbandoned(
  context: ReaperContext,
  sale: Sale,
  counts: ReaperCounts,
  isStopped: () => boolean,
): Promise<void> {
  const { mirror } = context.strategy;
  while (!isStopped() && (await mirror.countAbandoned(sale.id)) > 0) {
    // Of a sale that is not open none is forgotten: see lua/sale/acknowledge.lua.
    if ((await mirror.snapshot(sale.id)) === null) await mirror.load(sale);
    const abandoned = await mirror.claimAbandoned(sale.id, limits.reapBatch);
    const { postponed } = counts;
    await Promise.all(abandoned.map((reservation) => settleAlone(context, reservation, counts)));
    if (abandoned.length < limits.reapBatch || counts.postponed > postponed) return;
  }
}

/**
 * One that fails keeps no other of its sale from being settled; it keeps its claim, and is tried again when that is over.
 * @throws what a store throws that is away
 */
async function settleAlone(
  context: ReaperContext,
  reservation: ClaimedReservation,
  counts: ReaperCounts,
): Promise<void> {
  const item = `order ${reservation.orderId}`;
  try {
    const result = await settle(context, reservation, counts);
    const isRefused = result.kind === 'busy' && result.reason.startsWith('refused-by-postgres');
    if (isRefused) context.health.failed(item, new Error(result.reason));
    else context.health.succeeded(item);
  } catch (error) {
    if (isStoreAway(error)) throw error;
    counts.postponed++;
    context.health.failed(item, error);
  }
}

async function settle(
  context: ReaperContext,
  reservation: ClaimedReservation,
  counts: ReaperCounts,
): Promise<CommitResult> {
  const { strategy, writer, instruments, log } = context;
  const result = await writer.commit(reservation);
  switch (result.kind) {
    case 'committed': // the writer forgets the reservation
      counts.committed++;
      break;
    case 'existing':
      await strategy.release(reservation, { ownerOrderId: result.order.orderId });
      counts.returned++;
      break;
    case 'refused':
      await strategy.release(reservation, { discardUnit: true });
      counts.returned++;
      break;
    case 'busy':
      await strategy.mirror.unclaim(reservation);
      counts.postponed++;
      return result;
    case 'unknown':
      counts.postponed++;
      return result;
  }
  const { orderId, saleId, userId } = reservation;
  instruments.reservationsReaped.inc({ result: result.kind });
  log('settled a reservation that its process had left', { orderId, saleId, userId, result: result.kind });
  return result;
}

/**
 * Passes, one after the other, until stopped.
 * @returns stops it, and waits for the pass under way
 */
export function startReaper(context: ReaperContext): () => Promise<void> {
  const memory: ReaperMemory = new Map();
  return repeatedly(limits.reapEveryMs, (isStopped) =>
    context.health.step('look for sales', () => reapOnce(context, isStopped, memory)),
  );
}
