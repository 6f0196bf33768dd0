/** The visitor's side of a sale: purchase, waiting, and the order with its payment. */
import { useRef } from 'preact/hooks';
import type { SaleState } from '../../domain/sale.ts';
import type { Order } from '../ui/answers.ts';
import { clock, money } from '../ui/format.ts';
import { Fact, Field, Live, Notice, ORDER_PILLS, Pill, useKeptFocus } from '../ui/parts.tsx';
import { now } from '../ui/time.ts';
import type { View } from './effects.ts';
import { closedMessage, failureMessage, type Message, refusalMessage, waitMessage } from './messages.ts';
import { isActive, isBusy, isSought, isUnauthorized } from './state.ts';

/** @param saleState of the sale, by the server's clock */
export function YourOrder({ saleState, ...view }: View & { saleState: SaleState }) {
  const { state } = view;
  const { order, attempt } = state;
  const failure = failureMessage(state.change);
  const section = useRef<HTMLElement>(null);
  useKeptFocus(section);
  const has = order !== null && isActive(order);
  return (
    <section ref={section} class="card stack your" aria-label="Your order">
      {has ? (
        <>
          <Placed {...view} order={order} />
          {state.auth === 'jwt' && isUnauthorized(state) && <Customer {...view} />}
        </>
      ) : (
        <BuyForm {...view} saleState={saleState} />
      )}
      <Live>
        {order !== null && !has && <Said message={closedMessage(order, saleState === 'open')} />}
        {isSought(state) && (order === null || attempt.kind === 'placed') && (
          <Notice tone="warn" title="Looking for your order" />
        )}
        {state.isUncommitted && <Notice tone="warn" title="Your order is being confirmed" />}
        <Progress {...view} />
        {failure !== null && <Notice tone="bad" title={failure} />}
      </Live>
    </section>
  );
}

const Said = ({ message: [tone, title, text] }: { message: Message }) => (
  <Notice tone={tone} title={title}>
    {text}
  </Notice>
);

function BuyForm({ saleState, ...view }: View & { saleState: SaleState }) {
  const { state, dispatch } = view;
  const { sale, auth, attempt } = state;
  const isWaiting = isBusy(state);
  // With tickets, a turn is drawn before the start, so visitors may enter early.
  const canWait = auth === 'jwt' && saleState === 'scheduled';
  const isOpen = saleState === 'open' || canWait;
  const most = Math.max(1, Math.min(sale.maxPerOrder, sale.remaining));
  const units = Math.min(state.units, most);
  const label = {
    scheduled: canWait ? 'Enter the waiting room' : 'Not open yet',
    open: `Buy for ${money(sale.priceCents * units, sale.currency)}`,
    paused: 'Paused',
    'sold-out': 'Sold out',
    ended: 'This sale has ended',
  }[saleState];
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        const identity = String(new FormData(event.currentTarget).get('customer')).trim();
        if (isOpen) dispatch({ is: 'pressed', identity, units });
      }}
    >
      <h2 tabIndex={-1}>Your order</h2>
      <Customer {...view} />
      {sale.maxPerOrder > 1 && <Stepper {...view} {...{ most, units }} isFixed={isWaiting || !isOpen} />}
      <button type="submit" class="primary large" disabled={!isOpen} aria-disabled={isWaiting}>
        {isWaiting ? 'One moment…' : label}
      </button>
      {saleState === 'sold-out' && !isWaiting && (
        <p class="small soft">
          Units become available again when orders are cancelled or expire. This page shows them at once.
        </p>
      )}
      {saleState === 'open' && attempt.kind === 'idle' && (
        <p class="small soft">
          {sale.maxPerOrder === 1
            ? 'One per customer, even if you press twice.'
            : `One order per customer, of at most ${sale.maxPerOrder}, even if you press twice.`}
        </p>
      )}
    </form>
  );
}

function Customer({ state, dispatch }: View) {
  const isFixed = isBusy(state);
  const common = {
    name: 'customer',
    required: true,
    autocomplete: 'off',
    spellcheck: false,
    readOnly: isFixed,
    // Not `value`: each event of the sale would set what the visitor is typing.
    defaultValue: state.identity,
    // A visitor who cannot buy has an order to look at, perhaps.
    onChange: ({ currentTarget }: { currentTarget: HTMLInputElement }) => {
      if (currentTarget.checkValidity()) dispatch({ is: 'named', identity: currentTarget.value.trim() });
    },
  };
  return state.auth === 'jwt' ? (
    <Field label="Your token" hint="The token that your shop’s sign-in gave you. It stays in this tab.">
      <input {...common} type="password" />
    </Field>
  ) : (
    <Field label="Your name" hint="Up to 64 letters, digits and . _ : - . The shop does not verify it.">
      <input {...common} type="text" maxLength={64} pattern="[A-Za-z0-9._:\-]+" />
    </Field>
  );
}

