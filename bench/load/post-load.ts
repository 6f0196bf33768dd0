/**
 * Pays and cancels orders after a load, so that the audit has payments, cancellations and refunds to judge. Every request
 * is sent twice at the same time, as a payment provider and an impatient customer do:
 *
 *   accepted ──paid──▶ paid
 *       └──cancelled──▶ cancelled (one answer is 200, the other 409) ──every other one is paid too late──▶ refund-due
 *
 * It is in neither history nor figures. An unexpected answer is reported; what became of the orders is the audit's matter.
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
const quotedLength = 200;

/** What becomes of an order, and the two answers that it then has, in alphabetical order. */
const answersOf: Readonly<Record<keyof PostLoadCounts, string>> = {
  paid: '200 paid, 200 paid',
  cancelled: '200 cancelled, 409 invalid-transition',
  refundDue: '200 refund-due, 200 refund-due',
};

/** Never throws for what the service does or does not answer. */
export async function runPostLoad(load: PostLoad): Promise<PostLoadResult> {
  const { orderIds, mayCancel, signal, durationMs = 20_000 } = load;
  const untilMs = performance.now() + durationMs;
  const strange: string[] = [];
  let unsent = 0;
  /** @returns the orders that became it */
  const make = async (becomes: keyof PostLoadCounts, orders: readonly string[]): Promise<string[]> => {
    const rest = orders.values();
    const done: string[] = [];
    const lane = async (): Promise<void> => {
      for (const id of rest) {
        if (signal.aborted || performance.now() > untilMs) {
          unsent += 1;
          continue;
        }
        const both = await Promise.all([request(becomes, id, load), request(becomes, id, load)]);
        const answers = both.sort().join(', ');
        if (answers === answersOf[becomes]) done.push(id);
        else strange.push(`${becomes} ${id} twice: ${answers} instead of ${answersOf[becomes]}`);
      }
    };
    await Promise.all(Array.from({ length: lanes }, lane));
    return done;
  };
  const count = 2 * Math.min(most, Math.floor(orderIds.length / 3));
  const picked = Array.from(
    { length: count },
    (_, n) => orderIds[Math.floor((n * orderIds.length) / count)]!,
  );
  const paid = await make(
    'paid',
    picked.filter((_, n) => n % 2 === 0),
  );
  const cancelled = await make('cancelled', mayCancel ? picked.filter((_, n) => n % 2 === 1) : []);
  const refundDue = await make(
    'refundDue',
    cancelled.filter((_, n) => n % 2 === 0),
  );
  const findings: string[] = [];
  const examples = strange.slice(0, 3).join(' | ');
  if (strange.length > 0) {
    findings.push(`unexpected pairs of answers after the load: ${strange.length}, such as ${examples}`);
  }
  if (unsent > 0) findings.push(`payments and cancellations for which there was no time: ${unsent}`);
  return { paid: paid.length, cancelled: cancelled.length, refundDue: refundDue.length, findings };
}

/** @returns "200 paid", "409 invalid-transition", or why there is no answer */
async function request(becomes: keyof PostLoadCounts, orderId: string, load: PostLoad): Promise<string> {
  const [path, payment] =
    becomes === 'cancelled'
      ? [`/orders/${orderId}/cancel`, null]
      : [
          '/payments/notifications',
          { notificationId: `bench-${orderId}`, orderId, amountCents: load.priceCents },
        ];
  try {
    const response = await fetch(`${load.url}${path}`, {
      method: 'POST',
      ...(payment && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(payment) }),
      signal: AbortSignal.any([load.signal, AbortSignal.timeout(requestTimeoutMs)]),
    });
    const body = await response.text();
    // The last part of a problem's type, the status of an order, or the answer itself.
    const name = /"type":"(?:[^"]*\/)?([^"/]+)"/.exec(body)?.[1] ?? /"status":"([^"]+)"/.exec(body)?.[1];
    return `${response.status} ${name ?? body.slice(0, quotedLength)}`;
  } catch (error) {
    return `no answer (${error instanceof Error ? error.message : error})`.slice(0, quotedLength);
  }
}
