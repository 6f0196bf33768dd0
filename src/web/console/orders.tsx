/** The orders of a sale: search, cancel and refund, one or all, and the export. */
import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { orderNumber, orderStatuses } from '../../domain/order.ts';
import { stateOf } from '../../domain/sale.ts';
import type { Order, RefundPreview, Sale, SaleRefund } from '../ui/answers.ts';
import { bearer } from '../ui/api.ts';
import { count, money } from '../ui/format.ts';
import { Bar, ORDER_PILLS, Pill } from '../ui/parts.tsx';
import { act, clear, confirmed, failed, isActing } from './actions.tsx';
import { adjust, param } from './address.ts';
import { type List, LONGEST, ShowMore, Unread, useList, usePoll } from './list.tsx';
import type { SaleProps } from './sales.ts';
import { distance, nowMs, Time } from './time.tsx';
import { asAdmin, token } from './token.ts';

/** As the API has it. */
const USER_ID = /^[\w.:-]{1,64}$/;
const UNITS_RETURN = 'The units return to the sale';

export function Orders({ sale, refresh }: SaleProps) {
  const { id, currency } = sale;
  const filter = { search: param('find').trim(), status: param('status') };
  const list = useList<Order>(`/sales/${id}/orders`, filter);
  const own = useOwnOrder(id, filter.search, list);
  const progress = useSignal<SaleRefund | null>(null);
  useEffect(() => void preview(sale, progress), []);
  usePoll(async () => {
    if (progress.value?.finishedAt !== null) return;
    const answer = await asAdmin<SaleRefund>(`/sales/${id}/refund`);
    if (answer.kind === 'ok') progress.value = answer.body;
  }, '');
  const { items: orders, failure } = list;
  const { closeOne, closeAll } = changesOf(sale, progress, async () => {
    await Promise.all([list.refresh(), own.refresh(), refresh()]);
  });
  const shown = orders.value && namedFirst(orders.value, own.order.value, filter);
  return (
    <>
      <Search />
      <div aria-live="polite">
        <Unread failure={failure.value} what="orders" />
        {progress.value !== null && <Refunding {...progress.value} sale={sale} />}
      </div>
      {shown?.length === 0 && <p class="soft">No order matches.</p>}
      <ul class="rows">
        {shown?.map((order) => (
          <Row key={order.orderId} {...{ order, currency }} onClose={(verb) => closeOne(order, verb)} />
        ))}
      </ul>
      <div class="row">
        <ShowMore list={list} />
        <button type="button" class="slim" onClick={() => exportOrders(id, filter)}>
          {exportText(filter, list)}
        </button>
        <button type="button" class="slim danger" aria-disabled={isActing.value} onClick={closeAll}>
          Refund all orders…
        </button>
      </div>
    </>
  );
}

/**
 * The order of the customer whose whole id is searched, while the list is too short to reach it. The API lists matches newest first, which
 * its pages depend on, so this order is read beside them.
 */
function useOwnOrder(saleId: number, search: string, list: List<Order>) {
  const order = useSignal<Order | null>(null);
  const orders = list.items.value;
  const isMissing =
    orders !== null && !isWhole(list) && USER_ID.test(search) && !orders.some(isNamed(search));
  const latest = useRef('');
  latest.current = isMissing ? search : '';
  async function refresh(): Promise<void> {
    const asked = latest.current;
    const path = `/sales/${saleId}/orders?userId=${encodeURIComponent(asked)}`;
    const answer = asked === '' ? null : await asAdmin<Order>(path);
    if (asked === latest.current) order.value = answer?.kind === 'ok' ? answer.body : null;
  }
  usePoll(refresh, latest.current);
  return { order, refresh };
}

/** Whether a search is the whole id of an order's customer, or the order's whole number. */
const isNamed =
  (search: string) =>
  ({ userId, orderId }: Order): boolean =>
    userId === search || [orderId, orderNumber(orderId).toLowerCase()].includes(search.toLowerCase());

/** The orders that the search names, then the others, each newest first. @param own of `useOwnOrder` */
function namedFirst(
  orders: readonly Order[],
  own: Order | null,
  { search, status }: { readonly search: string; readonly status: string },
): readonly Order[] {
  const isFirst = isNamed(search);
  const found = own !== null && isFirst(own) && (status === '' || own.status === status) ? [own] : [];
  const others = orders.filter(({ orderId }) => orderId !== found[0]?.orderId);
  return [...found, ...others.filter(isFirst), ...others.filter((order) => !isFirst(order))];
}

