/** The page of a sale without a browser: what it sends, when, and what it knows and says in the end. */
import { beforeEach, describe, expect, it } from 'vitest';
import {
  closedMessage,
  failureMessage,
  refusalMessage,
  waitlistMessage,
  waitMessage,
} from '../../src/web/shop/messages.ts';
import type { Outcome, PageEvent, SaleData, State, Task } from '../../src/web/shop/model.ts';
import { initial, reduce, saved } from '../../src/web/shop/state.ts';
import type { Answer, Order, Problem } from '../../src/web/ui/answers.ts';

type Answers = Partial<Record<Task['do'], readonly unknown[]>>;
const START_MS = Date.UTC(2026, 0, 1);
const JITTER_MS = 500;

let state: State;
let nowMs = START_MS;
let sent: { readonly atMs: number; readonly task: Task; readonly units: number }[];
let waits: { readonly untilMs: number; readonly id: number }[];
/** What tasks get, one after the other; the last one again and again. */
let answers: Record<string, unknown[]>;

function dispatch(event: PageEvent): void {
  state = reduce(state, event, { nowMs, jitterMs: JITTER_MS });
  for (const { id, task } of state.todo)
    if (task.do === 'wait') waits.push({ untilMs: nowMs + task.ms, id });
    else {
      sent.push({ atMs: nowMs, task, units: state.units });
      const all = answers[task.do] ?? [];
      const answer = all.length > 1 ? all.shift() : all[0];
      if (answer !== undefined) end(id, task, answer);
    }
}

const OUTCOMES: Partial<Record<Task['do'], Outcome['of']>> = {
  ...{ pay: 'change', cancel: 'change' },
  ...{ join: 'waitlist', leave: 'waitlist', place: 'waitlist' },
};

function end(id: number, task: Task, answer: unknown): void {
  const of = OUTCOMES[task.do] ?? task.do;
  const outcome = task.do === 'proof' ? { of, ...task, nonce: answer } : { of, by: task.do, answer };
  dispatch({ is: 'ended', id, outcome: outcome as Outcome });
}

/** Lets time pass, on a visible page. */
function pass(ms: number): void {
  const endMs = nowMs + ms;
  for (; nowMs < endMs; nowMs += 500) {
    for (const wait of waits.filter(({ untilMs }) => untilMs <= nowMs)) {
      waits = waits.filter((one) => one !== wait);
      dispatch({ is: 'ended', id: wait.id, outcome: { of: 'wait' } });
    }
    if ((nowMs - START_MS) % 3_000 === 0) dispatch({ is: 'ticked' });
  }
}

function script(next: Answers): void {
  answers = Object.fromEntries(Object.entries(next).map(([name, all]) => [name, [...all]]));
}
/** Presses the button, and lets time pass. */
function press(next: Answers, ms = 60_000): void {
  script(next);
  dispatch({ is: 'pressed', identity: state.identity, units: 1 });
  pass(ms);
}
/** Reads that follow each other are one: the page keeps reading an order that may change. */
const routes = (): string[] =>
  sent.map(({ task }) => task.do).filter((one, n, all) => one !== 'read' || all[n - 1] !== 'read');
const kind = (): string => state.attempt.kind;

const token = (sub: string, rest = 's') =>
  `h.${Buffer.from(JSON.stringify({ sub })).toString('base64url')}.${rest}`;
/** Opens the page, as a reload does. */
function open(auth: 'none' | 'jwt', text = '', next: Answers = {}): void {
  const sale = { id: 1, name: 'Launch', remaining: 5, maxPerOrder: 1, paused: false };
  const data = { now: nowMs, sale, auth, canPay: false, proofWorker: '' };
  state = initial(data as unknown as SaleData, token('ann'));
  sent = [];
  waits = [];
  script(next);
  dispatch({ is: 'opened', saved: text });
}
beforeEach(() => {
  nowMs = START_MS;
  open('none', '', { read: [unknownOrder] });
  sent = [];
});

