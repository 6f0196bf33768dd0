/** A payment that changed no order. */

/** `conflict`: another payment has the same id. */
export const unmatchedReasons = ['unknown-order', 'amount-mismatch', 'conflict'] as const;
export type UnmatchedReason = (typeof unmatchedReasons)[number];

export interface UnmatchedPayment {
  readonly id: number;
  /** With the name of the provider, if its secret has one. */
  readonly notificationId: string;
  readonly orderId: string;
  readonly amountCents: number;
  /** That of the last notification. */
  readonly reason: UnmatchedReason;
  /** Who reported it first. */
  readonly actor: string;
  /** How often it was reported. */
  readonly times: number;
  readonly receivedAt: string;
  readonly repeatedAt: string;
}
