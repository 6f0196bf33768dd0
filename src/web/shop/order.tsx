/** The visitor's side of a sale: purchase, waiting, and the order with its payment. */
import { useEffect, useRef } from 'preact/hooks';
import type { SaleState } from '../../domain/sale.ts';
import type { Order, Sale } from '../ui/api.ts';
import { clock, money } from '../ui/format.ts';
import { Fact, Field, Live, Notice, ORDER_PILLS, Pill, type Tone, useKeptFocus } from '../ui/parts.tsx';
import { now } from '../ui/time.ts';
import { type Auth, become, identity, isActive } from './customer.ts';
import {
  cancel,
  change,
  follow,
  isUnauthorized,
  isUncommitted,
  isUnread,
  order,
  pay,
  refresh,
  UNCHANGED,
} from './order-state.ts';
import {
  type Buyer,
  buy,
  isInProgress,
  type Purchase,
  purchase,
  stop,
  units,
  type WaitReason,
  waitedFor,
} from './purchase.ts';
import { Refused } from './refused.tsx';

interface Props extends Buyer {
  readonly sale: Sale;
  readonly state: SaleState;
  readonly canPay: boolean;
}

export function YourOrder({ sale, state, auth, canPay, proofWorker }: Omit<Props, 'saleId'>) {
  const buyer = { saleId: sale.id, auth, proofWorker };
  const { kind } = purchase.value;
  // After a reload, a placed order or a new identity: read the visitor's order from the server.
  useEffect(() => {
    // Otherwise it is read when it is placed.
    if (identity.value !== '' && !isInProgress(purchase.value)) void refresh(buyer);
  }, [identity.value, kind === 'placed']);
  useEffect(() => {
    const waited = waitedFor(sale.id);
    if (waited !== null) {
      units.value = waited.quantity;
      void buy(buyer, waited.mayExist);
    }
    return follow(buyer);
  }, []);
  const section = useRef<HTMLElement>(null);
  useKeptFocus(section);
  const has = order.value !== null && isActive(order.value);
  const needsToken = auth === 'jwt' && isUnauthorized(purchase.value);
  return (
    <section ref={section} class="card stack your" aria-label="Your order">
      {has ? (
        <>
          <Placed order={order.value!} {...{ auth, canPay }} />
          {needsToken && <Customer auth={auth} isFixed={false} />}
        </>
      ) : (
        <BuyForm {...buyer} {...{ sale, state, canPay }} />
      )}
      <Live>
        {order.value !== null && !has && <Closed order={order.value} isOpen={state === 'open'} />}
        {isUnread() && (order.value === null || kind === 'placed') && (
          <Notice tone="warn" title="Looking for your order" />
        )}
        {isUncommitted.value && <Notice tone="warn" title="Your order is being confirmed" />}
        <Progress purchase={purchase.value} {...{ auth, sale }} />
        {change.value.failure !== null && <Notice tone="bad" title={change.value.failure} />}
      </Live>
    </section>
  );
}

function BuyForm(props: Props) {
  const { sale, state, auth } = props;
  const { kind } = purchase.value;
  const isBusy = isInProgress(purchase.value) || kind === 'placed';
  // With tickets, a turn is drawn before the start, so visitors may enter early.
  const canWait = auth === 'jwt' && state === 'scheduled';
  const isOpen = state === 'open' || canWait;
  const most = Math.max(1, Math.min(sale.maxPerOrder, sale.remaining));
  const asked = Math.min(units.value, most);
  const label = {
    scheduled: canWait ? 'Enter the waiting room' : 'Not open yet',
    open: `Buy for ${money(sale.priceCents * asked)}`,
    paused: 'Paused',
    'sold-out': 'Sold out',
    ended: 'This sale has ended',
  }[state];
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        const given = String(new FormData(event.currentTarget).get('customer') ?? identity.value).trim();
        if (!isBusy) {
          if (given !== identity.value) become(given);
          units.value = asked;
          change.value = UNCHANGED;
        }
        if (isOpen) void buy(props);
      }}
    >
      <h2 tabIndex={-1}>Your order</h2>
      <Customer auth={auth} isFixed={isBusy} />
      {sale.maxPerOrder > 1 && <Stepper most={most} value={asked} isFixed={isBusy || !isOpen} />}
      <button type="submit" class="primary large" disabled={!isOpen} aria-disabled={isBusy}>
        {isBusy ? 'One moment…' : label}
      </button>
      {state === 'sold-out' && !isBusy && (
        <p class="small soft">
          Units become available again when orders are cancelled or expire. This page shows them at once.
        </p>
      )}
      {state === 'open' && kind === 'idle' && (
        <p class="small soft">
          {sale.maxPerOrder === 1
            ? 'One per customer, even if you press twice.'
            : `One order per customer, of at most ${sale.maxPerOrder}, even if you press twice.`}
        </p>
      )}
    </form>
  );
}

function Customer({ auth, isFixed }: { auth: Auth; isFixed: boolean }) {
  const common = {
    name: 'customer',
    required: true,
    autocomplete: 'off',
    spellcheck: false,
    readOnly: isFixed,
    value: identity.value,
    // A visitor who cannot buy has an order to look at, perhaps.
    onChange: ({ currentTarget }: { currentTarget: HTMLInputElement }) => {
      if (!isFixed && currentTarget.checkValidity()) become(currentTarget.value.trim());
    },
  };
  return auth === 'jwt' ? (
    <Field label="Your token" hint="The token that your shop’s sign-in gave you. It stays in this tab.">
      <input {...common} type="password" />
    </Field>
  ) : (
    <Field label="Your name" hint="Up to 64 letters, digits and . _ : - . The shop does not verify it.">
      <input {...common} type="text" maxLength={64} pattern="[A-Za-z0-9._:\-]+" />
    </Field>
  );
}

