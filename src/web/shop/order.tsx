/** The visitor's side of a sale: purchase, waiting, and the order with its payment. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { isComing, type SaleState } from '../../domain/sale.ts';
import { clock, count, money, shortDate, span } from '../ui/format.ts';
import { Field, Live, Notice, useKeptFocus } from '../ui/parts.tsx';
import { now } from '../ui/time.ts';
import type { View } from './effects.ts';
import {
  failureMessage,
  type Message,
  refusalMessage,
  type Waited,
  waitlistMessage,
  waitMessage,
} from './messages.ts';
import { Closed, Placed } from './placed.tsx';
import { isActive, isBusy, isSought, isUnauthorized } from './state.ts';

/** @param saleState of the sale, by the server's clock */
export function YourOrder({ saleState, ...view }: View & { saleState: SaleState }) {
  const { state } = view;
  const { order, attempt, entry } = state;
  const failure = failureMessage(state.change);
  const section = useRef<HTMLElement>(null);
  useKeptFocus(section);
  // On a phone what became of a press may be below the screen.
  useEffect(() => {
    if (attempt.kind !== 'idle') section.current?.lastElementChild?.scrollIntoView({ block: 'nearest' });
  }, [attempt.kind]);
  const has = order !== null && isActive(order);
  const isListed = saleState === 'sold-out' && entry !== null && entry.place !== null && !isBusy(state);
  const listed = has || isListed || isBusy(state) ? null : waitlistMessage(state, saleState);
  const said = listed !== null && attempt.kind === 'idle' && <Said message={listed} />;
  const isNamed = entry !== null && entry.namedAt !== null; // above the button that it is about
  return (
    <section ref={section} class="card stack your" aria-label="Your order">
      <Live>
        {order !== null && !has && <Closed state={state} order={order} />}
        {isNamed && said}
      </Live>
      {has ? (
        <>
          <Placed {...view} order={order} />
          {state.auth === 'jwt' && isUnauthorized(state) && <Customer {...view} />}
        </>
      ) : isListed ? (
        <Waiting {...view} place={entry.place!} quantity={entry.quantity} />
      ) : saleState === 'ended' ? (
        <Ended {...view} />
      ) : (
        <BuyForm {...view} saleState={saleState} />
      )}
      <Live>
        {isSought(state) && (order === null || attempt.kind === 'placed') && (
          <Notice tone="warn" title="Looking for your order" />
        )}
        {state.isUncommitted && attempt.kind !== 'refused' && (
          <Notice tone="warn" title="Your order is being confirmed" />
        )}
        {!isNamed && said}
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

/** Whether codes open the sale now. */
const isEarly = ({ codesFrom }: View['state']): boolean =>
  codesFrom !== null && Date.parse(codesFrom) <= now.value;

/** What a customer on the waitlist gets when units come back. */
const inTurn = ({ waitlist, waitlistHoldS }: View['state']['sale']): string =>
  waitlist === 'hold'
    ? `In your turn, your units are reserved for you for ${span(waitlistHoldS!)}, while you pay`
    : 'In your turn, this page says so. Nothing is reserved: whoever buys first gets the unit';

type Selling = Exclude<SaleState, 'ended'>;

/** What the button says, and the terms below it. */
function stepOf(
  { state }: View,
  saleState: Selling,
  units: number,
): readonly [label: string, ...terms: string[]] {
  const { sale, auth, paymentWindowS } = state;
  const { maxPerOrder, maxPerCustomer = maxPerOrder } = sale;
  const limit =
    sale.maxPerCustomer !== undefined
      ? `${count(maxPerCustomer)} per customer, together with related sales`
      : maxPerOrder === 1
        ? 'One per customer'
        : `Up to ${maxPerOrder} per customer`;
  const terms = [limit, `Reserved for ${span(paymentWindowS)}, while you pay`];
  switch (saleState) {
    case 'scheduled':
      if (auth === 'jwt')
        return ['Enter the waiting room', 'Turns are random: being early is no advantage', ...terms];
      return [
        isEarly(state) ? 'Buy with your code' : 'Not open yet',
        `${isEarly(state) ? 'Without a code, wait here' : 'Keep this page open'}: you can buy as soon as the sale opens`,
        ...terms,
      ];
    case 'open':
      return [`Buy for ${money(sale.priceCents * units, sale.currency)}`, ...terms];
    case 'paused':
      return [
        'Paused',
        `The shop has paused the sale. You can buy here when it goes on${isComing(sale, now.value) ? ' and has opened' : ''}`,
        ...terms,
      ];
    case 'sold-out':
      return [
        'Join the waitlist',
        'Units come back when orders are cancelled or not paid',
        inTurn(sale),
        'Waiting costs nothing, and you can leave at any time',
      ];
  }
}

const Ended = (view: View) => (
  <>
    <h2 tabIndex={-1}>This sale has ended</h2>
    <p>
      <a href="/">See what is on sale</a>
    </p>
    {view.state.order === null && (
      <details class="stack">
        <summary>Look up your order</summary>
        <Customer {...view} />
      </details>
    )}
  </>
);

function BuyForm({ saleState, ...view }: View & { saleState: Selling }) {
  const { state, dispatch } = view;
  const { sale, auth, codesFrom } = state;
  const isWaiting = isBusy(state) || state.waitlist === 'pending';
  const isInTurn = state.attempt.kind === 'waiting' && state.attempt.why === 'turn';
  const isSoldOut = saleState === 'sold-out';
  // With tickets, a turn is drawn before the start, so visitors may enter early.
  const isAdmitted = saleState === 'scheduled' && (auth === 'jwt' || isEarly(state));
  const isOpen = saleState === 'open' || isSoldOut || isAdmitted;
  const allowed = Math.min(sale.maxPerOrder, sale.maxPerCustomer ?? sale.maxPerOrder);
  const most = isSoldOut ? allowed : Math.max(1, Math.min(allowed, sale.remaining));
  const units = Math.min(state.units, most);
  const look = state.order === null ? 'primary large' : 'large';
  const [label, ...terms] = stepOf(view, saleState, units);
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        const given = new FormData(event.currentTarget);
        const [identity, code] = [
          String(given.get('customer')).trim(),
          String(given.get('code') ?? '').trim(),
        ];
        if (isOpen) dispatch({ is: isSoldOut ? 'joined' : 'pressed', identity, units, code });
      }}
    >
      <h2 tabIndex={-1}>{isSoldOut ? 'Waitlist' : state.order !== null ? 'Order again' : 'Your order'}</h2>
      <Customer {...view} />
      {codesFrom !== null && (
        <Code codesFrom={codesFrom} isNeeded={auth === 'none'} isUsed={isComing(sale, now.value)} />
      )}
      <div class="buy">
        {allowed > 1 && <Stepper {...view} {...{ most, units }} isFixed={isWaiting || !isOpen} />}
        <button type="submit" class={look} disabled={!isOpen} aria-disabled={isWaiting}>
          {isWaiting ? (isInTurn ? 'Waiting for your turn' : 'One moment…') : label}
        </button>
      </div>
      {/* A message takes their place. */}
      {state.attempt.kind === 'idle' && waitlistMessage(state, saleState) === null && (
        <ul class="terms small soft">
          {terms.map((term) => (
            <li key={term}>{term}</li>
          ))}
        </ul>
      )}
    </form>
  );
}

