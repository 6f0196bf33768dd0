/** The orders of a sale: search, cancel and refund, one or all, and the export. */
import { type Signal, useSignal } from '@preact/signals';
import { orderStatuses } from '../../domain/order.ts';
import type { Order, Sale, SaleRefund } from '../ui/answers.ts';
import { bearer } from '../ui/api.ts';
import { count, dateTime, money } from '../ui/format.ts';
import { Bar, Notice, ORDER_PILLS, Pill } from '../ui/parts.tsx';
import { act, failed, isActing, ResultAt, result } from './actions.tsx';
import { Filter, type List, ShowOlder, useList, usePoll } from './list.tsx';
import { asAdmin, token } from './token.ts';

export function OrdersOf({ sale }: { sale: Sale }) {
  const isOpen = useSignal(false);
  return (
    <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>Orders</summary>
      {isOpen.value && <Orders {...sale} />}
    </details>
  );
}

const placeOf = (saleId: number): string => `orders ${saleId}`;

function Orders({ id, name, currency }: Sale) {
  const list = useList<Order>(`/sales/${id}/orders`);
  const progress = useSignal<SaleRefund | null>(null);
  const unitsReturn = useSignal(true);
  usePoll(async () => {
    const answer = await asAdmin<SaleRefund>(`/sales/${id}/refund`);
    if (answer.kind === 'ok') progress.value = answer.body;
  });
  const { items: orders, failure, filter, refresh } = list;
  const close = <T,>(path: string, titleOf: (changed: T) => string) =>
    act<T>({ at: placeOf(id), path, body: { returnUnits: unitsReturn.value }, titleOf, refresh });
  const closeOne = ({ orderId, userId }: Order) =>
    close<Order>(
      `/orders/${orderId}/refund`,
      ({ status }) => `The order of ${userId} is ${status === 'cancelled' ? 'cancelled' : 'refunded'}`,
    );
  return (
    <div class="stack orders">
      <Tools {...{ name, list, unitsReturn }} />
      <ResultAt place={placeOf(id)} />
      <div aria-live="polite">
        {orders.value === null && failure.value !== null && (
          <Notice tone="bad" title="The orders cannot be read">
            {failure.value}
          </Notice>
        )}
        {progress.value !== null && <Refunding {...progress.value} />}
      </div>
      {orders.value?.length === 0 && <p class="soft">No order matches.</p>}
      <ul class="rows">
        {orders.value?.map((order) => (
          <Row key={order.orderId} {...{ order, currency }} onClose={() => closeOne(order)} />
        ))}
      </ul>
      <div class="row">
        <ShowOlder list={list} of="orders" by={100} />
        <Export saleId={id} filter={filter.value} />
        <button
          type="button"
          class="slim"
          aria-disabled={isActing.value}
          onClick={() => {
            if (confirm(`${name}: cancel all unpaid orders and refund all paid ones?`))
              void close<SaleRefund>(`/sales/${id}/refund`, ({ orders }) => `${count(orders)} to close`);
          }}
        >
          Refund all…
        </button>
      </div>
    </div>
  );
}

interface ToolsProps {
  readonly name: string;
  readonly list: List<Order>;
  readonly unitsReturn: Signal<boolean>;
}

/** Which orders are listed, and what becomes of the units of those that are closed. */
function Tools({ name, list, unitsReturn }: ToolsProps) {
  const label = `Search orders of ${name} by customer or id`;
  const options = (
    <>
      <option value="">All statuses</option>
      {orderStatuses.map((status) => (
        <option key={status} value={status}>
          {ORDER_PILLS[status][1]}
        </option>
      ))}
    </>
  );
  return (
    <Filter
      list={list}
      search={{ placeholder: 'Customer or order', label, maxLength: 64 }}
      select={{ name: 'status', label: 'Status', options }}
    >
      <label class="check">
        <input
          type="checkbox"
          checked={unitsReturn.value}
          onChange={({ currentTarget }) => (unitsReturn.value = currentTarget.checked)}
        />
        Units of closed orders return to the sale
      </label>
    </Filter>
  );
}

function Row({ order, currency, onClose }: { order: Order; currency: string; onClose: () => void }) {
  const [tone, text] = ORDER_PILLS[order.status];
  const verb = { pending: 'Cancel', paid: 'Refund' }[order.status as 'pending' | 'paid'];
  return (
    <li class="order-line">
      <span class="stack tight">
        <span class="row">
          <b>{order.userId}</b>
          <Pill tone={tone}>{text}</Pill>
        </span>
        <code class="small soft">{order.orderId}</code>
      </span>
      <span class="small">
        {count(order.quantity)} for {money(order.amountCents, currency)}
        <br />
        <span class="soft">{dateTime(order.createdAt)}</span>
      </span>
      {verb !== undefined && (
        <button
          type="button"
          class="slim"
          aria-label={`${verb} the order of ${order.userId}`}
          aria-disabled={isActing.value}
          onClick={onClose}
        >
          {verb}
        </button>
      )}
    </li>
  );
}

function Refunding({ orders, remaining, finishedAt }: SaleRefund) {
  if (finishedAt !== null)
    return (
      <p class="small soft">
        Refunding all orders ended on <time dateTime={finishedAt}>{dateTime(finishedAt)}</time>:{' '}
        {count(orders)} closed.
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

interface ExportProps {
  readonly saleId: number;
  readonly filter: Readonly<Record<string, string>>;
}

const Export = (props: ExportProps) => (
  <button
    type="button"
    class="slim"
    onClick={async () => {
      const why = await exportOrders(props);
      result.value = why === null ? null : failed(placeOf(props.saleId), 'The export failed', why);
    }}
  >
    Export as CSV
  </button>
);

/** Downloads the orders that match. A link could not send the token. @returns why it failed; null: it did not */
async function exportOrders({ saleId, filter }: ExportProps): Promise<string | null> {
  const cut = 'No complete response came. Try again.';
  try {
    const query = new URLSearchParams(filter);
    const response = await fetch(`/sales/${saleId}/orders.csv?${query}`, { headers: bearer(token.value) });
    if (!response.ok) return String((await response.json()).detail ?? cut);
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await response.blob());
    link.download = `sale-${saleId}-orders.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    return null;
  } catch {
    return cut;
  }
}
