/** What the routes take and answer, as /openapi.json describes it. test/client/types.test.ts compares the two. */

export type OrderStatus = 'pending' | 'paid' | 'cancelled' | 'expired' | 'refund-due';

/** Amounts are integers in the smallest unit of the sale's currency, and instants ISO 8601. */
export interface Sale {
  readonly id: number;
  readonly name: string;
  /** Plain text; null: there is none. */
  readonly description: string | null;
  /** A picture for the pages: `https:`, or `http:` on loopback. */
  readonly imageUrl: string | null;
  /** ISO 4217. */
  readonly currency: string;
  readonly priceCents: number;
  readonly stock: number;
  /** Units of active orders. */
  readonly sold: number;
  readonly remaining: number;
  readonly startsAt: string | null;
  readonly endsAt: string | null;
  readonly maxPerOrder: number;
  readonly paused: boolean;
  /** Seconds for which an order may stay unpaid; null: PAYMENT_WINDOW_S. */
  readonly paymentWindowS: number | null;
  /** What a returned unit does for the first waiting customer: `hold` places the order. */
  readonly waitlist: 'notify' | 'hold';
  /** Seconds for which an order of the waitlist may stay unpaid. */
  readonly waitlistHoldS: number | null;
  /** Length of the lottery, seconds; only of a sale that has one. */
  readonly spreadS?: number;
  /** Names the sales over which a customer is limited; only of a sale with such a limit, as the next one. */
  readonly limitGroup?: string;
  /** The most units of a customer in active orders of all sales of the group. */
  readonly maxPerCustomer?: number;
}

export interface NewSale
  extends Pick<Sale, 'name' | 'priceCents' | 'stock'>,
    Partial<Pick<Sale, 'startsAt' | 'endsAt' | 'maxPerOrder' | 'paymentWindowS' | 'spreadS'>>,
    Partial<Pick<Sale, 'description' | 'imageUrl' | 'currency' | 'waitlist'>> {
  /** With `maxPerCustomer`; null: no limit. */
  readonly limitGroup?: string | null;
  readonly maxPerCustomer?: number | null;
  readonly waitlistHoldS?: number;
}

export interface SaleChanges extends Partial<Omit<NewSale, 'stock' | 'spreadS'> & Pick<Sale, 'paused'>> {}

export interface NewGroup {
  readonly name: string;
  /** Before `startsAt` of the sale. */
  readonly opensAt: string;
  /** Missing, with AUTH=jwt: the customers whose token has the name in its claim `groups`. */
  readonly codes?: readonly { readonly code: string; readonly uses: number }[];
}

export interface SaleGroup extends Omit<NewGroup, 'codes'> {
  readonly saleId: number;
  /** Null: a group of tokens. */
  readonly codes: { readonly count: number; readonly uses: number; readonly taken: number } | null;
}

export interface SaleQuery {
  readonly limit?: number;
  /** Only sales with a smaller id: that of the last one of the page before. */
  readonly before?: number;
  readonly search?: string;
  readonly state?: 'scheduled' | 'open' | 'paused' | 'sold-out' | 'ended';
}

/** Of an order, and of a place in the waitlist. */
export interface Purchase {
  /** With AUTH=jwt the ticket, or the token, names the customer, and this is ignored. */
  readonly userId: string;
  /** Units, all or none; by default 1. */
  readonly quantity?: number;
  /** Of a group of the sale that may buy earlier. With AUTH=jwt, it goes with the request for a ticket. */
  readonly code?: string;
}

export interface PlacedOrder {
  readonly orderId: string;
  readonly saleId: number;
  readonly userId: string;
  readonly status: OrderStatus;
  /** Units; of a repeat those of the existing order. */
  readonly quantity: number;
  readonly replayed: boolean;
}

export interface Order extends Omit<PlacedOrder, 'replayed'> {
  /** Of one unit. */
  readonly priceCents: number;
  /** To pay: price × quantity. */
  readonly amountCents: number;
  readonly createdAt: string;
  readonly expiresAt: string;
  readonly paidAt: string | null;
  readonly closedAt: string | null;
}

