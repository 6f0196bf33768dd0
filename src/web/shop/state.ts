/**
 * The page of a sale as one state machine without effects: the sale, the visitor's attempt to buy, and the visitor's order. `reduce` gives
 * the next state and, in its `todo`, the tasks to run; effects.ts runs them and reports how each ended. The attempt is that of a
 * well-behaved client: repeated presses and retries lead to one order.
 *
 *   idle ──press──▶ ordering ──200, 201, 202──▶ placed ──the order is read──▶ idle
 *                    │  ▲
 *     busy, too many │  │ after `Retry-After`: the same request again
 *     no answer      │  │ after 4 s: finds or places the order
 *     turn           ▼  │ when the turn of the ticket comes
 *                   waiting ──stop──▶ idle
 *        any other problem ──▶ refused
 *
 * Where an order of an earlier request may exist, a stop and a refusal lead to looking first, until none can be placed any more. An active
 * order that is read ends any attempt. With AUTH=jwt a ticket comes first (ticket, proving), and a new one when the start is moved: see
 * docs/reference/tickets.md.
 */
import type { Answer, Order, PlacedOrder, Problem, SaleEvent, Ticket } from '../ui/answers.ts';
import type {
  Attempt,
  Moment,
  Outcome,
  PageEvent,
  SaleData,
  State,
  Task,
  Unmatched,
  WaitReason,
} from './model.ts';

export const UNKNOWN_MS = 4_000;
export const BUSY_MS = 1_000;
/** For so long after its end, a request without a definite answer may place an order. */
const EFFECT_MS = 10_000;
/** Tickets that are taken one after the other because the service accepts none of them. */
const MAX_RENEWALS = 3;
/** A payment may come, also too late, or a refund. */
const MAY_CHANGE: ReadonlySet<string | undefined> = new Set(['pending', 'paid', 'expired', 'cancelled']);
/** Places on the waitlist that are read with each tick. One further back changes slowly: it is read with about one of ten. */
const NEAR = 100;
const IDLE: Attempt = { kind: 'idle' };
const NO_TICKET = { ticket: null, invalidTickets: 0, isQueued: false };

export const initial = ({ now: _now, ...data }: SaleData, identity: string): State => ({
  ...data,
  ...NO_TICKET,
  ...{ isLive: true, identity, units: 1, code: '', attempt: IDLE, doubtMs: null },
  ...{ entry: null, waitlist: null, listedAfter: 0, isReturned: false },
  ...{ order: null, isUncommitted: false, isUnread: false, change: null },
  ...{ reading: null, awaited: null, tasks: 0, todo: [] },
});

/** Whether the customer has it, rather than may place another. */
export const isActive = ({ status }: Order): boolean => status === 'pending' || status === 'paid';

/** Whether a repeat at once gets the same answer. */
export const isFinal = (answer: Answer<unknown>): boolean =>
  answer.kind === 'problem' && answer.status < 500 && answer.status !== 429;

const isInProgress = ({ attempt: { kind } }: State): boolean =>
  kind !== 'idle' && kind !== 'refused' && kind !== 'placed';

/** Whether a press of the button does nothing. */
export const isBusy = (state: State): boolean => isInProgress(state) || state.attempt.kind === 'placed';

/** Whether the order is not known. An attempt in progress finds it without another read. */
export const isSought = (state: State): boolean => state.isUnread && !isInProgress(state);

export const isUnauthorized = ({ attempt }: State): boolean =>
  attempt.kind === 'refused' && attempt.problem.slug === 'unauthorized';

const mayExist = ({ doubtMs, attempt }: State): boolean => doubtMs !== null || attempt.kind === 'ordering';

