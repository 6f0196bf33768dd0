/**
 * The purchase flow of a well-behaved client: repeated presses and retries lead to one order.
 *
 *   idle ──press──▶ asking ──200, 201, 202──▶ placed
 *                    │  ▲
 *     busy, too many │  │ after `Retry-After`: the same request again
 *     no answer      │  │ after 4 s, when an earlier request can no longer take effect: returns or places the order
 *     turn, proof    ▼  │ when the turn of the ticket comes
 *                   waiting ──stop──▶ idle; when an order may exist: checking ──▶ placed, or idle
 *        any other problem ──▶ refused, unless an answer was lost and the order is there: placed
 *
 * With AUTH=jwt a ticket comes first; see docs/reference/tickets.md.
 */
import { signal } from '@preact/signals';
import { type Answer, ask, type PlacedOrder, type Problem, type Ticket } from '../ui/api.ts';
import { pause, serverNow } from '../ui/time.ts';
import { type Auth, findOrder, identity } from './customer.ts';

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

/** Wait before the next request of an attempt; null: the attempt has ended. */
type Step = { readonly why: WaitReason; readonly ms: number; readonly detail?: string } | null;

const UNKNOWN_MS = 4_000;
const BUSY_MS = 1_000;

export interface Buyer {
  readonly saleId: number;
  readonly auth: Auth;
  readonly proofWorker: string;
}

export const purchase = signal<Purchase>({ kind: 'idle' });
/** Number of the latest attempt; earlier ones have been stopped. */
let attempt = 0;

/** A request that may have taken effect: when it was sent, on the server's clock; null: none. */
let doubt: { readonly buyer: Buyer; readonly sentMs: number } | null = null;

/** Whether an attempt is in progress. */
export const isInProgress = ({ kind }: Purchase): boolean =>
  kind !== 'idle' && kind !== 'refused' && kind !== 'placed';

/** Stops an attempt. An order that it may have placed is looked for, once no request can take effect any more. */
export async function stop(): Promise<void> {
  const own = ++attempt;
  forgetWaiting();
  if (doubt === null) {
    purchase.value = { kind: 'idle' };
    return;
  }
  const { buyer, sentMs } = doubt;
  purchase.value = { kind: 'checking' };
  const set = (next: Purchase) => {
    if (own === attempt) purchase.value = next;
  };
  await pause(sentMs + UNKNOWN_MS - serverNow());
  for (let step = await lookFor(buyer, set); step !== null && own === attempt; ) {
    await pause(step.ms);
    step = await lookFor(buyer, set);
  }
  if (own !== attempt) return;
  doubt = null;
  if (purchase.value.kind === 'checking') purchase.value = { kind: 'idle' };
}

/** A reload of the page enters the waiting room again, for the same number of units. */
const WAITING = 'stampede.waiting';
/** @returns for how many units; null: the visitor did not wait for this sale */
export function waitedFor(saleId: number): number | null {
  const [of, quantity] = (sessionStorage.getItem(WAITING) ?? '').split(' ');
  return of === String(saleId) ? Number(quantity ?? 1) : null;
}
const forgetWaiting = (): void => sessionStorage.removeItem(WAITING);

/** Does nothing while an attempt is in progress. */
export async function buy(buyer: Buyer): Promise<void> {
  if (isInProgress(purchase.value)) return;
  const own = ++attempt;
  const quantity = units.value;
  const set = (next: Purchase) => {
    if (own === attempt) purchase.value = next;
  };
  let ticket: Ticket | null = null;
  doubt = null;
  let mayExist = false;
  const settle = async (answer: Failed): Promise<Step> => {
    const step = nextStep(answer) ?? (mayExist ? await lookFor(buyer, set) : null);
    mayExist ||= step?.why === 'unknown';
    if (!mayExist && own === attempt) doubt = null;
    if (step === null && purchase.value.kind !== 'placed')
      set({ kind: 'refused', problem: answer as Problem });
    return step;
  };
  for (let tries = 1; own === attempt; tries++) {
    set({ kind: 'asking', tries });
    let step: Step = null;
    if (buyer.auth === 'jwt' && ticket === null) {
      const given: Answer<Ticket> = await takeTicket(buyer, () => set({ kind: 'proving' }));
      if (given.kind === 'ok') {
        ticket = given.body;
        const ms = Date.parse(ticket.notBefore) - serverNow();
        step = { why: 'turn', ms: Math.max(0, ms) };
        if (own === attempt) sessionStorage.setItem(WAITING, `${buyer.saleId} ${quantity}`);
      } else step = await settle(given);
    } else {
      doubt = { buyer, sentMs: serverNow() };
      const answer: Answer<PlacedOrder> = await order(buyer, ticket, quantity);
      if (answer.kind === 'problem' && answer.slug === 'invalid-ticket' && tries < 4) {
        ticket = null;
        step = { why: 'busy', ms: BUSY_MS };
      } else if (answer.kind === 'ok') {
        if (own === attempt) doubt = null;
        set({ kind: 'placed', orderId: answer.body.orderId });
      } else step = await settle(answer);
    }
    if (step === null) {
      if (own === attempt) forgetWaiting();
      return;
    }
    const { why, ms, detail = null } = step;
    if (ms > 0) set({ kind: 'waiting', why, detail, untilMs: serverNow() + ms, tries });
    await pause(ms);
  }
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
function nextStep(answer: Failed): Step {
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

/** Looks for an order whose answer was lost: a sold-out sale issues no ticket to repeat the purchase. @returns null: it is known */
async function lookFor({ auth, saleId }: Buyer, set: (next: Purchase) => void): Promise<Step> {
  const found = await findOrder(auth, saleId);
  if (found.kind === 'ok') set({ kind: 'placed', orderId: found.body.orderId });
  const isClear = found.kind === 'ok' || (found.kind === 'problem' && nextStep(found) === null);
  return isClear ? null : { why: 'unknown', ms: UNKNOWN_MS };
}

/** Repeats an idempotent request until its answer is final, at most 8 times. */
export async function persist<T>(request: () => Promise<Answer<T>>): Promise<Answer<T>> {
  for (let tries = 1; ; tries++) {
    const answer = await request();
    if (tries === 8 || answer.kind === 'ok') return answer;
    if (answer.kind === 'problem' && answer.status < 500 && answer.status !== 429) return answer;
    await pause(answer.kind === 'lost' ? UNKNOWN_MS : (answer.retryMs ?? BUSY_MS));
  }
}
