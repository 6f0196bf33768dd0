/** Runs the page of a sale: keeps its state, runs the tasks that `reduce` asks for, and stores what outlives a reload. */
import { type ReadonlySignal, signal } from '@preact/signals';
import type { Answer, Order, PlacedOrder, SaleEvent, Ticket } from '../ui/answers.ts';
import { ask } from '../ui/api.ts';
import { listen } from '../ui/stream.ts';
import { pause, serverNow, setClock } from '../ui/time.ts';
import {
  BUSY_MS,
  initial,
  isFinal,
  type Outcome,
  type PageEvent,
  reduce,
  type SaleData,
  type State,
  saved,
  type Task,
  UNKNOWN_MS,
  type Unmatched,
} from './state.ts';

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
  const state = signal(initial(data, sessionStorage.getItem(IDENTITY) ?? ''));
  const dispatch = (event: PageEvent): void => {
    const before = state.value;
    const next = reduce(before, event, { nowMs: serverNow(), jitterMs: jitterMs() });
    state.value = next;
    if (next.identity !== before.identity) sessionStorage.setItem(IDENTITY, next.identity);
    if (saved(next) !== saved(before)) store(saved(next));
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
  dispatch({ is: 'opened', saved: sessionStorage.getItem(WAITING) ?? '' });
  return { state, dispatch };
}

const store = (text: string | null): void =>
  text === null ? sessionStorage.removeItem(WAITING) : sessionStorage.setItem(WAITING, text);

async function run(
  task: Task,
  { sale, auth, identity, units, ticket, proofWorker }: State,
): Promise<Outcome> {
  const credentials = auth === 'jwt' ? { token: identity } : {};
  switch (task.do) {
    case 'ticket': {
      const body = task.proof === undefined ? {} : { proof: task.proof };
      return {
        of: 'ticket',
        answer: await ask<Ticket>(`/sales/${sale.id}/tickets`, { body, ...credentials }),
      };
    }
    case 'proof':
      return { of: 'proof', challenge: task.challenge, nonce: await prove(proofWorker, task) };
    case 'order': {
      // Every retry sends the same request. With a ticket, the ticket names the customer.
      const body = { userId: auth === 'jwt' ? 'me' : identity, quantity: units };
      const token = ticket === null ? {} : { token: ticket.ticket };
      return { of: 'order', answer: await ask<PlacedOrder>(`/sales/${sale.id}/orders`, { body, ...token }) };
    }
    case 'wait':
      await pause(task.ms);
      return { of: 'wait' };
    case 'read': {
      const query = auth === 'jwt' ? '' : `?userId=${encodeURIComponent(identity)}`;
      return { of: 'read', answer: await ask<Order>(`/sales/${sale.id}/orders${query}`, credentials) };
    }
    case 'pay':
      return { of: 'change', answer: await persist(() => pay(task.order)) };
    case 'cancel':
      return { of: 'change', answer: await persist(() => cancel(task.order, credentials)) };
  }
}

/** Sends the notification of a payment provider; its id makes it idempotent. */
const pay = ({ orderId, amountCents }: Order): Promise<Answer<Order | Unmatched>> =>
  ask('/payments/notifications', { body: { notificationId: `demo-${orderId}`, orderId, amountCents } });

async function cancel({ orderId }: Order, credentials: { token?: string }): Promise<Answer<Order>> {
  const answer = await ask<Order>(`/orders/${orderId}/cancel`, { body: {}, ...credentials });
  // An earlier request, whose answer was lost, has cancelled it.
  const isCancelled = answer.kind === 'problem' && answer.body.orderStatus === 'cancelled';
  return isCancelled ? ask<Order>(`/orders/${orderId}`, credentials) : answer;
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
