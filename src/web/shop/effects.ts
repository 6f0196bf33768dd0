/** Runs the page of a sale: keeps its state, runs the tasks that `reduce` asks for, and stores what outlives a reload. */
import { type ReadonlySignal, signal } from '@preact/signals';
import type { Answer, SaleEvent, WaitlistEntry } from '../ui/answers.ts';
import { ask } from '../ui/api.ts';
import { listen } from '../ui/stream.ts';
import { pause, serverNow, setClock } from '../ui/time.ts';
import type { Outcome, PageEvent, SaleData, State, Task } from './model.ts';
import { BUSY_MS, initial, isFinal, reduce, saved, UNKNOWN_MS } from './state.ts';

/** What components need of the page: its state, and a way to report events. */
export interface View {
  readonly state: State;
  readonly dispatch: (event: PageEvent) => void;
}

/** Keys of the tab's storage. */
const IDENTITY = 'stampede.customer';
const WAITING = 'stampede.waiting';
/** Between two reads of an order that may have changed. */
const TICK_MS = 3_000;
/** Requests of a change of the order, before the page gives up. */
const TRIES = 8;

const jitterMs = (): number => Math.random() * 1_000;

export interface Page {
  readonly state: ReadonlySignal<State>;
  readonly dispatch: View['dispatch'];
}

/** Opens the page of a sale. */
export function openPage(data: SaleData): Page {
  const state = signal(initial(data, stored(IDENTITY)));
  const dispatch = (event: PageEvent): void => {
    const before = state.value;
    const next = reduce(before, event, { nowMs: serverNow(), jitterMs: jitterMs() });
    state.value = next;
    if (next.identity !== before.identity) store(IDENTITY, next.identity);
    if (saved(next) !== saved(before)) store(WAITING, saved(next) ?? '');
    for (const { id, task } of next.todo)
      void run(task, next).then((outcome) => dispatch({ is: 'ended', id, outcome }));
  };
  listen<SaleEvent>(`/sales/${data.sale.id}/events`, '', {
    onEvent({ now, ...sale }) {
      setClock(now);
      dispatch({ is: 'sale', sale });
    },
    onLive: (isLive) => dispatch({ is: 'live', isLive }),
  });
  setInterval(() => document.visibilityState === 'visible' && dispatch({ is: 'ticked' }), TICK_MS);
  dispatch({ is: 'opened', saved: stored(WAITING) });
  return { state, dispatch };
}

/** A browser that blocks the storage throws; a reload then begins anew. */
function stored(key: string): string {
  try {
    return sessionStorage.getItem(key) ?? '';
  } catch {
    return '';
  }
}

function store(key: string, text: string): void {
  try {
    sessionStorage.setItem(key, text);
  } catch {}
}

async function run(task: Task, state: State): Promise<Outcome> {
  const { auth, identity, ticket } = state;
  const code = state.code === '' ? {} : { code: state.code };
  const sale = `/sales/${state.sale.id}`;
  const own = auth === 'jwt' ? { token: identity } : {};
  switch (task.do) {
    case 'ticket': {
      const body = { ...code, ...(task.proof !== undefined && { proof: task.proof }) };
      return { of: 'ticket', answer: await ask(`${sale}/tickets`, { body, ...own }) };
    }
    case 'proof':
      return { of: 'proof', challenge: task.challenge, nonce: await prove(state.proofWorker, task) };
    case 'order': {
      // Every retry sends the same request. With a ticket, the ticket names the customer, and was got with the code.
      const opening = auth === 'jwt' ? {} : code;
      const body = { userId: auth === 'jwt' ? 'me' : identity, quantity: state.units, ...opening };
      const token = ticket === null ? {} : { token: ticket.ticket };
      return { of: 'order', answer: await ask(`${sale}/orders`, { body, ...token }) };
    }
    case 'wait':
      await pause(task.ms);
      return { of: 'wait' };
    case 'read': {
      const query = auth === 'jwt' ? '' : `?userId=${encodeURIComponent(identity)}`;
      return { of: 'read', answer: await ask(`${sale}/orders${query}`, own) };
    }
    case 'join': {
      const body = { userId: identity, quantity: state.units };
      const join = () => ask<WaitlistEntry>(`${sale}/waitlist`, { body, ...own });
      return { of: 'waitlist', by: task.do, answer: await persist(join) };
    }
    case 'leave':
    case 'place': {
      const place = `${sale}/waitlist/${auth === 'jwt' ? 'me' : encodeURIComponent(identity)}`;
      if (task.do === 'place') return { of: 'waitlist', by: task.do, answer: await ask(place, own) };
      const leave = () => ask<null>(place, { method: 'DELETE', ...own });
      return { of: 'waitlist', by: task.do, answer: await persist(leave) };
    }
    case 'pay': {
      // The notification of a payment provider; its id makes it idempotent.
      const { orderId, amountCents } = task.order;
      const body = { notificationId: `demo-${orderId}`, orderId, amountCents };
      return { of: 'change', answer: await persist(() => ask('/payments/notifications', { body })) };
    }
    case 'cancel': {
      const path = `/orders/${task.order.orderId}/cancel`;
      return { of: 'change', answer: await persist(() => ask(path, { body: {}, ...own })) };
    }
  }
}

/** Repeats an idempotent request until its answer is final. */
async function persist<T>(request: () => Promise<Answer<T>>): Promise<Answer<T>> {
  for (let tries = 1; ; tries++) {
    const answer = await request();
    if (tries === TRIES || answer.kind === 'ok' || isFinal(answer)) return answer;
    await pause((answer.kind === 'lost' ? UNKNOWN_MS : (answer.retryMs ?? BUSY_MS)) + jitterMs());
  }
}

/** @returns null when the worker cannot be loaded */
function prove(script: string, { challenge, bits }: { challenge: string; bits: number }) {
  return new Promise<string | null>((resolve) => {
    const worker = new Worker(script, { type: 'module' });
    const end = (nonce: string | null) => {
      worker.terminate();
      resolve(nonce);
    };
    worker.onmessage = ({ data }: MessageEvent<string>) => end(data);
    worker.onerror = () => end(null);
    worker.postMessage({ challenge, bits });
  });
}
