/** The orders of a sale: search, cancel and refund, one or all, and the export. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { orderStatuses } from '../../domain/order.ts';
import type { Answer, Order, Sale, SaleRefund } from '../ui/answers.ts';
import { bearer } from '../ui/api.ts';
import { count, dateTime, money } from '../ui/format.ts';
import { Bar, Notice, ORDER_PILLS, Pill, ShowOlder } from '../ui/parts.tsx';
import { asAdmin, press, token } from './token.ts';

const REFRESH_MS = 2_000;
const SHOWN = 20;

type Filter = { readonly search: string; readonly status: string };
/** What a filter asks for. */
const given = (filter: Filter): Record<string, string> =>
  Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ''));

export function OrdersOf({ sale }: { sale: Sale }) {
  const isOpen = useSignal(false);
  return (
    <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>Orders</summary>
      {isOpen.value && <Orders {...sale} />}
    </details>
  );
}

interface Result {
  readonly tone: 'good' | 'bad';
  readonly title: string;
  readonly text?: string;
}

/** The state of one list, its refreshes, and its changes. */
function useOrders(id: number) {
  const filter = useSignal<Filter>({ search: '', status: '' });
  const shown = useSignal(SHOWN);
  const orders = useSignal<readonly Order[] | null>(null);
  const progress = useSignal<SaleRefund | null>(null);
  /** Why the last read of the list failed. */
  const failure = useSignal<string | null>(null);
  const result = useSignal<Result | null>(null);
  const isBusy = useSignal(false);
  const unitsReturn = useSignal(true);

  const query = () => new URLSearchParams({ limit: String(shown.value), ...given(filter.value) }).toString();
  async function refresh(): Promise<void> {
    const asked = query();
    const [list, refund] = await Promise.all([
      asAdmin<readonly Order[]>(`/sales/${id}/orders?${asked}`),
      asAdmin<SaleRefund>(`/sales/${id}/refund`),
    ]);
    // The answer for an earlier filter may come later.
    if (list.kind === 'ok' && asked === query()) orders.value = list.body;
    if (list.kind !== 'ok') failure.value = list.kind === 'problem' ? list.detail : 'No response came.';
    if (refund.kind === 'ok') progress.value = refund.body;
  }
  useEffect(() => {
    void refresh();
    const timer = setInterval(() => document.visibilityState === 'visible' && refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);

  /** Sends a change, unless one is in progress. */
  async function act(path: string, titleOf: (body: Order & SaleRefund) => string): Promise<void> {
    if (isBusy.value) return;
    isBusy.value = true;
    const answer = await press<Order & SaleRefund>(path, { returnUnits: unitsReturn.value });
    result.value =
      answer.kind === 'ok' ? { tone: 'good', title: titleOf(answer.body) } : { tone: 'bad', ...why(answer) };
    await refresh();
    isBusy.value = false;
  }
  return { filter, shown, orders, progress, failure, result, isBusy, unitsReturn, refresh, act };
}
type List = ReturnType<typeof useOrders>;

function Orders({ id, name }: Sale) {
  const list = useOrders(id);
  const { filter, shown, orders, progress, failure, result, isBusy, refresh, act } = list;
  const close = ({ orderId, userId }: Order) =>
    act(`/orders/${orderId}/refund`, ({ status }) =>
      status === 'cancelled' ? `The order of ${userId} is cancelled` : `The order of ${userId} is refunded`,
    );
  return (
    <div class="stack orders">
      <Tools name={name} list={list} />
      <div aria-live="polite">
        {result.value !== null && (
          <Notice tone={result.value.tone} title={result.value.title}>
            {result.value.text}
          </Notice>
        )}
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
          <Row key={order.orderId} order={order} isBusy={isBusy.value} onClose={() => close(order)} />
        ))}
      </ul>
      <div class="row">
        <ShowOlder of="orders" list={orders.value} shown={shown} by={5 * SHOWN} refresh={refresh} />
        <button
          type="button"
          class="slim"
          onClick={async () => {
            result.value = await exportOrders(id, filter.value);
          }}
        >
          Export as CSV
        </button>
        <CloseAll
          isBusy={isBusy.value}
          onConfirm={() => act(`/sales/${id}/refund`, ({ orders }) => `${count(orders)} to close`)}
        />
      </div>
    </div>
  );
}

/** Which orders are listed, and what becomes of the units of those that are closed. */
function Tools({ name, list: { filter, shown, unitsReturn, refresh } }: { name: string; list: List }) {
  const set = (changed: Partial<Filter>) => {
    filter.value = { ...filter.value, ...changed };
    shown.value = SHOWN;
    void refresh();
  };
  return (
    <div class="row filter">
      <input
        type="search"
        maxLength={64}
        placeholder="Customer or order"
        aria-label={`Search orders of ${name} by customer or id`}
        onInput={({ currentTarget }) => set({ search: currentTarget.value.trim() })}
      />
      <select aria-label="Status" onChange={({ currentTarget }) => set({ status: currentTarget.value })}>
        <option value="">All statuses</option>
        {orderStatuses.map((status) => (
          <option key={status} value={status}>
            {ORDER_PILLS[status][1]}
          </option>
        ))}
      </select>
      <label class="check">
        <input
          type="checkbox"
          checked={unitsReturn.value}
          onChange={({ currentTarget }) => (unitsReturn.value = currentTarget.checked)}
        />
        Units of closed orders return to the sale
      </label>
    </div>
  );
}

function Row({ order, isBusy, onClose }: { order: Order; isBusy: boolean; onClose: () => void }) {
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
        {count(order.quantity)} for {money(order.amountCents)}
        <br />
        <span class="soft">{dateTime(order.createdAt)}</span>
      </span>
      {verb !== undefined && (
        <button
          type="button"
          class="slim"
          aria-label={`${verb} the order of ${order.userId}`}
          aria-disabled={isBusy}
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

/** Asks before it closes all orders. */
function CloseAll({ isBusy, onConfirm }: { isBusy: boolean; onConfirm: () => void }) {
  const isAsking = useSignal(false);
  if (!isAsking.value)
    return (
      <button type="button" class="slim" onClick={() => (isAsking.value = true)}>
        Refund all…
      </button>
    );
  return (
    <span class="row">
      <span class="small">Cancel all unpaid orders and refund all paid ones?</span>
      <button
        type="button"
        class="slim"
        aria-disabled={isBusy}
        onClick={() => {
          isAsking.value = false;
          onConfirm();
        }}
      >
        Refund all
      </button>
      <button type="button" class="slim" onClick={() => (isAsking.value = false)}>
        Keep them
      </button>
    </span>
  );
}

function why(answer: Exclude<Answer<unknown>, { kind: 'ok' }>): { title: string; text: string } {
  const title = 'The request failed';
  const text =
    answer.kind === 'problem' ? answer.detail : 'No response came. Check the order before you try again.';
  return { title, text };
}

/** Downloads the orders that match. A link could not send the token. @returns why it failed; null: it did not */
async function exportOrders(saleId: number, filter: Filter): Promise<Result | null> {
  const failed = (text: string): Result => ({ tone: 'bad', title: 'The export failed', text });
  const cut = 'No complete response came. Try again.';
  try {
    const query = new URLSearchParams(given(filter));
    const response = await fetch(`/sales/${saleId}/orders.csv?${query}`, { headers: bearer(token.value) });
    if (!response.ok) return failed(String((await response.json()).detail ?? cut));
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await response.blob());
    link.download = `sale-${saleId}-orders.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    return null;
  } catch {
    return failed(cut);
  }
}
