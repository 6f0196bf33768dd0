/** The whole audit of one sale: wait until the stores are settled, read them, judge. For suites, and for tests elsewhere. */
import type { HistoryRecord } from '../history.ts';
import { type AuditReport, audit } from './audit.ts';
import { readStores, type Settled, type StoresToAudit, settle } from './reader.ts';

export interface SaleAudit extends StoresToAudit {
  readonly saleId: number;
  /** Attempts on this sale; attempts on other sales are ignored. */
  readonly history: readonly HistoryRecord[];
  /** The result of `settle` before the service stopped; by default the audit waits now, for a service that runs. */
  readonly settled?: ReadonlyMap<number, Settled>;
}

/** @returns the verdict, the count of each check, and findings in words */
export async function auditSale({ saleId, history, settled, ...stores }: SaleAudit): Promise<AuditReport> {
  const left = settled ?? (await settle(stores, [saleId]));
  return audit(history, ...(await readStores(stores, [saleId], left)).values());
}