const ok = (body: object) => ({ kind: 'ok', status: 200, body });
const problem = (status: number, slug: string, retryMs: number | null = null, body: object = {}) =>
  ({ kind: 'problem', status, slug, detail: `${slug}.`, retryMs, body }) as Problem;
const lost: Answer<never> = { kind: 'lost' };
const busy = problem(503, 'busy', 2_000);
const soldOut = problem(409, 'sold-out');
const unknownOrder = problem(404, 'unknown-order');
const unauthorized = problem(401, 'unauthorized');
const invalid = problem(401, 'invalid-ticket');
const mine = (status = 'pending', orderId = 'o') => ({ orderId, status, paidAt: null }) as Order;
const order = ok(mine());
const ticket = (inMs = 0) => ok({ ticket: `t-${inMs}`, notBefore: new Date(nowMs + inMs).toISOString() });

/** The visitor has the order, and nothing goes on. */
function expectOrder(): void {
  expect(state).toMatchObject({ attempt: { kind: 'idle' }, order: { orderId: 'o' }, doubtMs: null });
  expect(saved(state)).toBeNull();
}

describe('the waitlist of a sold-out sale', () => {
  const entry = (place: number | null) =>
    ok({ place, namedAt: place === null ? '2026-01-01T00:00:00Z' : null, orderId: null });
  const event = (remaining: number) =>
    dispatch({ is: 'sale', sale: { remaining } as Extract<PageEvent, { is: 'sale' }>['sale'] });
  const join = (next: Answers) => {
    script({ read: [unknownOrder], ...next });
    dispatch({ is: 'joined', identity: state.identity, units: 2 });
  };
  const answered = (id: number, by: 'join' | 'leave' | 'place', answer: unknown) =>
    dispatch({ is: 'ended', id, outcome: { of: 'waitlist', by, answer } as Outcome });
  const says = () => waitlistMessage(state, state.sale.remaining > 0 ? 'open' : 'sold-out')?.[1] ?? null;
  beforeEach(() => event(0));

  it('is joined once, read until the turn comes, and the page says so', () => {
    join({});
    dispatch({ is: 'joined', identity: state.identity, units: 2 });
    expect(routes()).toEqual(['join']);
    expect(sent[0]).toMatchObject({ units: 2 });
    answered(state.tasks, 'join', entry(3));
    expect(state).toMatchObject({ waitlist: null, entry: { place: 3 } });
    expect(says()).toBeNull();
    expect(waitlistMessage(state, 'open')?.[1]).toBe('A unit is free');
    script({ place: [lost, entry(1), entry(null)], read: [unknownOrder] });
    pass(9_500);
    expect(state.entry).toMatchObject({ place: null });
    expect(says()).toBe('Others were faster');
    event(1);
    expect(says()).toBe('You are next: a unit is free');
  });

  it('may hold the units: their order is found', () => {
    join({ join: [entry(1)], place: [ok({ place: null, namedAt: 'now', orderId: 'o' })] });
    pass(3_500);
    expect(says()).toBeNull();
    script({ read: [order] });
    pass(3_500);
    expectOrder();
    expect(state.entry).toBeNull();
  });

  it('is left, also when a read that was sent before is answered later', () => {
    join({ join: [entry(1)] });
    dispatch({ is: 'left' });
    answered(0, 'place', lost);
    expect(state).toMatchObject({ waitlist: 'pending', entry: { place: 1 } });
    answered(state.tasks, 'leave', { kind: 'ok', status: 204, body: null });
    expect(state).toMatchObject({ waitlist: null, entry: null });
  });

  it('is not forgotten for a read that was sent before the visitor joined, or was another customer, and is answered later', () => {
    script({ read: [unknownOrder] });
    dispatch({ is: 'named', identity: 'ben' });
    const place = state.tasks;
    join({ join: [entry(3)] });
    answered(place, 'place', problem(404, 'not-found'));
    expect(state).toMatchObject({ waitlist: null, entry: { place: 3 } });
    script({ read: [unknownOrder] });
    dispatch({ is: 'joined', identity: 'cat', units: 1 });
    const joined = state.tasks;
    dispatch({ is: 'named', identity: 'dan' });
    answered(joined, 'join', entry(4));
    expect(state).toMatchObject({ waitlist: null, entry: null });
  });

  it('is looked up when the page opens, and refused where a unit is free', () => {
    script({ read: [unknownOrder], place: [problem(404, 'not-found')] });
    dispatch({ is: 'named', identity: 'ben' });
    expect(routes()).toEqual(['read', 'place']);
    join({ join: [problem(409, 'not-sold-out')] });
    expect(says()).toBe('A unit is free');
    event(1);
    press({ order: [order], read: [order] });
    expectOrder();
    expect(state.isReturned).toBe(false);
  });
});

