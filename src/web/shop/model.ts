/** What the page of a sale knows, what happens on it, and the requests that it sends. */
import type {
  Answer,
  Order,
  PlacedOrder,
  Problem,
  Sale,
  SaleEvent,
  Ticket,
  WaitlistEntry,
} from '../ui/answers.ts';

/** Data that the server embeds in the page. */
export interface SaleData {
  readonly now: number;
  readonly sale: Sale;
  readonly auth: 'none' | 'jwt';
  readonly canPay: boolean;
  /** From when on codes open a sale that has not started, ISO 8601; null: none does. */
  readonly codesFrom: string | null;
  /** How long an order of the sale may stay unpaid. */
  readonly paymentWindowS: number;
  readonly proofWorker: string;
}

export type WaitReason = 'busy' | 'limit' | 'unknown' | 'turn';

export type Attempt =
  | { readonly kind: 'idle' | 'ticket' | 'proving' | 'ordering' }
  /** @param untilMs by the server's clock */
  | {
      readonly kind: 'waiting';
      readonly why: WaitReason;
      readonly untilMs: number;
    }
  /** @param problem of the refusal to show if there is no order; null: the visitor stopped */
  | { readonly kind: 'looking'; readonly problem: Problem | null }
  | { readonly kind: 'placed'; readonly orderId: string }
  | { readonly kind: 'refused'; readonly problem: Problem };

/** The answer to a payment that belongs to no order, or to one of another price. */
export interface Unmatched {
  readonly result: 'unmatched';
  readonly reason: string;
}

export interface State extends Omit<SaleData, 'now'> {
  /** Whether events of the sale arrive. */
  readonly isLive: boolean;
  /** A name with AUTH=none, the issuer's token with AUTH=jwt; empty: not chosen yet. */
  readonly identity: string;
  /** Units that the visitor asks for. */
  readonly units: number;
  /** Opens the sale before it starts; empty: none. */
  readonly code: string;
  readonly attempt: Attempt;
  readonly ticket: Ticket | null;
  /** Tickets that were not accepted, one after the other. */
  readonly invalidTickets: number;
  /** Whether a reload enters the waiting room again. */
  readonly isQueued: boolean;
  /** When a request ended that may have placed an order, by the server's clock; null: none may have. */
  readonly doubtMs: number | null;
  readonly order: Order | null;
  /** An order is accepted, and its commit follows. */
  readonly isUncommitted: boolean;
  /** Whether the latest read of the order failed. */
  readonly isUnread: boolean;
  /** The latest payment or cancellation, or that the order was accepted, but not committed. */
  readonly change: 'pending' | 'gone' | Answer<Order | Unmatched> | null;
  /** The visitor's place among those who wait for units; null: none. */
  readonly entry: WaitlistEntry | null;
  /** The request to join or leave the waitlist, or why it failed. */
  readonly waitlist: 'pending' | Problem | null;
  /** The latest task when the visitor became another, or the waitlist was joined or left: what earlier ones read of it is old. */
  readonly listedAfter: number;
  /** Units came back to a sale that was sold out. */
  readonly isReturned: boolean;
  /** The latest read while it lasts, and when it was sent. The answer of an earlier one may be old. */
  readonly reading: { readonly id: number; readonly sentMs: number } | null;
  /** The task that the attempt waits for. The ends of its earlier ones do not count. */
  readonly awaited: number | null;
  readonly tasks: number;
  /** Tasks that follow the latest event. */
  readonly todo: readonly { readonly id: number; readonly task: Task }[];
}

export type Task =
  | { readonly do: 'ticket'; readonly proof?: { readonly challenge: string; readonly nonce: string } }
  | { readonly do: 'proof'; readonly challenge: string; readonly bits: number }
  | { readonly do: 'order' | 'read' | 'join' | 'leave' | 'place' }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'pay' | 'cancel'; readonly order: Order };

/** How a task ended. */
export type Outcome =
  | { readonly of: 'ticket'; readonly answer: Answer<Ticket> }
  /** @param nonce null: the worker cannot be loaded */
  | { readonly of: 'proof'; readonly challenge: string; readonly nonce: string | null }
  | { readonly of: 'order'; readonly answer: Answer<PlacedOrder> }
  | { readonly of: 'wait' }
  | { readonly of: 'read'; readonly answer: Answer<Order> }
  | { readonly of: 'change'; readonly answer: Answer<Order | Unmatched> }
  /** @param answer null: the visitor is not on the waitlist */
  | {
      readonly of: 'waitlist';
      readonly by: 'join' | 'leave' | 'place';
      readonly answer: Answer<WaitlistEntry | null>;
    };

export type PageEvent =
  /** @param saved what `saved` returned before a reload */
  | { readonly is: 'opened'; readonly saved: string }
  | { readonly is: 'sale'; readonly sale: Omit<SaleEvent, 'now'> }
  | { readonly is: 'live'; readonly isLive: boolean }
  | { readonly is: 'named'; readonly identity: string }
  | { readonly is: 'stepped'; readonly units: number }
  | { readonly is: 'pressed'; readonly identity: string; readonly units: number; readonly code?: string }
  | { readonly is: 'joined'; readonly identity: string; readonly units: number }
  | { readonly is: 'stopped' | 'left' }
  | { readonly is: 'changing'; readonly by: 'pay' | 'cancel'; readonly order: Order }
  /** From time to time, while the page is visible. */
  | { readonly is: 'ticked' }
  | { readonly is: 'ended'; readonly id: number; readonly outcome: Outcome };

/** @param jitterMs up to 1,000: added to a wait, so that customers who were refused together do not repeat together */
export interface Moment {
  readonly nowMs: number;
  readonly jitterMs: number;
}