/** The subject of the visitor's token, which a renewed token has, too; empty: there is none. */
function subjectOf(identity: string): string {
  const payload = identity.split('.')[1] ?? '';
  try {
    return String(JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/'))).sub ?? '');
  } catch {
    return '';
  }
}

const wanted = ({ units, code }: State): string => (code === '' ? String(units) : `${units}/${code}`);

/** What a reload needs to enter the waiting room again, for the same customer, number of units and code; null: nothing. */
export const saved = (state: State): string | null =>
  state.isQueued && isInProgress(state)
    ? `${state.sale.id} ${wanted(state)} ${mayExist(state)} ${subjectOf(state.identity)}`
    : null;

export function reduce(before: State, event: PageEvent, at: Moment): State {
  const state: State = { ...before, todo: [] };
  switch (event.is) {
    case 'opened':
      return resume(find(state, at), event.saved, at);
    case 'sale':
      return selling(state, event.sale, at);
    case 'live':
      return { ...state, isLive: event.isLive };
    case 'stepped':
      return { ...state, units: event.units };
    case 'named':
      return isBusy(state) ? state : find(named(state, event.identity), at);
    case 'pressed':
      if (isBusy(state)) return state;
      return request({
        ...named(state, event.identity),
        units: event.units,
        code: event.code ?? '',
        change: null,
        isReturned: false,
        ...NO_TICKET,
      });
    case 'stopped':
      return look({ ...state, isQueued: false }, null, at);
    case 'joined':
      if (isBusy(state)) return state;
      return enlist({ ...named(state, event.identity), units: event.units, attempt: IDLE }, 'join');
    case 'left':
      return enlist(state, 'leave');
    case 'changing':
      return begin({ ...state, change: 'pending' }, { do: event.by, order: event.order });
    case 'ticked': {
      // A timer stops while the device sleeps; the server's clock does not.
      if (state.attempt.kind === 'waiting' && at.nowMs >= state.attempt.untilMs) return request(state);
      const isDue = state.entry !== null && ((state.entry.place ?? 0) <= NEAR || at.jitterMs < 100);
      const next = isDue && state.waitlist === null ? begin(state, { do: 'place' }) : state;
      return state.reading === null && mayBeNew(state) ? read(next, at) : next;
    }
    case 'ended':
      return ended(state, event, at);
  }
}

function selling(state: State, event: Omit<SaleEvent, 'now'>, at: Moment): State {
  const isFree = event.remaining > 0;
  const isReturned = isFree && (state.isReturned || state.sale.remaining <= 0);
  const next = { ...contradicted(state, event), isReturned, sale: { ...state.sale, ...event } };
  // The turn was drawn for the start as it was.
  const isMoved = event.startsAt !== state.sale.startsAt && isTurnSought(state);
  return isMoved ? pause({ ...next, ticket: null }, { why: 'turn', ms: at.jitterMs }, at) : next;
}

/** Without what an earlier answer said of the sale that is so no longer: that a unit is free, or that the sale does not sell. */
function contradicted(state: State, { remaining, state: saleState }: Omit<SaleEvent, 'now'>): State {
  const { waitlist, attempt } = state;
  const isGone = typeof waitlist === 'object' && waitlist?.slug === 'not-sold-out' && remaining <= 0;
  const sells = saleState === 'open' || saleState === 'sold-out';
  const isOpen = sells && attempt.kind === 'refused' && attempt.problem.slug === 'sale-not-open';
  return { ...state, ...(isGone && { waitlist: null }), ...(isOpen && { attempt: IDLE }) };
}

/** Whether the attempt waits for its turn, or asks for one. */
const isTurnSought = ({ attempt }: State): boolean =>
  attempt.kind === 'waiting'
    ? attempt.why === 'turn'
    : attempt.kind === 'ticket' || attempt.kind === 'proving';

const enlist = (state: State, by: 'join' | 'leave'): State =>
  state.waitlist === 'pending' ? state : begin({ ...state, waitlist: 'pending' }, { do: by });

/** Reads what the visitor has: an order, or in a sold-out sale perhaps a place on the waitlist. */
function find(state: State, at: Moment): State {
  const next = read(state, at);
  return state.identity === '' || state.sale.remaining > 0 ? next : begin(next, { do: 'place' });
}

/** The service has answered about the waitlist. */
function listed(before: State, id: number, { by, answer }: Extract<Outcome, { of: 'waitlist' }>): State {
  if (id <= before.listedAfter) return before;
  if (by === 'place' && before.waitlist === 'pending') return before;
  const state = by === 'place' ? before : { ...before, waitlist: null, listedAfter: before.tasks };
  if (answer.kind === 'ok') return { ...state, entry: answer.body };
  if (answer.kind === 'lost') return state;
  if (answer.slug === 'not-found') return { ...state, entry: null };
  return by === 'place' ? state : { ...state, waitlist: answer };
}

function resume(state: State, text: string, { nowMs }: Moment): State {
  const [saleId, asked = '', doubt, ...subject] = text.split(' ');
  if (saleId !== String(state.sale.id) || subject.join(' ') !== subjectOf(state.identity)) return state;
  const [units, code = ''] = asked.split('/');
  return request({
    ...state,
    units: Number(units),
    code,
    isQueued: true,
    doubtMs: doubt === 'true' ? nowMs : null,
  });
}

function named(state: State, identity: string): State {
  if (identity === state.identity) return state;
  const isRenewed = subjectOf(identity) !== '' && subjectOf(identity) === subjectOf(state.identity);
  const own = isRenewed ? {} : { order: null, entry: null, waitlist: null, listedAfter: state.tasks };
  return { ...state, ...own, identity, isUnread: false, reading: null };
}

function mayBeNew(state: State): boolean {
  const { isUncommitted, attempt, order, entry } = state;
  const isAwaited = isUncommitted || attempt.kind === 'placed' || attempt.kind === 'looking';
  return isAwaited || isSought(state) || (entry?.orderId ?? null) !== null || MAY_CHANGE.has(order?.status);
}

function begin(state: State, task: Task): State {
  const id = state.tasks + 1;
  return { ...state, tasks: id, todo: [...state.todo, { id, task }] };
}

/** Begins the only task that the attempt waits for. */
function proceed(state: State, attempt: Attempt, task: Task): State {
  const next = begin({ ...state, attempt }, task);
  return { ...next, awaited: next.tasks };
}

/** Reads the order of the present identity. */
function read(state: State, { nowMs }: Moment): State {
  if (state.identity === '') return state;
  const next = begin(state, { do: 'read' });
  return { ...next, reading: { id: next.tasks, sentMs: nowMs } };
}

const request = (state: State): State =>
  state.auth === 'jwt' && state.ticket === null
    ? proceed(state, { kind: 'ticket' }, { do: 'ticket' })
    : proceed(state, { kind: 'ordering' }, { do: 'order' });

const finish = (state: State, attempt: Attempt): State => ({ ...state, attempt, awaited: null });

/** @param problem see `Attempt` */
const finishWithout = (state: State, problem: Problem | null): State =>
  finish({ ...state, doubtMs: null }, problem === null ? IDLE : { kind: 'refused', problem });

/** Ends the attempt; where an order may exist, once it is found or none can be placed any more. */
function look(state: State, problem: Problem | null, at: Moment): State {
  if (!mayExist(state)) return finishWithout(state, problem);
  const looking = finish(state, { kind: 'looking', problem });
  return read({ ...looking, doubtMs: state.doubtMs ?? at.nowMs }, at);
}

function ended(state: State, { id, outcome }: Extract<PageEvent, { is: 'ended' }>, at: Moment): State {
  if (outcome.of === 'waitlist') return listed(state, id, outcome);
  if (outcome.of === 'change') return changed(state, outcome.answer, at);
  if (outcome.of === 'read')
    return state.reading?.id === id ? seen(state, outcome.answer, state.reading.sentMs) : state;
  if (state.awaited !== id) return state;
  switch (outcome.of) {
    case 'wait':
      return request(state);
    case 'ticket':
      return ticketed(state, outcome.answer, at);
    case 'proof': {
      const { challenge, nonce } = outcome;
      if (nonce === null) return settle(state, { kind: 'lost' }, at);
      return proceed(state, state.attempt, { do: 'ticket', proof: { challenge, nonce } });
    }
    case 'order':
      return ordered(state, outcome.answer, at);
  }
}

function ticketed(state: State, answer: Answer<Ticket>, at: Moment): State {
  if (answer.kind === 'ok') {
    const ms = Date.parse(answer.body.notBefore) - at.nowMs;
    return pause({ ...state, ticket: answer.body, isQueued: true }, { why: 'turn', ms }, at);
  }
  const isAsked = answer.kind === 'problem' && answer.slug === 'proof-required';
  if (!isAsked || state.attempt.kind === 'proving') return settle(state, answer, at);
  const { challenge, bits } = answer.body;
  return proceed(
    state,
    { kind: 'proving' },
    { do: 'proof', challenge: String(challenge), bits: Number(bits) },
  );
}

function ordered(state: State, answer: Answer<PlacedOrder>, at: Moment): State {
  if (answer.kind === 'ok') {
    const placed = finish(state, { kind: 'placed', orderId: answer.body.orderId });
    return read({ ...placed, doubtMs: null }, at);
  }
  const isMoved = isTooSoon(state, answer);
  const isInvalid = isMoved || (answer.kind === 'problem' && answer.slug === 'invalid-ticket');
  const invalidTickets = isInvalid ? state.invalidTickets + 1 : 0;
  const why = isMoved ? 'turn' : 'busy';
  if (isInvalid && invalidTickets <= MAX_RENEWALS)
    return pause({ ...state, invalidTickets, ticket: null }, { why, ms: BUSY_MS + at.jitterMs }, at);
  return settle({ ...state, invalidTickets }, answer, at);
}

/** Whether the start was moved to after the turn of the ticket. */
const isTooSoon = ({ ticket }: State, answer: Failed): boolean =>
  ticket !== null &&
  answer.kind === 'problem' &&
  answer.slug === 'sale-not-open' &&
  answer.body.reason === 'not-started';

type Failed = Exclude<Answer<never>, { kind: 'ok' }>;

/** What follows an answer without an order: a wait, or the end of the attempt. */
function settle(state: State, answer: Failed, at: Moment): State {
  const next = pauseAfter(answer, at);
  const isOrder = state.attempt.kind === 'ordering';
  if (next === null) return look({ ...state, attempt: IDLE }, answer as Problem, at);
  if (next.why !== 'unknown') return pause(state, next, at);
  if (isOrder) return pause({ ...state, doubtMs: at.nowMs }, next, at);
  return pause(state, { ...next, why: 'busy' }, at); // a request for a ticket places no order
}

/** A wait before the next request of an attempt. */
interface Pause {
  readonly why: WaitReason;
  readonly ms: number;
}

function pause(state: State, { why, ms }: Pause, { nowMs }: Moment): State {
  if (ms <= 0) return request(state);
  // Whatever the latest request got, an earlier one may have placed an order.
  const shown = state.doubtMs === null || why === 'turn' ? why : 'unknown';
  const waiting = { kind: 'waiting', why: shown, untilMs: nowMs + ms } as const;
  return proceed(state, waiting, { do: 'wait', ms });
}

/** @returns null: the answer is final */
function pauseAfter(answer: Failed, { jitterMs }: Moment): Pause | null {
  if (answer.kind === 'lost') return { why: 'unknown', ms: UNKNOWN_MS + jitterMs };
  const ms = (answer.retryMs ?? BUSY_MS) + jitterMs;
  switch (answer.slug) {
    case 'busy':
      return { why: 'busy', ms };
    case 'too-many-requests':
      return { why: 'limit', ms };
    case 'too-early':
      return { why: 'turn', ms: answer.retryMs ?? BUSY_MS };
    case 'unknown-outcome':
    case 'internal-error':
      return { why: 'unknown', ms: (answer.retryMs ?? UNKNOWN_MS) + jitterMs };
    default:
      return null;
  }
}

/** A read of the order ended. @param sentMs when it was sent */
function seen(before: State, answer: Answer<Order>, sentMs: number): State {
  const isUncommitted = answer.kind === 'problem' && answer.body.reason === 'order-not-committed';
  const isUnread = answer.kind !== 'ok' && !isUncommitted && !isFinal(answer);
  const state: State = { ...before, reading: null, isUncommitted, isUnread };
  if (answer.kind === 'ok') return known(state, answer.body, sentMs);
  if (answer.kind === 'lost') return state;
  if (answer.slug === 'unknown-order') return known(state, null, sentMs);
  const isLooking = state.attempt.kind === 'looking' && isFinal(answer);
  const isRefused = isLooking || (answer.slug === 'unauthorized' && !isInProgress(state));
  return isRefused ? finish(state, { kind: 'refused', problem: answer }) : state;
}

/** @param order the latest one; null: there is none @param sentMs see `seen` */
function known(before: State, order: Order | null, sentMs: number): State {
  const { attempt, change, doubtMs } = before;
  const isLost = change !== null && typeof change === 'object' && change.kind === 'lost';
  const isOther = before.order?.orderId !== order?.orderId && change !== 'pending';
  const state: State = { ...before, order, change: isLost || isOther ? null : change };
  if (order !== null && isActive(order)) return finish({ ...state, doubtMs: null, entry: null }, IDLE);
  // With CONFIRM=accepted, Postgres may have had no unit for it.
  if (attempt.kind === 'placed')
    return finish({ ...state, ...(order?.orderId !== attempt.orderId && { change: 'gone' }) }, IDLE);
  if (attempt.kind === 'looking' && sentMs >= (doubtMs ?? 0) + EFFECT_MS)
    return finishWithout(state, attempt.problem);
  return isUnauthorized(state) ? finish(state, IDLE) : state;
}

/** The service has answered a payment or a cancellation. */
function changed(state: State, answer: Answer<Order | Unmatched>, at: Moment): State {
  // An earlier request, whose answer was lost, has cancelled it.
  if (answer.kind === 'problem' && answer.body.orderStatus === 'cancelled')
    return read({ ...state, change: null }, at);
  if (answer.kind !== 'ok' || 'result' in answer.body) return { ...state, change: answer };
  return { ...state, change: null, order: answer.body, reading: null }; // a read in flight may have been earlier
}