/** Reads what a refund of all orders would close. @param last becomes the last one */
async function preview({ id }: Sale, last: Signal<SaleRefund | null>) {
  const answer = await asAdmin<RefundPreview>(`/sales/${id}/refund/preview`);
  if (answer.kind === 'ok') last.value = answer.body.last;
  return answer;
}

const ordersText = (n: number, kind = '') => `${count(n)}${kind} ${n === 1 ? 'order' : 'orders'}`;

/** Cancels and refunds, once they are confirmed. */
function changesOf(sale: Sale, progress: Signal<SaleRefund | null>, refresh: () => Promise<void>) {
  const { id, name, currency } = sale;
  const closeOne = async ({ orderId, userId, quantity, amountCents }: Order, verb: string) => {
    const question = {
      title: `${verb} the order of ${userId}?`,
      text: `${count(quantity)} for ${money(amountCents, currency)}, order ${orderNumber(orderId)}.`,
      yes: `${verb} the order`,
    };
    const titleOf = ({ status }: Order) =>
      `The order of ${userId} is ${status === 'cancelled' ? 'cancelled' : 'to be refunded'}`;
    const answer = await confirmed({ ...question, option: UNITS_RETURN });
    if (answer === null) return;
    await act({ path: `/orders/${orderId}/refund`, body: { returnUnits: answer.option }, titleOf, refresh });
  };
  const closeAll = async () => {
    const at = param('open');
    const found = await preview(sale, progress);
    if (found.kind !== 'ok') return failed('The orders cannot be counted', found, at);
    const { unpaid, paid, paidCents } = found.body;
    if (paid + unpaid === 0)
      return failed('No order can be refunded', 'None of the sale is reserved or paid.', at);
    const sells = !sale.paused && stateOf(sale, nowMs()) !== 'ended';
    const amount = money(paidCents, currency);
    const pauses = sells ? 'The sale is paused first. ' : '';
    const acts = [
      ...(sells ? ['pause'] : []),
      ...(paid > 0 ? [`refund ${ordersText(paid)} (${amount})`] : []),
      ...(unpaid > 0 ? [`cancel ${paid > 0 ? count(unpaid) : ordersText(unpaid)}`] : []),
    ].join(', ');
    const answer = await confirmed({
      title: `Refund all orders of ${name}?`,
      text: `${pauses}${ordersText(paid, ' paid')}, ${amount}: to be refunded. ${ordersText(unpaid, ' unpaid')}: to be cancelled.`,
      yes: acts[0]!.toUpperCase() + acts.slice(1),
      option: UNITS_RETURN,
    });
    if (answer === null) return;
    const pause = { path: `/sales/${id}`, method: 'PATCH', body: { paused: true }, refresh, at } as const;
    if (sells && (await act(pause)) === null) return;
    const body = { returnUnits: answer.option };
    progress.value =
      (await act<SaleRefund>({ path: `/sales/${id}/refund`, body, refresh, at })) ?? progress.value;
  };
  return { closeOne, closeAll };
}

/** Whether the list has all that match. */
const isWhole = ({ items, lengthen }: List<Order>): boolean =>
  lengthen === null && items.value !== null && items.value.length < LONGEST;

/** How many orders the export has. */
function exportText(filter: object, list: List<Order>): string {
  if (Object.values(filter).every((value) => value === '')) return 'Export all orders as CSV';
  const matching = isWhole(list) ? ordersText(list.items.value!.length, ' matching') : 'matching orders';
  return `Export ${matching} as CSV`;
}

const Search = () => (
  <div class="row filter">
    <input
      type="search"
      maxLength={64}
      placeholder="Part of a customer or number"
      aria-label="Search orders by a part of their customer or number"
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

function Refunding({ orders, remaining, finishedAt, sale }: SaleRefund & { sale: Sale }) {
  if (finishedAt !== null)
    return (
      <p class="small soft">
        All orders were refunded by <Time iso={finishedAt} />: {count(orders)} closed.
        {sale.paused &&
          sale.sold > 0 &&
          ' Purchases that ran when the sale was paused sold more: refund again.'}
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
  const at = param('open');
  clear();
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
    failed('The export failed', 'No complete response came. Try again.', at);
  }
}