describe('the same request is sent again', () => {
  it.each<[string, object, string, number]>([
    ['busy', busy, 'busy', 2_000],
    ['busy without Retry-After', problem(503, 'busy'), 'busy', 1_000],
    ['too many', problem(429, 'too-many-requests', 3_000), 'limit', 3_000],
    ['too early', problem(409, 'too-early', 5_000), 'turn', 5_000],
    ['unknown', problem(503, 'unknown-outcome'), 'unknown', 4_000],
    ['no answer', lost, 'unknown', 4_000],
  ])('after %s', (_name, first, why, ms) => {
    press({ order: [first, order], read: [order] }, 500);
    expect(state.attempt).toMatchObject({ kind: 'waiting', why });
    dispatch({ is: 'pressed', identity: 'other', units: 3 }); // does nothing
    dispatch({ is: 'named', identity: 'other' });
    expect(routes()).toEqual(['order']);
    pass(ms + 1_000);
    expectOrder();
    expect(routes()).toEqual(['order', 'order', 'read']);
    expect(sent[1]).toMatchObject({ atMs: START_MS + ms + (why === 'turn' ? 0 : JITTER_MS), units: 1 });
  });
});

describe('a refusal', () => {
  it('ends an attempt none of whose answers was lost', () => {
    press({ order: [busy, soldOut] });
    expect(state.attempt).toEqual({ kind: 'refused', problem: soldOut });
    expect(routes()).toEqual(['order', 'order']);
  });

  it.each<['none' | 'jwt', Answers, string]>([
    ['none', { order: [lost, soldOut], read: [lost, order] }, 'order order read'],
    [
      'jwt',
      { ticket: [ticket(), soldOut], order: [lost, invalid], read: [order] },
      'ticket order order ticket read',
    ],
  ])('after a lost answer is none, if the order is there (%s)', (auth, next, expected) => {
    open(auth);
    sent = [];
    press(next);
    expectOrder();
    expect(routes().join(' ')).toBe(expected);
  });

  it('after a lost answer counts once no order can be placed any more', () => {
    press({ order: [lost, soldOut], read: [unknownOrder] });
    expect(state).toMatchObject({ attempt: { kind: 'refused', problem: soldOut }, doubtMs: null });
    expect(sent.at(-1)!.atMs - START_MS).toBeGreaterThanOrEqual(10_000);
  });
});

describe('a visitor who stops', () => {
  it('sends nothing more, if no order can exist', () => {
    press({ order: [busy] }, 500);
    dispatch({ is: 'stopped' });
    expect(kind()).toBe('idle');
    pass(20_000);
    expect(routes()).toEqual(['order']);
  });

  it('finds the order of a lost answer, or looks until none can be placed any more', () => {
    press({ order: [lost] }, 500);
    const waiting = { state, nowMs, waits };
    script({ read: [unknownOrder, busy, lost, order] });
    dispatch({ is: 'stopped' });
    expect(kind()).toBe('looking');
    pass(20_000);
    expectOrder();
    ({ state, nowMs, waits } = waiting);
    script({ read: [unknownOrder] });
    dispatch({ is: 'stopped' });
    pass(20_000);
    expect(state).toMatchObject({ attempt: { kind: 'idle' }, order: null, doubtMs: null });
    expect(sent.at(-1)!.atMs - START_MS).toBeGreaterThanOrEqual(10_000);
    expect(routes().filter((one) => one === 'order')).toHaveLength(1);
  });
});

