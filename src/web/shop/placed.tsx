/** The visitor's latest order: reserved, paid, or closed. */
import { orderNumber } from '../../domain/order.ts';
import type { Order } from '../ui/answers.ts';
import { clock, count, longDate, money } from '../ui/format.ts';
import { Bar } from '../ui/parts.tsx';
import { now } from '../ui/time.ts';
import type { View } from './effects.ts';
import { closedMessage } from './messages.ts';

export const Placed = (view: View & { order: Order }) =>
  view.order.status === 'pending' ? <Reserved {...view} /> : <Receipt {...view} />;

function Reserved({ state, dispatch, order }: View & { order: Order }) {
  const [made, ends] = [Date.parse(order.createdAt), Date.parse(order.expiresAt)];
  const leftMs = ends - now.value;
  const isOver = leftMs <= 0;
  const isChanging = state.change === 'pending';
  const press = (by: 'pay' | 'cancel') => dispatch({ is: 'changing', by, order });
  const amount = money(order.amountCents, state.sale.currency);
  return (
    <>
      <div class="stack tight">
        <h2 tabIndex={-1}>Your order is reserved</h2>
        <p class="soft">
          {isOver ? 'The time to pay is over' : 'Pay within '}
          {!isOver && <b class="time">{clock(leftMs)}</b>}
        </p>
        <Bar label="Time left to pay" value={leftMs} max={ends - made} isStock />
      </div>
      <Lines {...{ state, order }} total="To pay" />
      <div class="stack tight actions">
        {state.canPay ? (
          <button
            type="button"
            class="primary large"
            disabled={isChanging || isOver}
            onClick={() => press('pay')}
          >
            Pay {amount} (demo)
          </button>
        ) : (
          <p class="notice">
            Pay in the way that the shop offers, within this time, and quote the order number. This page shows
            when the order is paid.
          </p>
        )}
        <button type="button" class="quiet" disabled={isChanging} onClick={() => press('cancel')}>
          Cancel the order
        </button>
      </div>
    </>
  );
}

const Lines = ({
  state: { auth, sale },
  order,
  total,
}: Pick<View, 'state'> & { order: Order; total: string }) => (
  <dl class="facts">
    {[
      ['Order', orderNumber(order.orderId)],
      ...(auth === 'jwt' ? [] : [['Name', order.userId] as const]), // with tokens it is none that the customer knows
      ['Units', `${count(order.quantity)} × ${money(order.priceCents, sale.currency)}`],
      [total, money(order.amountCents, sale.currency)],
    ].map(([term, text]) => (
      <div key={term}>
        <dt>{term}</dt>
        <dd>{text}</dd>
      </div>
    ))}
  </dl>
);

/** What became of it, and, where money moved, which it was. */
export function Closed({ state, order }: Pick<View, 'state'> & { order: Order }) {
  const [tone, title, text] = closedMessage(order);
  return (
    <>
      <div class={`notice ${tone}`}>
        <h2 tabIndex={-1}>{title}</h2>
        <p>{text}</p>
      </div>
      {order.status === 'refund-due' && <Lines {...{ state, order }} total="Refund" />}
    </>
  );
}

function Receipt({ state, order }: View & { order: Order }) {
  return (
    <>
      <div class="hold">
        <svg class="ring" viewBox="0 0 48 48" aria-hidden="true">
          <circle cx="24" cy="24" r="21" />
          <path d="M15 25l6.5 6.5L33.5 18" pathLength={100} />
        </svg>
        <div>
          <h2 tabIndex={-1}>Your order is paid</h2>
          <p class="soft">Thank you. {order.paidAt !== null && longDate(order.paidAt)}</p>
        </div>
      </div>
      <Lines {...{ state, order }} total="Paid" />
      <div class="stack tight actions">
        <p class="small soft">Keep the order number: support finds your order by it.</p>
        <button type="button" onClick={() => print()}>
          Print or save the receipt
        </button>
      </div>
    </>
  );
}
