/** Answers of the service, as values: also a missing response is one. */
import type * as z from 'zod';
import type {
  auditedActSchema,
  auditSchema,
  orderSchema,
  placedOrderSchema,
  readinessSchema,
  refundPreviewSchema,
  saleEventSchema,
  saleRefundSchema,
  saleSchema,
  strategiesSchema,
  taskSchema,
  ticketSchema,
  waitlistEntrySchema,
} from '../../http/answer-schemas.ts';
import type { ProblemSlug } from '../../http/problems.ts';

export type Sale = z.output<typeof saleSchema>;
export type SaleEvent = z.output<typeof saleEventSchema>;
export type Order = z.output<typeof orderSchema>;
export type PlacedOrder = z.output<typeof placedOrderSchema>;
export type Ticket = z.output<typeof ticketSchema>;
export type Strategies = z.output<typeof strategiesSchema>;
export type Audit = z.output<typeof auditSchema>;
export type AuditedAct = z.output<typeof auditedActSchema>;
export type Task = z.output<typeof taskSchema>;
export type WaitlistEntry = z.output<typeof waitlistEntrySchema>;
type Readiness = z.output<typeof readinessSchema>;
/** An event of the console. */
export interface Health extends Pick<Readiness, 'stores'> {
  readonly now: number;
  readonly degraded: NonNullable<Readiness['degraded']>;
  /** Tasks, and payments; null: they cannot be counted. */
  readonly work: { readonly retried: number; readonly dead: number; readonly unmatched: number } | null;
}
/** A refund of all orders of a sale. */
export type SaleRefund = z.output<typeof saleRefundSchema>;
export type RefundPreview = z.output<typeof refundPreviewSchema>;

export interface Problem {
  readonly kind: 'problem';
  readonly slug: ProblemSlug;
  readonly detail: string;
  readonly status: number;
  /** The pause that `Retry-After` asks for; null: there is none, or a proxy sent a date. */
  readonly retryMs: number | null;
  readonly body: Readonly<Record<string, unknown>>;
}

export type Answer<T> =
  /** @param sentMs by the clock of the service, in whole seconds; NaN: a proxy removed it */
  | { readonly kind: 'ok'; readonly status: number; readonly sentMs: number; readonly body: T }
  | Problem
  /** No response came: the request may have taken effect. */
  | { readonly kind: 'lost' };
