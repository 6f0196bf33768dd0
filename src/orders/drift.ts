/**
 * Compares the mirror of a sale with Postgres, the source of truth, and Postgres's counts with its own rows.
 *
 *   compare ──no drift──▶ nothing to do
 *      ├──Redis differs, and nothing is in progress──▶ repaired, unless anything changes there meanwhile
 *      ├──the sale is not in Redis, or from another epoch──▶ nothing to do: the next attempt loads it
 *      └──something is in progress, or Postgres contradicts itself──▶ reported; compared again next time
 */
import { limits } from '../config/limits.ts';
import { freeUnits, type Sale } from '../domain/sale.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import type { SaleDigest, SaleMirror } from '../store/redis/sale-mirror.ts';

export interface ReconcileContext {
  /** Null for a strategy without a mirror. */
  readonly mirror: SaleMirror | null;
  readonly sales: Pick<SaleTable, 'get'>;
  readonly orders: Pick<OrderTable, 'counts' | 'pendingChanges'>;
}

/** The differences between the stores for one sale. */
export interface Comparison {
  readonly saleId: number;
  /**
   * Descriptions, by a key that identifies a difference from one comparison to the next. One between the stores, which are not read at one
   * moment, is the same only while its numbers are.
   */
  readonly differences: ReadonlyMap<string, string>;
  /** Whether Redis has the sale, so that it was compared. */
  readonly isMirrored: boolean;
  /** Reservations in Redis that Postgres does not have as orders yet; also of a sale that was not compared. */
  readonly uncommitted: number;
}

/** A comparison whose differences lasted. */
export interface Verdict extends Omit<Comparison, 'differences'> {
  /** A description of each. */
  readonly differences: readonly string[];
}

/** Each sold unit has a buyer; all other units are free. Pending reservations explain any difference. */
export function differs({ free, pending, held }: SaleDigest, sale: Sale): boolean {
  return free !== null && pending === 0 && (free !== freeUnits(sale) || held !== sale.sold);
}

/** Compares one sale. A change while it is read can look like a difference: see `compareSale`. */
export async function compare(context: ReconcileContext, sale: Sale): Promise<Comparison> {
  const { mirror, orders } = context;
  const differences = new Map<string, string>();
  const add = (description: string, key = description) => differences.set(key, description);
  const counted = await orders.counts(sale.id);
  if (counted.active !== counted.sold)
    add(`Postgres counts ${counted.sold} sold, and ${counted.active} in active orders`, 'sold');
  // A running sale always has pending changes, but not the same ones.
  const { units, oldest } = await orders.pendingChanges(sale.id);
  if (counted.pointsMissing > 0)
    add(
      `${counted.pointsMissing} orders have other points entries than one and its reversal`,
      'points entries',
    );
  const { free = null, held = 0, nowMs = 0 } = (await mirror?.digest(sale.id)) ?? {};
  const reservations = (await mirror?.reservations(sale.id)) ?? [];
  if (free !== null) {
    if (oldest !== null) add(`${units} units changed in Postgres and not in Redis yet`, `outbox ${oldest}`);
    const abandoned = reservations.filter(({ claimedAtMs }) => claimedAtMs <= nowMs - limits.claimMs);
    if (abandoned.length > 0)
      add(`${abandoned.length} reservations in Redis are abandoned`, `reservation ${abandoned[0]!.orderId}`);
    const pending = reservations.reduce((sum, { quantity }) => sum + quantity, 0);
    if (free + pending !== freeUnits(sale))
      add(`Redis has ${free + pending} units free or reserved, Postgres ${freeUnits(sale)}`);
    if (held !== sale.sold + pending)
      add(`Redis knows buyers of ${held - pending} units, Postgres of ${sale.sold}`);
  }
  const uncommitted = reservations.length;
  return { saleId: sale.id, differences, isMirrored: free !== null, uncommitted };
}

/** Comparisons of a sale that differs, and milliseconds between two. */
const COMPARISONS = 4;
const PAUSE_MS = 1_000;

/** Compares a sale, and repeats the comparison while it differs: work in progress changes between comparisons, drift does not. */
export async function compareSale(context: ReconcileContext, listed: Sale): Promise<Verdict> {
  let { differences, isMirrored, uncommitted } = await compare(context, listed);
  for (let n = 1; differences.size > 0 && n < COMPARISONS; n++) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    const sale = await context.sales.get(listed.id);
    if (sale === null) return { saleId: listed.id, differences: [], isMirrored: false, uncommitted: 0 };
    const again = await compare(context, sale);
    differences = new Map([...again.differences].filter(([key]) => differences.has(key)));
    ({ isMirrored, uncommitted } = again);
  }
  return { saleId: listed.id, differences: [...differences.values()], isMirrored, uncommitted };
}

export interface RepairContext {
  readonly mirror: SaleMirror;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
  readonly instruments: Instruments;
  readonly log: (message: string, details: object) => void;
}

/**
 * Repairs the drift of a sale when nothing is in progress.
 * @param seen in Redis; nothing is changed if anything has happened there since
 * @returns whether Redis was changed
 */
export async function repair(
  { mirror, sales, orders, instruments, log }: RepairContext,
  saleId: number,
  seen: SaleDigest,
): Promise<boolean> {
  const sale = await sales.get(saleId); // read after Redis
  if (sale === null || !differs(seen, sale)) return false;
  // A pending change is not drift.
  if ((await orders.pendingChanges(sale.id)).oldest !== null) return false;
  if (!(await mirror.load(sale, seen))) return false;
  const drift = seen.free! - freeUnits(sale);
  instruments.driftUnits.inc({ direction: drift >= 0 ? 'surplus' : 'missing' }, Math.abs(drift));
  const { remaining, sold } = sale;
  log('repaired drift in Redis', { saleId, redis: seen, postgres: { remaining, sold } });
  return true;
}
