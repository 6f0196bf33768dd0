/** The visitor's side of a sale: purchase, waiting, and the order with its payment. */
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { SaleState } from '../../domain/sale.ts';
import { ask, type Order, type Sale } from '../ui/api.ts';
import { clock, money } from '../ui/format.ts';
import { Field, Live, Notice, Pill, type Tone } from '../ui/parts.tsx';
import { now, pause } from '../ui/time.ts';
import { type Auth, become, findOrder, identity, tokenFor } from './customer.ts';
import { type Buyer, buy, type Purchase, persist, purchase, stop, type WaitReason } from './purchase.ts';

interface Props extends Buyer {
  readonly sale: Sale;
  readonly state: SaleState;
  readonly canPay: boolean;
}

const order = signal<Order | null>(null);
/** A pending change of the order, or the reason of its failure. */
const change = signal<{ readonly isPending: boolean; readonly failure: string | null }>({
  isPending: false,
  failure: null,
});
const isUncommitted = signal(false);

const REFRESH_MS = 3_000;

export function YourOrder({ sale, state, auth, canPay, proofWorker }: Omit<Props, 'saleId'>) {
  const buyer = { saleId: sale.id, auth, proofWorker };
  const { kind } = purchase.value;
  // After a reload, a placed order or a new identity: read the visitor's order from the server.
  useEffect(() => {
    const isAsking = kind === 'asking' || kind === 'waiting' || kind === 'proving'; // then it is read when placed
    if (identity.value !== '' && !isAsking) void refresh(buyer);
  }, [identity.value, kind === 'placed']);
  useEffect(() => {
    const timer = setInterval(() => {
      const mayChange = order.value?.status === 'pending' || isUncommitted.value;
      if (mayChange && document.visibilityState === 'visible') void refresh(buyer);
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const has = order.value?.status === 'pending' || order.value?.status === 'paid';
  return (
    <section class="card stack your" aria-label="Your order">
      {has ? (
        <Placed order={order.value!} {...{ auth, canPay }} />
      ) : (
        <BuyForm {...buyer} {...{ sale, state, canPay }} />
      )}
      <Live>
        {order.value !== null && !has && <Closed order={order.value} />}
        {isUncommitted.value && <Notice tone="warn" title="Your order is being confirmed" />}
        <Progress purchase={purchase.value} auth={auth} />
        {change.value.failure !== null && <Notice tone="bad" title={change.value.failure} />}
      </Live>
    </section>
  );
}

async function refresh({ auth, saleId }: Buyer): Promise<void> {
  const of = identity.value;
  const answer = await findOrder(auth, saleId);
  if (of !== identity.value) return;
  isUncommitted.value = answer.kind === 'problem' && answer.body.reason === 'order-not-committed';
  if (answer.kind === 'ok') {
    order.value = answer.body;
    if (purchase.value.kind === 'placed') purchase.value = { kind: 'idle' };
  } else if (answer.kind === 'problem' && answer.slug === 'unknown-order') order.value = null;
  else if (answer.kind === 'problem' && answer.slug === 'unauthorized')
    purchase.value = { kind: 'refused', problem: answer };
  // A placed order that cannot be read yet: retry.
  else if (purchase.value.kind === 'placed')
    await pause(1_000).then(() => refresh({ auth, saleId, proofWorker: '' }));
}

function BuyForm(props: Props) {
  const { sale, state, auth } = props;
  const { kind } = purchase.value;
  const isBusy = kind === 'asking' || kind === 'waiting' || kind === 'proving' || kind === 'placed';
  // With tickets, a turn is drawn before the start, so visitors may enter early.
  const canWait = auth === 'jwt' && state === 'scheduled';
  const isOpen = state === 'open' || canWait;
  const label = {
    scheduled: canWait ? 'Enter the waiting room' : 'Not open yet',
    open: `Buy for ${money(sale.priceCents)}`,
    'sold-out': 'Sold out',
    ended: 'This sale has ended',
  }[state];
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        const given = String(new FormData(event.currentTarget).get('customer') ?? identity.value).trim();
        if (given !== identity.value && !isBusy) become(given);
        if (isOpen) void buy(props);
      }}
    >
      <h2>Your order</h2>
      <Customer auth={auth} isFixed={isBusy} />
      <button type="submit" class="primary large" disabled={!isOpen} aria-disabled={isBusy}>
        {isBusy ? 'One moment…' : label}
      </button>
      {state === 'sold-out' && !isBusy && (
        <p class="small soft">
          Units become available again when orders are cancelled or expire. This page shows them at once.
        </p>
      )}
      {state === 'open' && kind === 'idle' && (
        <p class="small soft">One per customer, even if you press twice.</p>
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
  };
  return auth === 'jwt' ? (
    <Field label="Your token" hint="The token that your shop’s sign-in gave you. It stays in this tab.">
      <input {...common} type="password" />
    </Field>
  ) : (
    <Field
      label="Your name"
      hint="Up to 64 letters, digits and . _ : - . With AUTH=none the shop does not verify it."
    >
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

/** Announced by screen readers, without the running seconds. */
function Progress({ purchase: state, auth }: { purchase: Purchase; auth: Auth }) {
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
      const [tone, title, text] = WAITS[state.why];
      const leftMs = state.untilMs - now.value;
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
          <button type="button" class="slim" onClick={stop}>
            Stop waiting
          </button>
        </>
      );
    }
    case 'refused':
      return <Refused {...state} auth={auth} />;
    default:
      return null;
  }
}

function Refused({ problem, auth }: Extract<Purchase, { kind: 'refused' }> & { auth: Auth }) {
  switch (problem.slug) {
    case 'sold-out':
      return (
        <Notice tone="bad" title="Sold out">
          Another customer got the last unit. You were not charged.
        </Notice>
      );
    case 'sale-not-open':
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

const STATUSES: Readonly<Record<Order['status'], readonly [Tone, string]>> = {
  pending: ['warn', 'Reserved for you'],
  paid: ['good', 'Paid'],
  cancelled: ['plain', 'Cancelled'],
  expired: ['plain', 'Expired'],
  'refund-due': ['bad', 'Refund due'],
};

function Placed({ order: mine, auth, canPay }: { order: Order; auth: Auth; canPay: boolean }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), [mine.orderId]);
  const [tone, text] = STATUSES[mine.status];
  const isPending = mine.status === 'pending';
  const leftMs = Date.parse(mine.expiresAt) - now.value;
  return (
    <div class="stack">
      <div class="row apart">
        <h2 ref={heading} tabIndex={-1}>
          {isPending ? 'Your order is reserved' : 'Your order is paid'}
        </h2>
        <Pill tone={tone}>{text}</Pill>
      </div>
      <dl class="facts">
        <Fact term="To pay" text={isPending ? money(mine.priceCents) : '0.00'} />
        {isPending && <Fact term="Pay within" text={clock(leftMs)} />}
        {!isPending && <Fact term="Paid" text={money(mine.priceCents)} />}
        <Fact term="Customer" text={mine.userId} />
        <Fact term="Order" text={mine.orderId} isCode />
      </dl>
      {isPending && (
        <div class="stack tight">
          {canPay ? (
            <button
              type="button"
              class="primary large"
              disabled={change.value.isPending}
              onClick={() => pay(mine)}
            >
              Pay {money(mine.priceCents)} (demo)
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

const Fact = ({ term, text, isCode = false }: { term: string; text: string; isCode?: boolean }) => (
  <div>
    <dt>{term}</dt>
    <dd>{isCode ? <code>{text}</code> : text}</dd>
  </div>
);

function Closed({ order: { status } }: { order: Order }) {
  if (status === 'refund-due')
    return (
      <Notice tone="warn" title="Your payment came too late">
        You will get a refund. The unit was no longer reserved for you.
      </Notice>
    );
  return status === 'expired' ? (
    <Notice tone="warn" title="Your order expired">
      It was not paid in time. Its unit is on sale again.
    </Notice>
  ) : (
    <Notice tone="plain" title="Your order is cancelled">
      Its unit is on sale again. You can place a new order.
    </Notice>
  );
}

/** Sends the notification of a payment provider; its id makes it idempotent. */
const pay = ({ orderId, priceCents }: Order) =>
  changed(() =>
    ask('/payments/notifications', {
      body: { notificationId: `demo-${orderId}`, orderId, amountCents: priceCents },
    }),
  );

const cancel = ({ orderId }: Order, auth: Auth) =>
  changed(() => ask(`/orders/${orderId}/cancel`, { body: {}, ...tokenFor(auth) }));

async function changed(request: () => ReturnType<typeof ask<Order>>): Promise<void> {
  change.value = { isPending: true, failure: null };
  const answer = await persist(request);
  const failure =
    answer.kind === 'ok'
      ? null
      : answer.kind === 'lost'
        ? 'No response came. Reload the page to see your order.'
        : answer.detail;
  change.value = { isPending: false, failure };
  if (answer.kind === 'ok') order.value = answer.body;
}
