/** Why a purchase was refused, for the visitor. */
import type { Sale } from '../ui/api.ts';
import { Notice } from '../ui/parts.tsx';
import type { Auth } from './customer.ts';
import type { Purchase } from './purchase.ts';

export function Refused({
  problem,
  auth,
  sale,
}: Extract<Purchase, { kind: 'refused' }> & { auth: Auth; sale: Sale }) {
  switch (problem.slug) {
    case 'sold-out':
      return sale.remaining > 0 ? (
        <Notice tone="warn" title="Every unit was taken">
          You were not charged. A unit is free again: try again.
        </Notice>
      ) : (
        <Notice tone="bad" title="Sold out">
          Another customer got the last unit. You were not charged.
        </Notice>
      );
    case 'not-enough-units':
      return (
        <Notice tone="warn" title={`Only ${problem.body.remaining} left`}>
          You were not charged. Choose fewer, and try again.
        </Notice>
      );
    case 'sale-not-open':
      if (problem.body.reason === 'paused')
        return (
          <Notice tone="warn" title="The sale is paused">
            You were not charged. Try again when it goes on.
          </Notice>
        );
      return problem.body.reason === 'ended' ? (
        <Notice tone="bad" title="The sale has ended">
          You were not charged.
        </Notice>
      ) : (
        <Notice tone="warn" title="The sale is not open yet">
          Try again when the countdown ends.
        </Notice>
      );
    case 'unauthorized':
      return (
        <Notice tone="bad" title="Please sign in again">
          {auth === 'jwt' ? 'The token is missing, expired, or not for this shop.' : problem.detail}
        </Notice>
      );
    default:
      return (
        <Notice tone="bad" title="The request failed">
          {problem.detail}
        </Notice>
      );
  }
}