/** Keyboards of phones change nothing of what is typed, and their last key sends the form. */
const AS_TYPED = {
  autocomplete: 'off',
  autocapitalize: 'none',
  autocorrect: 'off',
  spellcheck: false,
  enterkeyhint: 'go',
} as const;

/** The code that opens a sale early; it keeps its space when the sale opens for all. */
function Code({ codesFrom, isNeeded, isUsed }: { codesFrom: string; isNeeded: boolean; isUsed: boolean }) {
  const hint =
    Date.parse(codesFrom) <= now.value
      ? 'With a code you can buy before the sale opens.'
      : `With a code you can buy from ${shortDate(codesFrom)}.`;
  return (
    <Field label="Access code" hint={isUsed ? hint : 'The sale needs no code any more.'}>
      <input name="code" maxLength={64} {...AS_TYPED} required={isNeeded} disabled={!isUsed} />
    </Field>
  );
}

/** The service counts no further. */
const COUNTED = 1_000;

/** The visitor's place on the waitlist. */
const Waiting = ({ state, dispatch, place, quantity }: View & { place: number; quantity: number }) => (
  <div class="stack">
    <h2 tabIndex={-1}>You are on the waitlist</h2>
    <div>
      <p class="soft">Your place in line</p>
      <p class="numeral">{place > COUNTED ? `${count(COUNTED)}+` : count(place)}</p>
    </div>
    <p class="small soft">
      You are waiting for {quantity === 1 ? 'one unit' : `${count(quantity)} units`}. {inTurn(state.sale)}.
      You keep your place when you close this page: come back to see whether your turn has come.
    </p>
    <button type="button" disabled={state.waitlist === 'pending'} onClick={() => dispatch({ is: 'left' })}>
      Leave the waitlist
    </button>
  </div>
);

