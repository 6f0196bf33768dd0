/** The whole audit of one sale: wait until the stores are settled, read them, judge. For suites, and for tests elsewhere. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { HistoryRecord } from '../history.ts';
import { type AuditReport, audit } from './audit.ts';
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
  return audit(history, ...(await readStores(stores, [saleId], left)).values());
}

/** The service corrects counters of Redis once their sale has been idle for 2 s. */
const REPAIR_MS = 3_000;

/**
 * Audits a sale after a possible fault. Waits for repairs in progress, which are not errors.
 * @param options.stop the service, once nothing is in flight between the stores
 * @param options.isControl the audit must fail, so it does not wait for repairs
 * @returns the report, and how long the repairs took
 */
export async function auditRepaired(
  sale: SaleAudit,
  { stop, isControl }: { readonly stop: () => Promise<unknown>; readonly isControl: boolean },
): Promise<{ readonly report: AuditReport; readonly settledMs: number }> {
  const endedMs = performance.now();
  const settled = await settle(sale, [sale.saleId]);
  const settledMs = Math.round(performance.now() - endedMs);
  const early = await auditSale({ ...sale, settled });
  if (early.verdict === 'fail' && !isControl) await sleep(REPAIR_MS);
  await stop();
  return { report: await auditSale({ ...sale, settled }), settledMs };
}
