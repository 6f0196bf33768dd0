/**
 * The purchase flow of a well-behaved client: repeated presses and retries lead to one order.
 *
 *   idle ──press──▶ asking ──200, 201, 202──▶ placed
 *                    │  ▲
 *     busy, too many │  │ after `Retry-After`: the same request again
 *     no answer      │  │ after 4 s: returns or places the order
 *     turn, proof    ▼  │ when the turn of the ticket comes
 *                   waiting ──stop──▶ idle; when an order may exist: checking ──▶ placed, idle or refused
 *        any other problem ──▶ refused, unless an answer was lost and the order is there: placed
 *
 * Any attempt ends when the page reads an active order. With AUTH=jwt a ticket comes first; see docs/reference/tickets.md.
 */
import { signal } from '@preact/signals';
import { type Answer, ask, type PlacedOrder, type Problem, type Ticket } from '../ui/api.ts';
import { pause, serverNow } from '../ui/time.ts';
import { type Auth, findOrder, identity, isActive, subject } from './customer.ts';

/** Units that the visitor asks for. */
export const units = signal(1);

export type WaitReason = 'busy' | 'limit' | 'unknown' | 'turn';

export type Purchase =
  | { readonly kind: 'idle' }
  | { readonly kind: 'asking'; readonly tries: number }
  | { readonly kind: 'proving' }
  /** @param untilMs by the server's clock */
  | {
      readonly kind: 'waiting';
      readonly why: WaitReason;
      /** What the service says is wrong. */
      readonly detail: string | null;
      readonly untilMs: number;
      readonly tries: number;
    }
  /** The visitor stopped while an order may exist. */
  | { readonly kind: 'checking' }
  | { readonly kind: 'placed'; readonly orderId: string }
  | { readonly kind: 'refused'; readonly problem: Problem };

/** Wait before the next request of an attempt. */
interface Step {
  readonly why: WaitReason;
  readonly ms: number;
  readonly detail?: string;
}

const UNKNOWN_MS = 4_000;
const BUSY_MS = 1_000;
/** Between two looks for an order after a stop. */
const LOOK_MS = 2_000;
/** For so long after its end, a request without a definite answer may place an order. */
const EFFECT_MS = 10_000;
/** Tickets that are taken one after the other because the service accepts none of them. */
const MAX_RENEWALS = 3;

/** Customers who were refused together do not repeat together. */
const spread = (ms: number): number => ms + Math.random() * 1_000;

export interface Buyer {
  readonly saleId: number;
  readonly auth: Auth;
  readonly proofWorker: string;
}

export const purchase = signal<Purchase>({ kind: 'idle' });
/** Number of the latest attempt; earlier ones have been stopped. */
let attempt = 0;

/** An earlier request may have taken effect. */
interface Doubt {
  readonly buyer: Buyer;
  /** When it ended or, while it lasts, began, on the server's clock. */
  readonly sinceMs: number;
}
let doubt: Doubt | null = null;

/** Whether an attempt is in progress. */
export const isInProgress = ({ kind }: Purchase): boolean =>
  kind !== 'idle' && kind !== 'refused' && kind !== 'placed';

/** Stops an attempt. An order that it may have placed is looked for until none can be placed any more. */
export async function stop(): Promise<void> {
  const own = ++attempt;
  const of = doubt;
  forgetWaiting();
  purchase.value = of === null ? { kind: 'idle' } : { kind: 'checking' };
  while (of !== null && own === attempt) {
    const end = await lookFor(of);
    if (end !== null && own === attempt) {
      purchase.value = end;
      return;
    }
    await pause(LOOK_MS);
  }
}

/** Ends any attempt: the page has read an active order. */
export function found(saleId: number): void {
  attempt++;
  doubt = null;
  if (waitedFor(saleId) !== null) forgetWaiting();
  purchase.value = { kind: 'idle' };
}

/** A reload of the page enters the waiting room again, for the same customer and number of units. */
const WAITING = 'stampede.waiting';
interface Waited {
  readonly quantity: number;
  /** Whether a request may have placed an order. */
  readonly mayExist: boolean;
}
/** @returns null: the visitor did not wait for this sale */
export function waitedFor(saleId: number): Waited | null {
  const [of, quantity, mayExist, ...sub] = (sessionStorage.getItem(WAITING) ?? '').split(' ');
  const isOwn = of === String(saleId) && sub.join(' ') === subject();
  return isOwn ? { quantity: Number(quantity), mayExist: mayExist === 'true' } : null;
}
const forgetWaiting = (): void => sessionStorage.removeItem(WAITING);