/** Their space is the same, so that the button does not move when a name is refused. */
const NAME_HINT = 'No spaces. The shop knows you by this name.';
const NAME_ERROR = 'Letters, digits and . _ : - only, no spaces.';

function Customer({ state, dispatch }: View) {
  const [isWrong, setWrong] = useState(false);
  const isToken = state.auth === 'jwt';
  const hint = isToken ? 'The token that your shop’s sign-in gave you. It stays in this tab.' : NAME_HINT;
  return (
    <label class="field">
      {isToken ? 'Your token' : 'Your name'}
      <input
        name="customer"
        required
        {...AS_TYPED}
        readOnly={isBusy(state)}
        {...(isToken
          ? ({ type: 'password' } as const)
          : ({
              type: 'text',
              maxLength: 64,
              pattern: '[A-Za-z0-9._:\\-]+ *', // a keyboard's suggestion ends with a space
              placeholder: 'ann.smith',
            } as const))}
        // Not `value`: each event of the sale would set what the visitor is typing.
        defaultValue={state.identity}
        aria-invalid={isWrong}
        aria-describedby="customer-hint"
        onInput={({ currentTarget }) => setWrong(isWrong && !currentTarget.validity.valid)}
        onInvalid={(event) => {
          event.preventDefault();
          setWrong(true);
          event.currentTarget.focus();
        }}
        onChange={({ currentTarget }) => {
          const { valid, valueMissing } = currentTarget.validity;
          setWrong(!valid && !valueMissing);
          // A visitor who cannot buy has an order to look at, perhaps.
          if (valid) dispatch({ is: 'named', identity: currentTarget.value.trim() });
        }}
      />
      <small id="customer-hint" class={isWrong ? 'bad' : ''} aria-live="polite">
        {isWrong ? (isToken ? 'Please enter your token.' : NAME_ERROR) : hint}
      </small>
    </label>
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
    case 'waiting':
      return (
        <>
          <Wait attempt={attempt} sale={state.sale} />
          <button type="button" class="slim" onClick={() => dispatch({ is: 'stopped' })}>
            Stop waiting
          </button>
        </>
      );
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

/** Why the attempt waits, and until when. */
function Wait({ attempt, sale }: { attempt: Waited; sale: View['state']['sale'] }) {
  const [tone, title, text] = waitMessage(attempt, sale);
  const leftMs = attempt.untilMs - now.value;
  if (attempt.why === 'turn')
    return (
      <>
        <Notice tone={tone} title={title}>
          {text}.
        </Notice>
        <div class="turn">
          <p class="soft">
            Your turn comes <span aria-hidden="true">in</span>
          </p>
          <p class="numeral" aria-hidden="true">
            {clock(leftMs)}
          </p>
          <p class="small soft">on {shortDate(new Date(attempt.untilMs).toISOString())}</p>
        </div>
      </>
    );
  return (
    <Notice tone={tone} title={title}>
      {text}
      <span aria-hidden="true">
        {' '}
        in <b>{leftMs > 60_000 ? clock(leftMs) : `${Math.max(0, Math.ceil(leftMs / 1_000))}\u00a0s`}</b>
      </span>
      .
    </Notice>
  );
}

/** How many units, from one to the most that an order may have now. */
function Stepper(props: View & { most: number; units: number; isFixed: boolean }) {
  const { most, units, isFixed, dispatch } = props;
  const step = (by: number, label: string) => (
    <button
      type="button"
      aria-label={label}
      disabled={isFixed || units + by < 1 || units + by > most}
      onClick={() => dispatch({ is: 'stepped', units: units + by })}
    >
      {by < 0 ? '−' : '+'}
    </button>
  );
  return (
    <fieldset class="plain stepper">
      <legend class="unseen">Units</legend>
      {step(-1, 'One unit less')}
      <output aria-live="polite">{units}</output>
      {step(1, 'One unit more')}
    </fieldset>
  );
}
