/** The whole audit of sales: wait until the stores are settled, read them, judge. For suites, and for tests elsewhere. */
import type { HistoryRecord } from '../kit/history.ts';
import { type AuditReport, audit } from './audit.ts';
import { isUnreadable, type StoresSnapshot } from './check.ts';
import { readStores, type Settled, type StoresToAudit, settle } from './reader.ts';

export interface SaleAudit extends StoresToAudit {
  readonly saleId: number;
  /** Attempts on this sale, or on several: others are left out. */
  readonly history: readonly HistoryRecord[];
  /** What `settle` returned before the service stopped; left out: the audit waits now, for a service that runs. */
  readonly settled?: ReadonlyMap<number, Settled>;
}

/** @returns the verdict, the number of each check, and findings in words */
export async function auditSale({ saleId, history, settled, ...stores }: SaleAudit): Promise<AuditReport> {
  const left = settled ?? (await settle(stores, [saleId]));
  const snapshots = await readStores(stores, [saleId], left);
  return audit(ofSale(history, saleId), snapshots.get(saleId)!);
}

export const ofSale = (history: readonly HistoryRecord[], saleId: number): readonly HistoryRecord[] =>
  history.every((record) => record.saleId === saleId)
    ? history
    : history.filter((record) => record.saleId === saleId);

/** Whether orders reached the stock; those that were closed since then count. */
export function reachedStock({ postgres }: StoresSnapshot): boolean {
  if (isUnreadable(postgres)) return false;
  const { id, stock } = postgres.sale;
  return postgres.orders.filter(({ saleId }) => saleId === id).length >= stock;
}