/** Announced by screen readers, without the running seconds. */
function Progress({ state, dispatch }: View) {
  const { attempt } = state;
  switch (attempt.kind) {
    case 'ticket':
    case 'ordering':
      return <p class="soft">Placing your order…</p>;
    case 'proving':
      return (
        <Notice tone="plain" title="Your browser solves a small puzzle">
          It slows scripts down. This takes a few seconds.
        </Notice>
      );
    case 'waiting': {
      const [tone, title, text] = waitMessage(attempt, state.sale);
      const leftMs = attempt.untilMs - now.value;
      return (
        <>
          <Notice tone={tone} title={title}>
            {text}
            <span aria-hidden="true">
              {' '}
              in {leftMs > 60_000 ? clock(leftMs) : `${Math.max(0, Math.ceil(leftMs / 1_000))} s`}
            </span>
            .
          </Notice>
          <button type="button" class="slim" onClick={() => dispatch({ is: 'stopped' })}>
            Stop waiting
          </button>
        </>
      );
    }
    case 'looking':
      return (
        <Notice tone="warn" title="Looking for your order">
          A request may have placed it. This takes a few seconds.
        </Notice>
      );
    case 'refused':
      return <Said message={refusalMessage(attempt.problem, state)} />;
    default:
      return null;
  }
}

/** How many units, from one to the most that an order may have now. */
function Stepper(props: View & { most: number; units: number; isFixed: boolean }) {
  const { most, units, isFixed, dispatch } = props;
  const step = (by: number, label: string) => (
    <button
      type="button"
      class="slim"
      aria-label={label}
      disabled={isFixed || units + by < 1 || units + by > most}
      onClick={() => dispatch({ is: 'stepped', units: units + by })}
    >
      {by < 0 ? '−' : '+'}
    </button>
  );
  return (
    <fieldset class="row plain">
      <legend>
        <b class="small">Units</b>
      </legend>
      {step(-1, 'One unit less')}
      <output aria-live="polite">{units}</output>
      {step(1, 'One unit more')}
    </fieldset>
  );
}

function Placed({ state, dispatch, order: mine }: View & { order: Order }) {
  const [tone, text] = ORDER_PILLS[mine.status];
  const pay = (cents: number) => money(cents, state.sale.currency);
  const isPending = mine.status === 'pending';
  const leftMs = Date.parse(mine.expiresAt) - now.value;
  const isOver = leftMs <= 0;
  const isChanging = state.change === 'pending';
  const press = (by: 'pay' | 'cancel') => dispatch({ is: 'changing', by, order: mine });
  return (
    <div class="stack">
      <div class="row apart">
        <h2 tabIndex={-1}>{isPending ? 'Your order is reserved' : 'Your order is paid'}</h2>
        <Pill tone={tone}>{text}</Pill>
      </div>
      <dl class="facts">
        <Fact term="To pay" text={isPending ? pay(mine.amountCents) : pay(0)} />
        {isPending && <Fact term="Pay within" text={isOver ? 'the time is over' : clock(leftMs)} />}
        {!isPending && <Fact term="Paid" text={pay(mine.amountCents)} />}
        {mine.quantity > 1 && <Fact term="Units" text={String(mine.quantity)} />}
        <Fact term="Customer" text={mine.userId} />
        <Fact term="Order" text={mine.orderId} isCode />
      </dl>
      {isPending && (
        <div class="stack tight">
          {state.canPay ? (
            <button
              type="button"
              class="primary large"
              disabled={isChanging || isOver}
              onClick={() => press('pay')}
            >
              Pay {pay(mine.amountCents)} (demo)
            </button>
          ) : (
            <p class="small soft">
              Pay with your payment provider. This page shows the payment when it arrives.
            </p>
          )}
          <button type="button" disabled={isChanging} onClick={() => press('cancel')}>
            Cancel the order
          </button>
        </div>
      )}
    </div>
  );
}