const WAITS: Readonly<Record<WaitReason, readonly [Tone, string, string]>> = {
  busy: ['warn', 'The shop is very busy', 'You have not bought anything yet. The page tries again'],
  limit: ['warn', 'Too many requests', 'You have not bought anything yet. The page tries again'],
  unknown: [
    'warn',
    'No response came, and your order may exist',
    'A retry finds or places your order, and never buys twice. The page tries again',
  ],
  turn: ['good', 'You are in the waiting room', 'Keep this page open. It buys for you when your turn comes'],
};

const ALL_TAKEN: readonly [Tone, string, string] = [
  'warn',
  'Every unit is taken at the moment',
  'A unit comes back when an order is cancelled or expires. The page asks for one when your turn comes',
];

/** Announced by screen readers, without the running seconds. */
function Progress({ purchase: state, auth, sale }: { purchase: Purchase; auth: Auth; sale: Sale }) {
  switch (state.kind) {
    case 'asking':
      return <p class="soft">Placing your order…</p>;
    case 'proving':
      return (
        <Notice tone="plain" title="Your browser solves a small puzzle">
          It slows scripts down. This takes a few seconds.
        </Notice>
      );
    case 'waiting': {
      const isTaken = state.why === 'turn' && sale.remaining <= 0;
      const [tone, title, text] = isTaken ? ALL_TAKEN : WAITS[state.why];
      const leftMs = state.untilMs - now.value;
      return (
        <>
          <Notice tone={tone} title={state.detail?.replace(/\.$/, '') ?? title}>
            {text}
            <span aria-hidden="true">
              {' '}
              in {leftMs > 60_000 ? clock(leftMs) : `${Math.max(0, Math.ceil(leftMs / 1_000))} s`}
            </span>
            .
          </Notice>
          <button type="button" class="slim" onClick={stop}>
            Stop waiting
          </button>
        </>
      );
    }
    case 'checking':
      return (
        <Notice tone="warn" title="Looking for your order">
          A request may have placed it. This takes a few seconds.
        </Notice>
      );
    case 'refused':
      return <Refused {...state} {...{ auth, sale }} />;
    default:
      return null;
  }
}

/** How many units, from one to the most that an order may have now. */
function Stepper({ most, value, isFixed }: { most: number; value: number; isFixed: boolean }) {
  const step = (by: number, label: string) => (
    <button
      type="button"
      class="slim"
      aria-label={label}
      disabled={isFixed || value + by < 1 || value + by > most}
      onClick={() => (units.value = value + by)}
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
      <output aria-live="polite">{value}</output>
      {step(1, 'One unit more')}
    </fieldset>
  );
}

function Placed({ order: mine, auth, canPay }: { order: Order; auth: Auth; canPay: boolean }) {
  const [tone, text] = ORDER_PILLS[mine.status];
  const isPending = mine.status === 'pending';
  const leftMs = Date.parse(mine.expiresAt) - now.value;
  const isOver = leftMs <= 0;
  return (
    <div class="stack">
      <div class="row apart">
        <h2 tabIndex={-1}>{isPending ? 'Your order is reserved' : 'Your order is paid'}</h2>
        <Pill tone={tone}>{text}</Pill>
      </div>
      <dl class="facts">
        <Fact term="To pay" text={isPending ? money(mine.amountCents) : money(0)} />
        {isPending && <Fact term="Pay within" text={isOver ? 'the time is over' : clock(leftMs)} />}
        {!isPending && <Fact term="Paid" text={money(mine.amountCents)} />}
        {mine.quantity > 1 && <Fact term="Units" text={String(mine.quantity)} />}
        <Fact term="Customer" text={mine.userId} />
        <Fact term="Order" text={mine.orderId} isCode />
      </dl>
      {isPending && (
        <div class="stack tight">
          {canPay ? (
            <button
              type="button"
              class="primary large"
              disabled={change.value.isPending || isOver}
              onClick={() => pay(mine)}
            >
              Pay {money(mine.amountCents)} (demo)
            </button>
          ) : (
            <p class="small soft">
              Pay with your payment provider. This page shows the payment when it arrives.
            </p>
          )}
          <button type="button" disabled={change.value.isPending} onClick={() => cancel(mine, auth)}>
            Cancel the order
          </button>
        </div>
      )}
    </div>
  );
}

function Closed({ order: { status, paidAt }, isOpen }: { order: Order; isOpen: boolean }) {
  const next = isOpen && 'You can place a new order.';
  if (status === 'refund-due' && paidAt !== null)
    return (
      <Notice tone="warn" title="Your order is refunded">
        The shop has cancelled it. You will get back what you paid. {next}
      </Notice>
    );
  if (status === 'refund-due')
    return (
      <Notice tone="warn" title="Your payment came too late">
        You will get a refund. It was no longer reserved for you.
      </Notice>
    );
  return status === 'expired' ? (
    <Notice tone="warn" title="Your order expired">
      It was not paid in time, so nothing is reserved any more. {next}
    </Notice>
  ) : (
    <Notice tone="plain" title="Your order is cancelled">
      Nothing is reserved for you any more. {next}
    </Notice>
  );
}
