/**
 * Pays and cancels orders after a load, so that the audit has payments, cancellations and refunds to judge. Every request
 * is sent twice at the same time, as a payment provider and an impatient customer do:
 *
 *   accepted ──paid──▶ paid
 *       └──cancelled──▶ cancelled (one answer is 200, the other 409) ──every other one is paid too late──▶ refund-due
 *
 * It is in neither history nor figures. Nothing here judges what the orders have become; an unexpected answer is reported.
 */

export interface PostLoad {
  /** Where the service answers, without a path. */
  readonly url: string;
  /** Accepted orders. At most a third of them is paid, and as many are cancelled. */
  readonly orderIds: readonly string[];
  readonly priceCents: number;
  /** False: none is cancelled. */
  readonly mayCancel: boolean;
  /** No request begins after this; 20 s by default. */
  readonly durationMs?: number;
  /** Ends it at once. */
  readonly signal: AbortSignal;
}

/** How many orders became what. */
export interface PostLoadCounts {
  readonly paid: number;
  /** Also those that were then paid too late. */
  readonly cancelled: number;
  readonly refundDue: number;
}

export interface PostLoadResult extends PostLoadCounts {
  /** Pairs of requests with unexpected answers, and pairs for which there was no time, in words. */
  readonly findings: readonly string[];
}

/** Orders that are paid, and orders that are cancelled, at most. */
const most = 50;
/** Pairs in flight. */
const lanes = 8;
const requestTimeoutMs = 10_000;
/** Of an answer that is quoted. */
const quotedLength = 200;

/** One request that is sent twice. */
interface Pair {
  readonly becomes: keyof PostLoadCounts;
  readonly orderId: string;
  readonly path: string;
  readonly body: object | null;
  /** The two answers that it must have, in alphabetical order. */
  readonly answers: string;
}

/** Never throws for what the service does or does not answer. */
export async function runPostLoad(load: PostLoad): Promise<PostLoadResult> {
  const done = { paid: new Set<string>(), cancelled: new Set<string>(), refundDue: new Set<string>() };
  const strange: string[] = [];
  let unsent = 0;
  const untilMs = performance.now() + (load.durationMs ?? 20_000);
  const send = async (pairs: readonly Pair[]): Promise<void> => {
    const rest = pairs.values();
    const lane = async (): Promise<void> => {
      for (const pair of rest) {
        if (load.signal.aborted || performance.now() > untilMs) {
          unsent += 1;
          continue;
        }
        const both = (await Promise.all([answerTo(pair, load), answerTo(pair, load)])).sort().join(', ');
        if (both === pair.answers) done[pair.becomes].add(pair.orderId);
        else strange.push(`POST ${pair.path} twice: ${both} instead of ${pair.answers}`);
      }
    };
    await Promise.all(Array.from({ length: lanes }, lane));
  };
  const payment = (orderId: string, becomes: 'paid' | 'refundDue'): Pair => {
    const answer = { paid: '200 paid', refundDue: '200 refund-due' }[becomes];
    const body = { notificationId: `bench-${orderId}`, orderId, amountCents: load.priceCents };
    return { becomes, orderId, path: '/payments/notifications', body, answers: `${answer}, ${answer}` };
  };
  const cancellation = (orderId: string): Pair => {
    const answers = '200 cancelled, 409 invalid-transition';
    return { becomes: 'cancelled', orderId, path: `/orders/${orderId}/cancel`, body: null, answers };
  };
  const picked = spread(load.orderIds, 2 * Math.min(most, Math.floor(load.orderIds.length / 3)));
  const pairs = picked.map((id, n) => (n % 2 === 0 ? payment(id, 'paid') : cancellation(id)));
  await send(pairs.filter(({ becomes }) => load.mayCancel || becomes === 'paid'));
  await send([...done.cancelled].filter((_, n) => n % 2 === 0).map((id) => payment(id, 'refundDue')));
  const examples = strange.slice(0, 3).join(' | ');
  return {
    paid: done.paid.size,
    cancelled: done.cancelled.size,
    refundDue: done.refundDue.size,
    findings: [
      ...(strange.length > 0
        ? [`unexpected pairs of answers after the load: ${strange.length}, such as ${examples}`]
        : []),
      ...(unsent > 0 ? [`payments and cancellations for which there was no time: ${unsent}`] : []),
    ],
  };
}

/** "200 paid", "409 invalid-transition", or why there is none. */
async function answerTo({ path, body }: Pair, { url, signal }: PostLoad): Promise<string> {
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
