/** The orders of a sale: search, cancel and refund, one or all, and the export. */
import { useSignal } from '@preact/signals';
import { orderNumber, orderStatuses } from '../../domain/order.ts';
import type { Order, Sale, SaleRefund } from '../ui/answers.ts';
import { bearer } from '../ui/api.ts';
import { count, money } from '../ui/format.ts';
import { Bar, ORDER_PILLS, Pill } from '../ui/parts.tsx';
import { act, confirmed, failed, isActing } from './actions.tsx';
import { adjust, param } from './address.ts';
import { ShowMore, Unread, useList, usePoll } from './list.tsx';
import type { SaleProps } from './sales.ts';
import { distance, Time } from './time.tsx';
import { asAdmin, token } from './token.ts';

const UNITS_RETURN = 'The units return to the sale';

export function Orders({ sale, refresh }: SaleProps) {
  const { id, currency } = sale;
  const filter = { search: param('find').trim(), status: param('status') };
  const list = useList<Order>(`/sales/${id}/orders`, filter);
  const progress = useSignal<SaleRefund | null>(null);
  usePoll(async () => {
    const answer = await asAdmin<SaleRefund>(`/sales/${id}/refund`);
    if (answer.kind === 'ok') progress.value = answer.body;
  }, '');
  const { items: orders, failure } = list;
  const { closeOne, closeAll } = changesOf(sale, async () => {
    await Promise.all([list.refresh(), refresh()]);
  });
  return (
    <>
      <Search />
      <div aria-live="polite">
        <Unread failure={failure.value} what="orders" />
        {progress.value !== null && <Refunding {...progress.value} />}
      </div>
      {orders.value?.length === 0 && <p class="soft">No order matches.</p>}
      <ul class="rows">
        {orders.value?.map((order) => (
          <Row key={order.orderId} {...{ order, currency }} onClose={(verb) => closeOne(order, verb)} />
        ))}
      </ul>
      <div class="row">
        <ShowMore list={list} />
        <button type="button" class="slim" onClick={() => exportOrders(id, filter)}>
          Export as CSV
        </button>
        <button type="button" class="slim" aria-disabled={isActing.value} onClick={closeAll}>
          Refund all…
        </button>
      </div>
    </>
  );
}

/** Cancels and refunds, once they are confirmed. */
function changesOf({ id, name, currency }: Sale, refresh: () => Promise<void>) {
  async function close<T>(
    question: { readonly title: string; readonly text: string; readonly yes: string },
    path: string,
    titleOf: (changed: T) => string,
  ): Promise<void> {
    const answer = await confirmed({ ...question, option: UNITS_RETURN });
    if (answer === null) return;
    await act<T>({ path, body: { returnUnits: answer.option }, titleOf, refresh });
  }
  const closeOne = ({ orderId, userId, quantity, amountCents }: Order, verb: string) => {
    const question = {
      title: `${verb} the order of ${userId}?`,
      text: `${count(quantity)} for ${money(amountCents, currency)}, order ${orderNumber(orderId)}.`,
      yes: `${verb} the order`,
    };
    const titleOf = ({ status }: Order) =>
      `The order of ${userId} is ${status === 'cancelled' ? 'cancelled' : 'refunded'}`;
    return close<Order>(question, `/orders/${orderId}/refund`, titleOf);
  };
  const closeAll = () => {
    const text = 'All unpaid orders are cancelled and all paid ones refunded. Pause the sale first.';
    const question = { title: `Refund all orders of ${name}?`, text, yes: 'Refund all orders' };
    return close<SaleRefund>(question, `/sales/${id}/refund`, ({ orders }) => `${count(orders)} to close`);
  };
  return { closeOne, closeAll };
}

const Search = () => (
  <div class="row filter">
    <input
      type="search"
      maxLength={64}
      placeholder="Customer or order number"
      aria-label="Search orders by customer or number"
      value={param('find')}
      onInput={({ currentTarget }) => adjust({ find: currentTarget.value })}
    />
    <select aria-label="Status" onChange={({ currentTarget }) => adjust({ status: currentTarget.value })}>
      <option value="">All statuses</option>
      {orderStatuses.map((status) => (
        <option key={status} value={status} selected={status === param('status')}>
          {ORDER_PILLS[status][1]}
        </option>
      ))}
    </select>
  </div>
);

function Row({
  order,
  currency,
  onClose,
}: {
  order: Order;
  currency: string;
  onClose: (verb: string) => void;
}) {
  const { status, userId, orderId, quantity, amountCents, createdAt, expiresAt } = order;
  const [tone, text] = ORDER_PILLS[status];
  const verb = { pending: 'Cancel', paid: 'Refund' }[status as 'pending' | 'paid'];
  return (
    <li class="order-line">
      <span class="row">
        <b>{userId}</b>
        <Pill tone={tone}>{text}</Pill>
      </span>
      <span class="small">
        {count(quantity)} for {money(amountCents, currency)}
      </span>
      {verb !== undefined && (
        <button
          type="button"
          class="slim"
          aria-label={`${verb} the order of ${userId}…`}
          aria-disabled={isActing.value}
          onClick={() => onClose(verb)}
        >
          {verb}…
        </button>
      )}
      <span class="label">
        <Time iso={createdAt} />
        {status === 'pending' && (
          <>
            , expires <Time iso={expiresAt} text={distance(expiresAt)} />
          </>
        )}{' '}
        · <code title={orderId}>{orderNumber(orderId)}</code>
      </span>
    </li>
  );
}

function Refunding({ orders, remaining, finishedAt }: SaleRefund) {
  if (finishedAt !== null)
    return (
      <p class="small soft">
        All orders were refunded by <Time iso={finishedAt} />: {count(orders)} closed.
      </p>
    );
  return (
    <div class="stack tight">
      <p class="small">
        Closing all orders: {count(remaining)} of {count(orders)} are left.
      </p>
      <Bar label="Orders that are closed" value={orders - remaining} max={orders} />
    </div>
  );
}

/** Downloads the orders that match. A link could not send the token. */
async function exportOrders(saleId: number, filter: Readonly<Record<string, string>>): Promise<void> {
  try {
    const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value !== ''));
    const response = await fetch(`/sales/${saleId}/orders.csv?${query}`, { headers: bearer(token.value) });
    if (!response.ok) throw new Error(String(response.status));
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await response.blob());
    link.download = `sale-${saleId}-orders.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch {
    failed('The export failed', 'No complete response came. Try again.');
  }
}
