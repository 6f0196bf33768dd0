/**
 * The life of an order. Active means pending or paid.
 *
 *   pending ──▶ paid ────────refund by an administrator──▶ refund-due
 *      ├──────▶ cancelled ──late payment──▶ refund-due
 *      └──────▶ expired ────late payment──▶ paid, if a unit is free; otherwise refund-due
 */
export const orderStatuses = ['pending', 'paid', 'cancelled', 'expired', 'refund-due'] as const;
export type OrderStatus = (typeof orderStatuses)[number];

/** Units of a sale, taken by a user and committed in Postgres. */
export interface Order {
  /** A UUIDv7 that the service made before the order was stored. */
  readonly orderId: string;
  readonly saleId: number;
  readonly userId: string;
  readonly status: OrderStatus;
  /** Units. */
  readonly quantity: number;
  /** For one unit. */
  readonly priceCents: number;
  /** For the order: price × quantity. */
  readonly amountCents: number;
  readonly createdAt: string;
  /** A pending order that is not paid by then expires. */
  readonly expiresAt: string;
  readonly paidAt: string | null;
  /** When the order was cancelled or refunded, or expired. */
  readonly closedAt: string | null;
}

/** What people call an order: eight of the digits of its id that differ between the orders of a sale. A search for it finds the order. */
export const orderNumber = (orderId: string): string => orderId.slice(19, 28).toUpperCase();

/** Which orders of a sale a list has, the newest first. */
export interface OrderQuery {
  readonly limit: number;
  /** Only those that are older than this order. */
  readonly before?: string | undefined;
  readonly status?: OrderStatus | undefined;
  /** Only those whose customer has this text, in any case, or whose id has it. */
  readonly search?: string | undefined;
}

/** One purchase request of one user, with the id that its order will have if it gets one. */
export interface Attempt {
  readonly saleId: number;
  readonly userId: string;
  readonly orderId: string;
  /** Units, all or none. */
  readonly quantity: number;
  /** Its customer's group may buy by now, also before the sale starts for all. */
  readonly isEarly?: boolean;
  /** It was decided before, and that did not count; what it reserved may be found. */
  readonly isAgain?: boolean;
}

/** The columns of an order that answer a purchase. */
export interface PlacedOrderColumns {
  readonly id: string;
  readonly status: OrderStatus;
  readonly quantity: number;
}

/** A change that Postgres has committed and the mirror of the sale must show: see the table mirror_outbox. */
export type MirrorChange = { readonly saleId: number } & (
  | {
      /** `release`: the units and the customer are free. `take`: the order has its units again. `record`: the same, and Redis has already taken the units. */
      readonly change: 'release' | 'take' | 'record';
      readonly orderId: string;
      readonly userId: string;
      /** Of the order; 0 to release only the customer: the units have left the stock. */
      readonly units: number;
    }
  /** The order passes from one customer to another, and keeps its units. */
  | {
      readonly change: 'transfer';
      readonly orderId: string;
      readonly userId: string;
      readonly toUserId: string;
      readonly units: number;
    }
  | { readonly change: 'restock'; readonly id: string; readonly units: number }
);
