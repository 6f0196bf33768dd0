/** What the page says about an attempt and about an order that is closed. */
import type { SaleState } from '../../domain/sale.ts';
import type { Order, Problem, Sale } from '../ui/answers.ts';
import type { Attempt, State, WaitReason } from './model.ts';

export type Message = readonly [tone: 'good' | 'warn' | 'bad' | 'plain', title: string, text: string];

const WAITS: Readonly<Record<WaitReason, Message>> = {
  busy: ['warn', 'The shop is very busy', 'You have not bought anything yet. The page tries again'],
  limit: [
    'warn',
    'Too many requests come from you or your network',
    'You have not bought anything yet. The page tries again',
  ],
  unknown: [
    'warn',
    'No response came, and your order may exist',
    'You never buy twice: a retry finds your order, or places it. The page tries again',
  ],
  turn: [
    'good',
    'You are in the waiting room',
    'Keep this page open: it tries to buy for you, unless the units are gone, when your turn comes',
  ],
};

const ALL_TAKEN: Message = [
  'warn',
  'Every unit is taken at the moment',
  'A unit comes back when an order is cancelled or expires. The page asks for one when your turn comes',
];

export type Waited = Extract<Attempt, { kind: 'waiting' }>;

/** The time that is left follows it. */
export const waitMessage = ({ why }: Waited, sale: Sale): Message =>
  why === 'turn' && sale.remaining <= 0 ? ALL_TAKEN : WAITS[why];

/** Why a purchase was refused. */
export function refusalMessage({ slug, detail, body }: Problem, { auth, sale, code }: State): Message {
  switch (slug) {
    case 'sold-out':
      return sale.remaining > 0
        ? ['warn', 'Every unit was taken', 'You were not charged. A unit is free again: try again.']
        : ['bad', 'Sold out', 'Another customer got the last unit. You were not charged.'];
    case 'not-enough-units':
      return ['warn', `Only ${body.remaining} left`, 'You were not charged. Choose fewer, and try again.'];
    case 'customer-limit':
      return body.left === 0
        ? [
            'warn',
            'You have reached your limit',
            `It is ${body.limit}, for this and related sales. You were not charged.`,
          ]
        : ['warn', `You can have ${body.left} more`, 'You were not charged. Choose fewer, and try again.'];
    case 'invalid-code':
      return body.reason === 'used-up'
        ? ['bad', 'This code is used up', 'Other customers have used it. You were not charged.']
        : ['bad', 'This code is not valid here', 'Check each letter: capitals count. You were not charged.'];
    case 'sale-not-open':
      if (body.reason === 'paused')
        return ['warn', 'The sale is paused', 'You were not charged. Try again when it goes on.'];
      return body.reason === 'ended'
        ? ['bad', 'The sale has ended', 'You were not charged.']
        : [
            'warn',
            'The sale is not open yet',
            `Try again ${code === '' ? 'when the countdown ends' : 'later: your code is valid, and opens the sale before the countdown ends'}.`,
          ];
    case 'unauthorized': {
      const text = 'The token is missing, expired, or not for this shop.';
      return ['bad', 'Please sign in again', auth === 'jwt' ? text : detail];
    }
    default:
      return ['bad', 'The request failed', detail];
  }
}

/** What the waitlist says, apart from a place in it; null: nothing. */
export function waitlistMessage(
  { entry, waitlist, isReturned }: State,
  saleState: SaleState,
): Message | null {
  const isFree = saleState === 'open';
  if (!isFree && saleState !== 'sold-out') return null;
  if (waitlist !== null && waitlist !== 'pending') {
    if (waitlist.slug === 'not-sold-out')
      return ['good', 'A unit is free', 'Buy it now: it is not reserved for you.'];
    return ['bad', 'You are not on the waitlist', waitlist.detail];
  }
  // With `waitlist: hold` an order follows.
  if (entry !== null && entry.namedAt !== null && entry.orderId === null)
    return isFree
      ? ['good', 'You are next: a unit is free', 'Buy it now, before others do: it is not reserved.']
      : [
          'warn',
          'Others were faster',
          'Your turn came and the units are gone. Join again to wait for the next.',
        ];
  if (entry?.place != null && isFree)
    return ['good', 'A unit is free', 'You are on the waitlist, but it is not reserved for you: buy it now.'];
  return isReturned && isFree
    ? ['good', 'Back on sale', 'A unit came back. It goes to whoever buys first.']
    : null;
}

/** Why the visitor's latest order is none any more. */
export function closedMessage({ status, paidAt }: Order): Message {
  if (status === 'refund-due')
    return paidAt !== null
      ? ['warn', 'Your order will be refunded', 'The shop has cancelled it. You will get back what you paid.']
      : ['warn', 'Your payment came too late', 'It was no longer reserved for you. You will get a refund.'];
  return status === 'expired'
    ? ['warn', 'Your order expired', 'It was not paid in time, so nothing is reserved any more.']
    : ['plain', 'Your order is cancelled', 'Nothing is reserved for you any more.'];
}

/** Why the latest payment or cancellation failed, or the order itself; null: it did not. */
export function failureMessage(change: State['change']): string | null {
  if (change === null || change === 'pending') return null;
  if (change === 'gone') return 'Your order was not placed. You were not charged.';
  if (change.kind === 'lost') return 'No response came. The page looks whether it took effect.';
  if (change.kind === 'problem') return change.detail;
  return 'result' in change.body ? `The payment has no effect: ${change.body.reason}.` : null;
}