export interface Refund {
  /** By default true; otherwise the units leave the stock. */
  readonly returnUnits?: boolean;
}

/** The progress of the refund of a sale. */
export interface SaleRefund {
  readonly saleId: number;
  readonly returnUnits: boolean;
  /** Orders that were active when it was requested. */
  readonly orders: number;
  /** Those of them that still are. */
  readonly remaining: number;
  readonly requestedAt: string;
  readonly finishedAt: string | null;
}

export interface WaitlistEntry {
  readonly saleId: number;
  readonly userId: string;
  readonly quantity: number;
  readonly joinedAt: string;
  /** 1 is the first; 1,001: after the first thousand; null: the customer was named. */
  readonly place: number | null;
  /** When as many units were free. */
  readonly namedAt: string | null;
  /** The customer's active order: with `waitlist: hold` the list places it. */
  readonly orderId: string | null;
}

export interface PaymentNotification {
  /** The payment's own id at the provider: a repeat has the same one, another payment another. */
  readonly notificationId: string;
  readonly orderId: string;
  readonly amountCents: number;
}

export interface Ticket {
  /** What `placeOrder` takes as its `token`. */
  readonly ticket: string;
  /** When the customer's turn begins. */
  readonly notBefore: string;
  readonly expiresAt: string;
}

export interface TicketRequest {
  /** Of a group of the sale that may buy earlier. */
  readonly code?: string;
  /** The answer to the challenge of `proof-required`. */
  readonly proof?: { readonly challenge: string; readonly nonce: string };
}

export interface Award {
  readonly sourceType: string;
  readonly sourceId: string;
  readonly points: number;
}

export interface PointsEntry extends Award {
  readonly id: number;
  readonly createdAt: string;
}

export interface Points {
  readonly balance: number;
  readonly entries: readonly PointsEntry[];
}

/** The problems that an answer can be, with their members: docs/reference/api.md says what each means. */
export interface Problems
  extends Record<'unauthorized' | 'forbidden' | 'invalid-signature' | 'not-found' | 'key-reused', unknown>,
    Record<'unknown-sale' | 'unknown-order' | 'sold-out' | 'not-sold-out' | 'below-sold', unknown>,
    Record<'has-order' | 'already-transferred' | 'not-supported', unknown>,
    Record<'too-large' | 'unsupported-media-type', unknown> {
  'invalid-request': { readonly errors?: readonly { readonly path: string; readonly message: string }[] };
  'over-limit': { readonly maxPerOrder: number };
  'invalid-ticket': { readonly reason: 'missing' | 'unsigned' | 'other-sale' | 'expired' };
  'invalid-code': { readonly reason: 'unknown' | 'used-up' };
  'proof-required': { readonly challenge: string; readonly bits: number };
  'not-enough-units': { readonly remaining: number };
  'customer-limit': { readonly limit: number; readonly left: number };
  'sale-not-open': { readonly reason: 'not-started' | 'ended' | 'paused' };
  'too-early': { readonly notBefore: string };
  'beyond-limit': { readonly latest: string };
  'idempotency-conflict': { readonly entry?: PointsEntry };
  'invalid-transition': { readonly orderStatus?: OrderStatus };
  'too-many-requests': { readonly reason?: string };
  busy: { readonly reason: string };
}
export type Slug = keyof Problems;

interface Refused {
  /** For people. */
  readonly detail: string;
  /**
   * This answer changed nothing. True: an earlier try of the same call had no answer, so it may have taken effect, or may still do so
   * while it is on its way: read the order or the sale again.
   */
  readonly mayHaveHappened: boolean;
}

/** A problem, by `kind`. */
export type Refusal<S extends Slug> = { readonly [K in S]: { readonly kind: K } & Refused & Problems[K] }[S];

