/**
 * Reads of GET routes and tickets, on a separate pool of Postgres connections: a flood of reads cannot take the connections of
 * purchases. Concurrent requests for the same sale share a query that starts after they arrived.
 */
import type { RequestHandler } from 'express';
import { coalesce } from '../concurrency/coalesce.ts';
import { limits } from '../config/limits.ts';
import {
  previewRefund,
  type RefundPreview,
  readSaleRefund,
  type SaleRefund,
} from '../orders/sale-refunds.ts';
import { type UncommittedOrders, uncommittedOrders } from '../orders/uncommitted-orders.ts';
import { type Ledger, ledger } from '../points/ledger.ts';
import { type AuditedAct, readAuditLog } from '../store/postgres/audit-log.ts';
import { type OrderTable, orderTable } from '../store/postgres/orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { type SaleGroups, saleGroups } from '../store/postgres/sale-groups.ts';
import { type SaleTable, saleTable } from '../store/postgres/sales.ts';
import { type UnmatchedPaymentTable, unmatchedPaymentTable } from '../store/postgres/unmatched-payments.ts';
import { createWaitlist, type Waitlist } from '../store/postgres/waitlist.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import { busy } from './problems.ts';

export interface Reads {
  readonly sales: Pick<SaleTable, 'get' | 'getWithSeed' | 'list' | 'watch'>;
  readonly orders: Pick<OrderTable, 'get' | 'list' | 'unpaidOf' | 'counts' | 'pendingChanges'>;
  readonly uncommitted: UncommittedOrders;
  readonly refunds: {
    get(saleId: number): Promise<SaleRefund | null>;
    preview(saleId: number): Promise<RefundPreview>;
  };
  readonly points: Pick<Ledger, 'account'>;
  readonly auditLog: { ofSale(saleId: number, limit: number): Promise<readonly AuditedAct[]> };
  readonly unmatched: Pick<UnmatchedPaymentTable, 'list'>;
  readonly waitlist: Pick<Waitlist, 'find' | 'list'>;
  readonly groups: Pick<SaleGroups, 'list' | 'opensFor' | 'codesFrom'>;
  /** Reads that wait for a connection. */
  readonly waiting: number;
}

/** @param mirror null for a strategy that does not reserve @param currency of sales that name none */
export function readsFrom(postgres: PostgresStore, mirror: SaleMirror | null, currency: string): Reads {
  const sales = saleTable(postgres, currency);
  const orders = orderTable(postgres);
  const list = coalesce((query: string) => sales.list(JSON.parse(query)));
  return {
    sales: {
      get: coalesce((saleId: number) => sales.get(saleId)),
      getWithSeed: coalesce((saleId: number) => sales.getWithSeed(saleId)),
      watch: (saleIds) => sales.watch(saleIds),
      list: ({ limit, before, search, state }) => list(JSON.stringify({ limit, before, search, state })),
    },
    orders,
    uncommitted: uncommittedOrders(mirror, orders),
    refunds: {
      get: (saleId) => readSaleRefund(saleId, postgres.pool),
      preview: coalesce((saleId: number) => previewRefund(saleId, postgres.pool)),
    },
    points: ledger(postgres),
    auditLog: { ofSale: (saleId, limit) => readAuditLog(saleId, limit, postgres) },
    unmatched: unmatchedPaymentTable(postgres),
    waitlist: createWaitlist(postgres),
    groups: saleGroups(postgres),
    get waiting() {
      return postgres.pool.waitingCount;
    },
  };
}

/** Whether a further read would only wait. */
export const areFull = ({ waiting }: Pick<Reads, 'waiting'>): boolean => waiting >= limits.maxQueuedReads;

/** Refuses GET, and HEAD, which reads the same, while too many reads wait for a connection. */
export function boundReads(reads: Reads): RequestHandler {
  return (req, _res, next) => {
    if (req.method === 'GET' || req.method === 'HEAD') refuseFull(reads);
    next();
  };
}

/** @throws ProblemError while a further read would only wait */
export function refuseFull(reads: Pick<Reads, 'waiting'>): void {
  if (!areFull(reads)) return;
  const detail = 'Too many reads wait for a connection to Postgres. Retry after the delay in Retry-After.';
  throw busy('reads-overloaded', detail);
}