describe('with a ticket', () => {
  beforeEach(() => {
    open('jwt', '', { read: [unknownOrder] });
    sent = [];
  });

  it('buys when its turn comes, also after a reload', () => {
    press({ ticket: [ticket(90_000)] });
    expect(state.attempt).toMatchObject({ kind: 'waiting', why: 'turn' });
    expect([saved(state), routes()]).toEqual(['1 1 false ann', ['ticket']]);
    open('jwt', '2 1 false ann');
    open('jwt', '1 1 false ben');
    expect(routes()).toEqual(['read']);
    open('jwt', '1 3 false ann', { ticket: [ticket(30_000)], read: [unknownOrder, order], order: [order] });
    pass(31_000);
    expectOrder();
    expect(sent.find(({ task }) => task.do === 'order')).toMatchObject({ units: 3, atMs: START_MS + 90_000 });
  });

  it('asks for it with the code that opens the sale early, also after a reload', () => {
    script({ ticket: [ticket(90_000)] });
    dispatch({ is: 'pressed', identity: state.identity, units: 2, code: 'EARLY' });
    open('jwt', saved(state)!, { ticket: [ticket(90_000)] });
    expect(state).toMatchObject({ code: 'EARLY', units: 2, isQueued: true });
  });

  it('proves that it works, and is busy when it cannot', () => {
    const required = problem(401, 'proof-required', null, { challenge: 'c', bits: 9 });
    press({ ticket: [required] }, 500);
    expect([kind(), sent.at(-1)!.task]).toEqual(['proving', { do: 'proof', challenge: 'c', bits: 9 }]);
    end(state.awaited!, sent.at(-1)!.task, 'n');
    expect(sent.at(-1)!.task).toEqual({ do: 'ticket', proof: { challenge: 'c', nonce: 'n' } });
    expect(kind()).toBe('refused');
    press({ ticket: [required, ticket()], proof: [null, 'n'], order: [order], read: [order] }, 500);
    expect(state.attempt).toMatchObject({ kind: 'waiting', why: 'busy' });
    pass(10_000);
    expectOrder();
  });

  it('takes another one for one that is not accepted, at most three in a row', () => {
    press({ ticket: [ticket()], order: [busy, busy, busy, busy, invalid, order], read: [order] });
    expectOrder();
    expect(routes().filter((one) => one === 'ticket')).toHaveLength(2);
    sent = [];
    press({ ticket: [ticket()], order: [invalid] });
    expect(state.attempt).toEqual({ kind: 'refused', problem: invalid });
    expect(routes().filter((one) => one === 'ticket')).toHaveLength(4);
  });

  it('finds the order of a lost answer after a reload', () => {
    press({ ticket: [ticket()], order: [lost] }, 500);
    expect(saved(state)).toBe('1 1 true ann');
    open('jwt', '1 1 true ann', { ticket: [soldOut], read: [lost, lost, order] });
    pass(60_000);
    expectOrder();
  });
});

