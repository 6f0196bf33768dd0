/**
 * What becomes of orders after a sale, so that the audit has payments, cancellations and refunds to judge. Every request
 * is sent twice at the same time, as a payment provider and an impatient customer do:
 *
 *   accepted ──paid──▶ paid
 *       └──cancelled──▶ cancelled (one is told 200, the other 409) ──every other one is paid too late──▶ refund-due
 *
 * It comes after the load and is in neither history nor figures. Nothing here judges what the orders have become; an
 * answer that is not the one that is drawn above is told.
 */
import { priceCents } from '../admin.ts';

export interface AftermathLoad {
  /** Where the service answers, without a path. */
  readonly url: string;
  /** Orders that customers were told of. At most a third of them is paid, and as many are cancelled. */
  readonly orderIds: readonly string[];
  /** False: none is cancelled. */
  readonly mayCancel: boolean;
  /** A request has no answer after this; 10 s unless told. */
  readonly requestTimeoutMs?: number;
  /** No request is begun after this; 20 s unless told. */
  readonly durationMs?: number;
  /** Ends it at once. */
  readonly signal: AbortSignal;
}

/** How many orders were seen to become what. */
export interface Aftermath {
  readonly paid: number;
  /** Also those that were then paid too late. */
  readonly cancelled: number;
  readonly refundDue: number;
}

export interface AftermathResult extends Aftermath {
  /** Pairs of requests that had not the answers that they should, in words. */
  readonly strange: readonly string[];
  /** Pairs of requests for which there was no time. */
  readonly unsent: number;
}

/** Orders that are paid, and orders that are cancelled, at most. */
const most = 50;
/** Pairs under way at the same time: 16 requests. */
const lanes = 8;
/** Of an answer that is quoted. */
const quotedLength = 200;

/** One request that is sent twice, and what it must do. */
interface Pair {
  readonly becomes: keyof Aftermath;
  readonly orderId: string;
  readonly path: string;
  readonly body: object | null;
  /** The two answers, in the order of the alphabet. */
  readonly answers: string;
}

/** Never throws for what the service does or does not answer. */
export async function runAftermath(load: AftermathLoad): Promise<AftermathResult> {
  const run = new Run(load);
  const picked = spread(load.orderIds, 2 * Math.min(most, Math.floor(load.orderIds.length / 3)));
  const pairs = picked.map((id, n) => (n % 2 === 0 ? payment(id, 'paid') : cancellation(id)));
  await run.all(pairs.filter(({ becomes }) => load.mayCancel || becomes === 'paid'));
  const late = [...run.done.cancelled].filter((_, n) => n % 2 === 0);
  await run.all(late.map((id) => payment(id, 'refundDue')));
  return {
    paid: run.done.paid.size,
    cancelled: run.done.cancelled.size,
    refundDue: run.done.refundDue.size,
    strange: run.strange,
    unsent: run.unsent,
  };
}

function payment(orderId: string, becomes: 'paid' | 'refundDue'): Pair {
  const status = { paid: '200 paid', refundDue: '200 refund-due' }[becomes];
  return {
    becomes,
    orderId,
    path: '/payments/notifications',
    body: { notificationId: `bench-${orderId}`, orderId, amountCents: priceCents },
    answers: `${status}, ${status}`,
  };
}

function cancellation(orderId: string): Pair {
  const answers = '200 cancelled, 409 invalid-transition';
  return { becomes: 'cancelled', orderId, path: `/orders/${orderId}/cancel`, body: null, answers };
}

class Run {
  readonly done: Record<keyof Aftermath, Set<string>> = {
    paid: new Set(),
    cancelled: new Set(),
    refundDue: new Set(),
  };
  readonly strange: string[] = [];
  unsent = 0;
  readonly #load: AftermathLoad;
  readonly #untilMs: number;

  constructor(load: AftermathLoad) {
    this.#load = load;
    this.#untilMs = performance.now() + (load.durationMs ?? 20_000);
  }

  /** Sends all pairs, a few at a time. */
  async all(pairs: readonly Pair[]): Promise<void> {
    const rest = pairs.values();
    const lane = async (): Promise<void> => {
      for (const pair of rest) {
        if (this.#load.signal.aborted || performance.now() > this.#untilMs) this.unsent += 1;
        else await this.#send(pair);
      }
    };
    await Promise.all(Array.from({ length: lanes }, lane));
  }

  async #send(pair: Pair): Promise<void> {
    const both = await Promise.all([this.#answer(pair), this.#answer(pair)]);
    const answers = both.sort().join(', ');
    if (answers === pair.answers) this.done[pair.becomes].add(pair.orderId);
    else this.strange.push(`POST ${pair.path} twice: ${answers} instead of ${pair.answers}`);
  }

  /** "200 paid", "409 invalid-transition", or why there is none. */
  async #answer({ path, body }: Pair): Promise<string> {
    const { url, signal, requestTimeoutMs = 10_000 } = this.#load;
    try {
      const response = await fetch(`${url}${path}`, {
        method: 'POST',
        ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
        signal: AbortSignal.any([signal, AbortSignal.timeout(requestTimeoutMs)]),
      });
      return `${response.status} ${named(await response.text())}`;
    } catch (error) {
      return `no answer (${error instanceof Error ? error.message : error})`.slice(0, quotedLength);
    }
  }
}

/** The status of an order, the last part of a problem's type, or the answer itself. */
function named(body: string): string {
  try {
    const { type, status } = JSON.parse(body) as { type?: unknown; status?: unknown };
    if (typeof type === 'string') return type.slice(type.lastIndexOf('/') + 1);
    if (typeof status === 'string') return status;
  } catch {
    // Not JSON: quoted.
  }
  return body.slice(0, quotedLength);
}

/** So many of them, evenly spread. */
function spread(ids: readonly string[], count: number): string[] {
  return Array.from({ length: count }, (_, n) => ids[Math.floor((n * ids.length) / count)] ?? '');
}
