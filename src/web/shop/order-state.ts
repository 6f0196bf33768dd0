/** The visitor's order: what the service says about it, and changes of it. */
import { signal } from '@preact/signals';
import { type Answer, ask, type Order } from '../ui/api.ts';
import { type Auth, findOrder, identity, isActive, tokenFor } from './customer.ts';
import { type Buyer, found, isFinal, isInProgress, type Purchase, persist, purchase } from './purchase.ts';

export const order = signal<Order | null>(null);
/** A pending change of the order, or the reason of its failure. */
interface Change {
  readonly isPending: boolean;
  readonly failure: string | null;
  /** No answer came. What the order is now says whether it took effect. */
  readonly isLost: boolean;
}
export const UNCHANGED: Change = { isPending: false, failure: null, isLost: false };
export const change = signal(UNCHANGED);
/** An order is accepted, and its commit follows. */
export const isUncommitted = signal(false);
/** The identity of the latest read of the order, and whether the answer says what there is. */
const read = signal({ of: '', isKnown: true });
/** Number of the latest read, and whether it is in flight. The answer of an earlier one may be old. */
let reads = 0;
let isReading = false;

const REFRESH_MS = 3_000;
/** A payment may come, also too late, or a refund. */
const MAY_CHANGE: ReadonlySet<string | undefined> = new Set(['pending', 'paid', 'expired', 'cancelled']);

/** Whether the latest read failed. An attempt in progress finds the order without another. */
export const isUnread = (): boolean =>
  !read.value.isKnown && read.value.of === identity.value && !isInProgress(purchase.value);

export const isUnauthorized = (state: Purchase): boolean =>
  state.kind === 'refused' && state.problem.slug === 'unauthorized';

/** Keeps reading an order that may change or is not known, while the page is visible. @returns a function that ends it */
export function follow(buyer: Buyer): () => void {
  const timer = setInterval(() => {
    const isSought = isUncommitted.value || isUnread() || purchase.value.kind === 'placed';
    const mayChange = isSought || MAY_CHANGE.has(order.value?.status);
    if (mayChange && !isReading && document.visibilityState === 'visible') void refresh(buyer);
  }, REFRESH_MS);
  return () => clearInterval(timer);
}

/** Reads the order of the present identity. */
export async function refresh({ auth, saleId }: Buyer): Promise<void> {
  const own = ++reads;
  const of = identity.value;
  const before = purchase.value;
  isReading = true;
  const answer = await findOrder(auth, saleId);
  if (own !== reads) return;
  isReading = false;
  if (of !== identity.value) return;
  isUncommitted.value = answer.kind === 'problem' && answer.body.reason === 'order-not-committed';
  const isKnown = answer.kind === 'ok' || isUncommitted.value || isFinal(answer);
  if (answer.kind !== 'ok' && read.value.of !== of) order.value = null;
  read.value = { of, isKnown };
  if (answer.kind === 'ok') show(saleId, answer.body, before);
  else if (answer.kind === 'problem' && answer.slug === 'unknown-order') show(saleId, null, before);
  else if (answer.kind === 'problem' && answer.slug === 'unauthorized' && !isInProgress(purchase.value))
    purchase.value = { kind: 'refused', problem: answer };
}

/** @param before the purchase when the read was sent, which says nothing about a later one */
function show(saleId: number, mine: Order | null, before: Purchase): void {
  const isOther = order.value?.orderId !== mine?.orderId;
  order.value = mine;
  if (change.value.isLost || (isOther && !change.value.isPending)) change.value = UNCHANGED;
  if (mine !== null && isActive(mine)) {
    found(saleId);
    return;
  }
  if (isUnauthorized(purchase.value)) purchase.value = { kind: 'idle' };
  if (before.kind !== 'placed' || before !== purchase.value) return;
  purchase.value = { kind: 'idle' };
  // With CONFIRM=accepted, Postgres may have had no unit for it.
  if (mine?.orderId !== before.orderId)
    change.value = { ...UNCHANGED, failure: 'Your order was not placed. You were not charged.' };
}

/** Sends the notification of a payment provider; its id makes it idempotent. */
export const pay = ({ orderId, amountCents }: Order) =>
  changed(() =>
    ask('/payments/notifications', {
      body: { notificationId: `demo-${orderId}`, orderId, amountCents },
    }),
  );

export const cancel = ({ orderId }: Order, auth: Auth) =>
  changed(async () => {
    const answer = await ask<Order>(`/orders/${orderId}/cancel`, { body: {}, ...tokenFor(auth) });
    // An earlier request, whose answer was lost, has cancelled it.
    const isCancelled = answer.kind === 'problem' && answer.body.orderStatus === 'cancelled';
    return isCancelled ? ask<Order>(`/orders/${orderId}`, tokenFor(auth)) : answer;
  });

interface Unmatched {
  readonly result: 'unmatched';
  readonly reason: string;
}

async function changed(request: () => Promise<Answer<Order | Unmatched>>): Promise<void> {
  change.value = { ...UNCHANGED, isPending: true };
  const answer = await persist(request);
  const failure = failureOf(answer);
  change.value = { isPending: false, failure, isLost: answer.kind === 'lost' };
  if (answer.kind !== 'ok' || 'result' in answer.body) return;
  reads++; // one in flight may have read the order before the change
  isReading = false;
  order.value = answer.body;
}

function failureOf(answer: Answer<Order | Unmatched>): string | null {
  if (answer.kind === 'lost') return 'No response came. The page looks whether it took effect.';
  if (answer.kind === 'problem') return answer.detail;
  // A payment that belongs to no order, or to one of another price.
  return 'result' in answer.body ? `The payment has no effect: ${answer.body.reason}.` : null;
}