describe('the order', () => {
  it('is read after it is placed, again until it is there; one that is not there was not placed', () => {
    const uncommitted = problem(503, 'busy', 1_000, { reason: 'order-not-committed' });
    press({ order: [order], read: [uncommitted] }, 500);
    expect(state).toMatchObject({ attempt: { kind: 'placed' }, isUncommitted: true });
    script({ read: [lost, ok(mine('cancelled', 'older'))] });
    pass(3_000);
    expect(state).toMatchObject({ isUncommitted: false, isUnread: true });
    pass(3_000);
    expect(kind()).toBe('idle');
    expect(failureMessage(state.change)).toContain('was not placed');
  });

  it('that is read late says nothing about what came meanwhile', () => {
    open('none');
    const { id } = state.reading!;
    press({ order: [order], read: [order] }, 0);
    end(id, { do: 'read' }, unknownOrder);
    expectOrder();
    script({ read: [], pay: [ok(mine('paid'))] });
    dispatch({ is: 'ticked' });
    const before = state.reading!.id;
    dispatch({ is: 'changing', by: 'pay', order: mine() });
    end(before, { do: 'read' }, order);
    expect(state).toMatchObject({ change: null, order: { status: 'paid' } });
  });

  it('stays while its token is renewed, and not for another customer', () => {
    open('jwt', '', { read: [order] });
    script({ read: [unauthorized] });
    pass(3_500);
    expect(state).toMatchObject({ attempt: { kind: 'refused' }, order: { orderId: 'o' } });
    script({ read: [order] });
    dispatch({ is: 'named', identity: token('ann', 'renewed') });
    expectOrder();
    script({ read: [lost] });
    dispatch({ is: 'named', identity: token('ben') });
    expect(state).toMatchObject({ order: null, isUnread: true });
  });

  it('says whether a change took effect whose answer was lost', () => {
    script({ cancel: [lost], read: [ok(mine('cancelled'))] });
    dispatch({ is: 'changing', by: 'cancel', order: mine() });
    expect(failureMessage(state.change)).toContain('No response came');
    dispatch({ is: 'named', identity: state.identity });
    expect(state).toMatchObject({ change: null, order: { status: 'cancelled' } });
    const cancelledBefore = problem(409, 'invalid-transition', null, { orderStatus: 'cancelled' });
    script({ cancel: [cancelledBefore], read: [ok(mine('cancelled', 'second'))] });
    dispatch({ is: 'changing', by: 'cancel', order: mine('pending', 'second') });
    expect(state).toMatchObject({ change: null, order: { orderId: 'second' } });
  });
});

it('says why', () => {
  const of = (slug: string, body: object = {}, changes: object = {}) =>
    refusalMessage(problem(409, slug, null, body), { ...state, sale: { ...state.sale, ...changes } })[1];
  expect(of('sold-out')).toBe('Every unit was taken');
  expect(of('sold-out', {}, { remaining: 0 })).toBe('Sold out');
  expect(of('not-enough-units', { remaining: 1 })).toBe('Only 1 left');
  expect(of('sale-not-open', { reason: 'paused' })).toBe('The sale is paused');
  expect(of('sale-not-open', { reason: 'ended' })).toBe('The sale has ended');
  expect(of('sale-not-open', { reason: 'scheduled' })).toBe('The sale is not open yet');
  expect(of('unauthorized')).toBe('Please sign in again');
  expect(of('other')).toBe('The request failed');
  const wait = { kind: 'waiting', why: 'turn', untilMs: 0 } as const;
  expect(waitMessage(wait, { ...state.sale, remaining: 0 })[1]).toBe('Every unit is taken at the moment');
  expect(waitMessage({ ...wait, why: 'limit' }, state.sale)[1]).toContain('Too many requests');

  expect(closedMessage({ ...mine('refund-due'), paidAt: '2026' })[1]).toContain('will be refunded');
  expect(closedMessage(mine('refund-due'))[1]).toBe('Your payment came too late');
  expect(closedMessage(mine('expired'))[1]).toBe('Your order expired');
  expect(closedMessage(mine('cancelled'))[1]).toBe('Your order is cancelled');
  expect(failureMessage(problem(409, 'conflict'))).toBe('conflict.');
  const unmatched = ok({ result: 'unmatched', reason: 'no-order' }) as State['change'];
  expect(failureMessage(unmatched)).toContain('no-order');
});