/** `busy` and `too-many-requests` are answers only when the time is over: until then the client repeats. */
type Everywhere = 'invalid-request' | 'too-many-requests' | 'busy';

/** How a call ended. A later version of the service may answer with a `kind` that is not listed: have a `default`. */
export type Answer<T, S extends Slug = never> =
  | { readonly kind: 'done'; readonly value: T }
  | Refusal<S | Everywhere>;

type WithBody = 'too-large' | 'unsupported-media-type';
type Admin = 'unauthorized' | 'forbidden' | 'not-found';
type Keyed = WithBody | Admin | 'key-reused';

export type PurchaseAnswer =
  /** `isDurable`: it is committed in Postgres; otherwise (CONFIRM=accepted) reserved, and the commit follows. */
  | { readonly kind: 'accepted'; readonly order: PlacedOrder; readonly isDurable: boolean }
  /** The customer had an order: of an earlier call, or of a try of this one whose answer was lost. */
  | { readonly kind: 'replayed'; readonly order: PlacedOrder }
  | Refusal<Everywhere | WithBody | 'over-limit' | 'invalid-ticket' | 'unknown-sale'>
  | Refusal<
      'sold-out' | 'not-enough-units' | 'customer-limit' | 'sale-not-open' | 'too-early' | 'invalid-code'
    >;
/** `unmatched`: a payment that changes no order. It is recorded, and listed by `GET /payments/unmatched`. */
export type PaymentAnswer =
  | Answer<Order, WithBody | Admin | 'invalid-signature'>
  | { readonly kind: 'unmatched'; readonly reason: 'unknown-order' | 'amount-mismatch' | 'conflict' };
export type OrderAnswer = Answer<Order, 'unauthorized' | 'unknown-order'>;
export type UserOrderAnswer = Answer<Order, Admin | 'unknown-order' | 'unknown-sale'>;
export type CancelAnswer = OrderAnswer | Refusal<'invalid-transition'>;
export type RefundAnswer = Answer<Order, Keyed | 'unknown-order' | 'invalid-transition'>;
export type ExtendAnswer = RefundAnswer | Refusal<'beyond-limit'>;
export type TransferAnswer =
  | RefundAnswer
  | Refusal<'has-order' | 'already-transferred' | 'customer-limit' | 'not-supported'>;
export type NewSaleAnswer = Answer<Sale, Keyed | 'not-supported'>;
export type ChangeAnswer = Answer<Sale, WithBody | Admin | 'unknown-sale' | 'not-supported'>;
export type RestockAnswer = Answer<Sale, Keyed | 'unknown-sale' | 'below-sold'>;
export type GroupAnswer = Answer<SaleGroup, Keyed | 'unknown-sale' | 'idempotency-conflict'>;
export type GroupsAnswer = Answer<readonly SaleGroup[], Admin | 'unknown-sale'>;
export type SaleRefundAnswer = Answer<SaleRefund, Keyed | 'unknown-sale' | 'invalid-transition'>;
export type SaleRefundProgress = Answer<SaleRefund, Admin | 'unknown-sale'>;
export type JoinAnswer =
  | Answer<WaitlistEntry, WithBody | 'unauthorized' | 'unknown-sale'>
  | Refusal<'not-sold-out' | 'sale-not-open'>;
export type WaitlistAnswer = Answer<WaitlistEntry, 'unauthorized' | 'not-found' | 'unknown-sale'>;
/** Also when the customer was not on the list. */
export type LeaveAnswer =
  | { readonly kind: 'done' }
  | Refusal<'unauthorized' | 'not-found' | 'unknown-sale' | Everywhere>;
export type TicketAnswer =
  | Answer<Ticket, WithBody | Admin | 'unknown-sale'>
  | Refusal<'proof-required' | 'invalid-code' | 'sold-out' | 'sale-not-open'>;
export type AwardAnswer = Answer<PointsEntry, Keyed | 'idempotency-conflict'>;
export type PointsAnswer = Answer<Points, 'unauthorized' | 'not-found'>;
