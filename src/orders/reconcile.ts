/**
 * Compares what Redis holds of a sale with Postgres, which is the truth, and what Postgres counts with its own rows.
 *
 *   compare ──the same──▶ nothing to do
 *      ├──Redis differs, and nothing is under way──▶ repaired, unless anything happened there meanwhile
 *      ├──the sale is not in Redis, or from another epoch──▶ nothing to do: the next attempt opens it
 *      └──something is under way, or Postgres differs from itself──▶ told; looked at again next time
 */
import { freeUnits, type Sale } from '../domain/sale.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import type { MirrorSnapshot } from '../store/redis/scripts.ts';

export interface ReconcileContext {
  /** Null for a strategy that keeps nothing in Redis. */
  readonly mirror: SaleMirror | null;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
}

/** A sale in both stores, and in what they differ. */
export interface Comparison {
  readonly saleId: number;
  /** In words, by what makes two looks at a difference the same one. */
  readonly differences: ReadonlyMap<string, string>;
}

/** Each unit that is sold has one buyer, and the others are free. */
function agrees(seen: MirrorSnapshot, sale: Sale): boolean {
  return seen.remaining === freeUnits(sale) && seen.buyers === sale.sold;
}

/** Compares one sale. What changes while it is read can look like a difference: see `compareAll`. */
export async function compare(context: ReconcileContext, sale: Sale): Promise<Comparison> {
  const { mirror, orders } = context;
  const differences = new Map<string, string>();
  const differs = (words: string, same = words) => differences.set(same, words);
  const counted = await orders.counts(sale.id);
  if (counted.active !== counted.sold)
    differs(`Postgres counts ${counted.sold} sold, and has ${counted.active} active orders`);
  // In a sale that runs there is always one that was not told yet, but another one.
  const { units, oldest } = await orders.untold(sale.id);
  if (oldest !== null)
    differs(`Redis has not heard of ${units} units that were returned or taken again`, `move ${oldest}`);
  if (counted.pointsMissing > 0)
    differs(`${counted.pointsMissing} orders have other points entries than one and its reversal`);
  const seen = (await mirror?.snapshot(sale.id)) ?? null;
  if (mirror !== null && seen !== null) {
    const abandoned = await mirror.countAbandoned(sale.id);
    if (abandoned > 0) differs(`${abandoned} reservations in Redis belong to no process any more`);
    const free = seen.remaining + seen.pending;
    if (free !== freeUnits(sale))
      differs(`Redis has ${free} units free or reserved, Postgres ${freeUnits(sale)}`);
    if (seen.buyers !== sale.sold + seen.pending)
      differs(`Redis knows ${seen.buyers - seen.pending} buyers, Postgres ${sale.sold}`);
  }
  return { saleId: sale.id, differences };
}

/** Looks at a sale that differs. */
const LOOKS = 4;

/**
 * Compares every sale that can sell, or could a short while ago, and looks several times where it differs: what is under
 * way in a sale that runs changes from look to look, and a difference stays.
 * @param pauseMs between two looks, in milliseconds
 * @returns each sale, with its differences in words
 */
export async function* compareAll(
  context: ReconcileContext,
  pauseMs = 1_000,
): AsyncGenerator<{ readonly saleId: number; readonly differences: readonly string[] }> {
  for (const listed of await context.sales.recent()) {
    let { differences } = await compare(context, listed);
    for (let looks = 1; differences.size > 0 && looks < LOOKS; looks++) {
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
      const sale = await context.sales.get(listed.id);
      const again = sale === null ? new Map() : (await compare(context, sale)).differences;
      differences = new Map([...differences].filter(([same]) => again.has(same)));
    }
    yield { saleId: listed.id, differences: [...differences.values()] };
  }
}

export interface RepairContext {
  readonly mirror: SaleMirror;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
  readonly instruments: Instruments;
  readonly log: (message: string, details: object) => void;
}

/** Makes Redis what Postgres has, when nothing is under way. @returns whether Redis was changed */
export async function repair(
  { mirror, sales, orders, instruments, log }: RepairContext,
  listed: Sale,
): Promise<boolean> {
  const seen = await mirror.snapshot(listed.id);
  if (seen === null || seen.pending > 0 || agrees(seen, listed)) return false;
  // Read again, after Redis was seen: `correct` refuses when anything happened in Redis since then.
  const sale = await sales.get(listed.id);
  if (sale === null || agrees(seen, sale)) return false;
  // What Redis is about to hear is no drift.
  if ((await orders.untold(sale.id)).oldest !== null) return false;
  if (!(await mirror.repair(sale.id, seen, freeUnits(sale)))) return false;
  const drift = seen.remaining - freeUnits(sale);
  instruments.driftUnits.inc({ direction: drift >= 0 ? 'surplus' : 'missing' }, Math.abs(drift));
  const { id: saleId, remaining, sold } = sale;
  log('corrected Redis to what Postgres has', { saleId, redis: seen, postgres: { remaining, sold } });
  return true;
}
