/** The page of a sale without a browser, between its requests: when the sale changes, the device sleeps, or an answer is lost. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { Outcome, PageEvent, SaleData, State } from '../../src/web/shop/model.ts';
import { initial, reduce } from '../../src/web/shop/state.ts';

const OPENS_MS = Date.UTC(2026, 0, 1, 20);
const HOUR_MS = 3_600_000;
const JITTER_MS = 500;

let state: State;
let nowMs: number;

function dispatch(event: PageEvent): void {
  state = reduce(state, event, { nowMs, jitterMs: JITTER_MS });
}
/** Ends the task that the attempt waits for. */
const end = (outcome: object): void =>
  dispatch({ is: 'ended', id: state.awaited!, outcome: outcome as Outcome });
const answered = (of: 'ticket' | 'order', status: number, slug: string, body: object = {}): void =>
  end({ of, answer: { kind: 'problem', status, slug, detail: `${slug}.`, retryMs: 2_000, body } });
const lost = { of: 'order', answer: { kind: 'lost' } };
const change = (sale: object): void =>
  dispatch({ is: 'sale', sale: { remaining: 5, ...sale } as Extract<PageEvent, { is: 'sale' }>['sale'] });
const tasks = (): readonly object[] => state.todo.map(({ task }) => task);
const iso = (ms: number): string => new Date(ms).toISOString();
const JITTER = { do: 'wait', ms: JITTER_MS };
const NOT_STARTED = ['order', 409, 'sale-not-open', { reason: 'not-started' }] as const;

function press(auth: 'none' | 'jwt'): void {
  const sale = { id: 1, remaining: 5, maxPerOrder: 1, startsAt: iso(OPENS_MS) };
  state = initial({ now: 0, sale, auth } as unknown as SaleData, 'ann');
  nowMs = OPENS_MS - 2 * HOUR_MS;
  dispatch({ is: 'pressed', identity: 'ann', units: 1 });
}
/** Gets a ticket whose turn comes a second after the start. */
function enter(startMs: number): void {
  end({ of: 'ticket', answer: { kind: 'ok', body: { ticket: 't', notBefore: iso(startMs + 1_000) } } });
  expect(state.attempt).toEqual({ kind: 'waiting', why: 'turn', untilMs: startMs + 1_000 });
}

describe('in the waiting room', () => {
  beforeEach(() => {
    press('jwt');
    enter(OPENS_MS);
  });

  it.each([null, iso(OPENS_MS - HOUR_MS), iso(OPENS_MS + HOUR_MS)])(
    'takes another ticket when the start is moved to %s, and goes on waiting',
    (startsAt) => {
      change({ startsAt: iso(OPENS_MS), remaining: 4 });
      expect(tasks()).toEqual([]);
      change({ startsAt });
      expect([state.ticket, state.attempt, tasks()]).toMatchObject([null, { why: 'turn' }, [JITTER]]);
      end({ of: 'wait' });
      expect(tasks()).toEqual([{ do: 'ticket' }]);
      change({ startsAt: iso(OPENS_MS) }); // before the ticket comes, which is for the start before
      expect(tasks()).toEqual([JITTER]);
      end({ of: 'wait' });
      enter(OPENS_MS);
    },
  );

  it('takes another ticket for one whose turn comes before a start that the page does not know, at most three in a row', () => {
    end({ of: 'wait' });
    for (let n = 0; n < 3; n++) {
      answered(...NOT_STARTED);
      expect(state.attempt).toMatchObject({ kind: 'waiting', why: 'turn' });
      end({ of: 'wait' });
      expect(tasks()).toEqual([{ do: 'ticket' }]);
      end({ of: 'ticket', answer: { kind: 'ok', body: { ticket: 't', notBefore: iso(nowMs) } } });
      expect(tasks()).toEqual([{ do: 'order' }]);
    }
    answered(...NOT_STARTED);
    expect(state.attempt.kind).toBe('refused');
  });

  it('buys when the turn has come, though the device slept, and its timer with it', () => {
    const { awaited } = state;
    nowMs = OPENS_MS + 999;
    dispatch({ is: 'ticked' });
    expect(state.attempt.kind).toBe('waiting');
    nowMs += 1;
    dispatch({ is: 'ticked' });
    expect(tasks()).toEqual([{ do: 'order' }]);
    dispatch({ is: 'ended', id: awaited!, outcome: { of: 'wait' } });
    expect(tasks()).toEqual([]);
  });
});

it.each([
  ['busy', 503],
  ['too-many-requests', 429],
] as const)('says that an order may exist, from a lost answer on, also after %s', (slug, status) => {
  press('none');
  answered('order', status, slug);
  expect(state.attempt).not.toMatchObject({ why: 'unknown' });
  end({ of: 'wait' });
  end(lost);
  end({ of: 'wait' });
  answered('order', status, slug);
  expect(state.attempt).toEqual({ kind: 'waiting', why: 'unknown', untilMs: nowMs + 2_000 + JITTER_MS });
});

describe('what an answer said of the sale ends when it is so no longer', () => {
  beforeEach(() => press('none'));

  it('of a pause, and of a start', () => {
    for (const reason of ['paused', 'not-started']) {
      answered('order', 409, 'sale-not-open', { reason });
      change({ state: 'paused' });
      expect(state.attempt.kind).toBe('refused');
      change({ state: 'open' });
      expect(state.attempt.kind).toBe('idle');
      dispatch({ is: 'pressed', identity: 'ann', units: 1 });
    }
  });

  it('of a unit that was free', () => {
    answered('order', 409, 'sold-out');
    change({ remaining: 0 });
    dispatch({ is: 'joined', identity: 'ann', units: 1 });
    const answer = {
      kind: 'problem',
      status: 409,
      slug: 'not-sold-out',
      detail: '',
      retryMs: null,
      body: {},
    };
    dispatch({
      is: 'ended',
      id: state.tasks,
      outcome: { of: 'waitlist', by: 'join', answer } as Outcome,
    });
    change({ remaining: 1 });
    expect(state.waitlist).toMatchObject({ slug: 'not-sold-out' });
    change({ remaining: 0 });
    expect(state.waitlist).toBeNull();
  });
});

it('a place far back on the waitlist is read less often', () => {
  press('none');
  const readsAt = (place: number | null, jitterMs: number): boolean => {
    state = { ...state, attempt: { kind: 'idle' }, todo: [], entry: { place } as State['entry'] };
    state = reduce(state, { is: 'ticked' }, { nowMs, jitterMs });
    return tasks().some((task) => (task as { do: string }).do === 'place');
  };
  expect([
    readsAt(100, 500),
    readsAt(null, 500),
    readsAt(101, 500),
    readsAt(1001, 500),
    readsAt(101, 50),
  ]).toEqual([true, true, false, false, true]);
});