/** Does nothing while an attempt is in progress. @param mayExist an attempt before a reload may have placed an order */
export async function buy(buyer: Buyer, mayExist = false): Promise<void> {
  if (isInProgress(purchase.value)) return;
  const own = ++attempt;
  const quantity = units.value;
  const set = (next: Purchase) => {
    if (own === attempt) purchase.value = next;
  };
  const remember = () =>
    sessionStorage.setItem(WAITING, `${buyer.saleId} ${quantity} ${doubt !== null} ${subject()}`);
  if (mayExist) doubt = { buyer, sinceMs: serverNow() };
  let ticket: Ticket | null = null;
  let invalid = 0;
  for (let tries = 1; own === attempt; tries++) {
    set({ kind: 'asking', tries });
    let next: Step | Purchase;
    if (buyer.auth === 'jwt' && ticket === null) {
      const given: Answer<Ticket> = await takeTicket(buyer, () => set({ kind: 'proving' }));
      if (own !== attempt) return;
      if (given.kind === 'ok') {
        ticket = given.body;
        next = { why: 'turn', ms: Math.max(0, Date.parse(ticket.notBefore) - serverNow()) };
        remember();
      } else next = await settle(given);
    } else {
      const before: Doubt | null = doubt;
      doubt = { buyer, sinceMs: serverNow() };
      if (ticket !== null) remember();
      const answer: Answer<PlacedOrder> = await order(buyer, ticket, quantity);
      if (own !== attempt) return;
      doubt = doubtAfter(answer, buyer, before);
      const isInvalid = answer.kind === 'problem' && answer.slug === 'invalid-ticket';
      invalid = isInvalid ? invalid + 1 : 0;
      if (answer.kind === 'ok') next = { kind: 'placed', orderId: answer.body.orderId };
      else if (isInvalid && invalid <= MAX_RENEWALS) {
        ticket = null;
        next = { why: 'busy', ms: BUSY_MS };
      } else next = await settle(answer);
    }
    if (own !== attempt) return;
    if ('kind' in next) {
      purchase.value = next;
      forgetWaiting();
      return;
    }
    const { why, detail = null } = next;
    const ms = why === 'turn' ? next.ms : spread(next.ms);
    if (ms > 0) set({ kind: 'waiting', why, detail, untilMs: serverNow() + ms, tries });
    await pause(ms);
  }
}

/** @param before the doubt before the request, which a definite answer without an order leaves */
function doubtAfter(answer: Answer<PlacedOrder>, buyer: Buyer, before: Doubt | null): Doubt | null {
  if (answer.kind === 'ok') return null;
  return nextStep(answer)?.why === 'unknown' ? { buyer, sinceMs: serverNow() } : before;
}

/** What follows an answer without an order: a wait, or the end of the attempt. */
async function settle(answer: Failed): Promise<Step | Purchase> {
  const step = nextStep(answer);
  // Without a doubt, it is the answer to the request of a ticket.
  if (step !== null) return step.why === 'unknown' && doubt === null ? { ...step, why: 'busy' } : step;
  const refused: Purchase = { kind: 'refused', problem: answer as Problem };
  if (doubt === null) return refused;
  const end = await lookFor(doubt);
  if (end === null) return { why: 'unknown', ms: UNKNOWN_MS };
  return end.kind === 'idle' ? refused : end;
}

/** Every retry sends the same request. With a ticket, the ticket names the customer. */
const order = (
  { saleId, auth }: Buyer,
  ticket: Ticket | null,
  quantity: number,
): Promise<Answer<PlacedOrder>> =>
  ask<PlacedOrder>(`/sales/${saleId}/orders`, {
    body: { userId: auth === 'jwt' ? 'me' : identity.value, quantity },
    ...(ticket === null ? {} : { token: ticket.ticket }),
  });

async function takeTicket({ saleId, proofWorker }: Buyer, onProving: () => void): Promise<Answer<Ticket>> {
  const request = (body: object) => ask<Ticket>(`/sales/${saleId}/tickets`, { body, token: identity.value });
  const answer = await request({});
  if (answer.kind !== 'problem' || answer.slug !== 'proof-required') return answer;
  onProving();
  const challenge = String(answer.body.challenge);
  const nonce = await prove(proofWorker, challenge, Number(answer.body.bits));
  return nonce === null ? { kind: 'lost' } : request({ proof: { challenge, nonce } });
}

/** @returns null when the worker cannot be loaded */
function prove(script: string, challenge: string, bits: number): Promise<string | null> {
  return new Promise((resolve) => {
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

type Failed = Exclude<Answer<never>, { kind: 'ok' }>;

/** The next step after an answer without an order; null: the answer is final. */
function nextStep(answer: Failed): Step | null {
  if (answer.kind === 'lost') return { why: 'unknown', ms: UNKNOWN_MS };
  const { slug, retryMs } = answer;
  switch (slug) {
    case 'busy':
      return { why: 'busy', ms: retryMs ?? BUSY_MS };
    case 'too-many-requests':
      return { why: 'limit', ms: retryMs ?? BUSY_MS, detail: answer.detail };
    case 'too-early':
      return { why: 'turn', ms: retryMs ?? BUSY_MS };
    case 'unknown-outcome':
    case 'internal-error':
      return { why: 'unknown', ms: retryMs ?? UNKNOWN_MS };
    default:
      return null;
  }
}

/** Looks for the order of an earlier request, and ends the doubt when it can. @returns null: it is not known yet */
async function lookFor(of: Doubt): Promise<Purchase | null> {
  const { auth, saleId } = of.buyer;
  const isOver = serverNow() >= of.sinceMs + EFFECT_MS;
  const answer = await findOrder(auth, saleId);
  if (answer.kind === 'lost') return null;
  if (answer.kind === 'problem' && answer.slug !== 'unknown-order')
    return isFinal(answer) ? { kind: 'refused', problem: answer } : null;
  const active = answer.kind === 'ok' && isActive(answer.body) ? answer.body : null;
  if (active === null && !isOver) return null;
  if (doubt === of) doubt = null;
  return active === null ? { kind: 'idle' } : { kind: 'placed', orderId: active.orderId };
}

/** Whether a repeat at once gets the same answer. */
export const isFinal = (answer: Failed): boolean =>
  answer.kind === 'problem' && answer.status < 500 && answer.status !== 429;

/** Repeats an idempotent request until its answer is final, at most 8 times. */
export async function persist<T>(request: () => Promise<Answer<T>>): Promise<Answer<T>> {
  for (let tries = 1; ; tries++) {
    const answer = await request();
    if (tries === 8 || answer.kind === 'ok' || isFinal(answer)) return answer;
    await pause(spread(answer.kind === 'lost' ? UNKNOWN_MS : (answer.retryMs ?? BUSY_MS)));
  }
}
