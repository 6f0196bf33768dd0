/**
 * Pays and cancels orders after a load, so that the audit has payments, cancellations and refunds to judge. Every request
 * is sent twice at the same time, as a payment provider and an impatient customer do:
 *
 *   accepted ──paid──▶ paid
 *       └──cancelled──▶ cancelled (one answer is 200, the other 409) ──every other one is paid too late──▶ refund-due
 *
 * These requests are in neither history nor figures. Unexpected answers are reported; the audit judges the orders.
 */
import { adminHeaders, post, problemIn } from '../../lab/kit/http.ts';

export interface PostLoad {
  /** Where the service answers, without a path. */
  readonly url: string;
  /** Accepted orders. At most a third of them is paid, and as many are cancelled. */
  readonly orderIds: readonly string[];
  readonly priceCents: number;
  /** Units of the orders; left out: one each. */
  readonly units?: ReadonlyMap<string, number>;
  /** False: no cancellations. */
  readonly mayCancel: boolean;
  /** Ends the run at once. */
  readonly signal: AbortSignal;
}

/** Orders by result; the cancelled ones include those that were then paid too late. */
export type PostLoadCounts = Readonly<Record<'paid' | 'cancelled' | 'refundDue', number>>;

export interface PostLoadResult extends PostLoadCounts {
  /** Pairs of requests with unexpected answers, and pairs for which there was no time, in words. */
  readonly findings: readonly string[];
}

/** Most orders that are paid, and most that are cancelled. */
const most = 50;
const pairsInFlight = 8;
/** No request begins after this. */
const withinMs = 20_000;
const quotedLength = 200;

/** Never throws because of bad or missing answers. */
export async function runPostLoad(load: PostLoad): Promise<PostLoadResult> {
  const { orderIds, priceCents, units, mayCancel, signal } = load;
  const untilMs = performance.now() + withinMs;
  const strange: string[] = [];
  let unsent = 0;
  /** @returns the orders whose two answers, in alphabetical order, were `wanted` */
  const send = async (orders: readonly string[], isPayment: boolean, wanted: string): Promise<string[]> => {
    const [rest, done] = [orders.values(), [] as string[]];
    const lane = async (): Promise<void> => {
      for (const orderId of rest) {
        if (signal.aborted || performance.now() > untilMs) {
          unsent += 1;
          continue;
        }
        const amountCents = priceCents * (units?.get(orderId) ?? 1);
        const payment = { notificationId: `bench-${orderId}`, orderId, amountCents };
        const one = () =>
          isPayment
            ? answerTo(load, '/payments/notifications', payment)
            : answerTo(load, `/orders/${orderId}/cancel`, null);
        const both = (await Promise.all([one(), one()])).sort().join(', ');
        if (both === wanted) done.push(orderId);
        else
          strange.push(
            `order ${orderId} ${isPayment ? 'paid' : 'cancelled'} twice: ${both} instead of ${wanted}`,
          );
      }
    };
    await Promise.all(Array.from({ length: pairsInFlight }, lane));
    return done;
  };
  const count = Math.min(most, Math.floor(orderIds.length / 3));
  const pick = (half: 0 | 1): string[] =>
    Array.from(
      { length: count },
      (_, n) => orderIds[Math.floor(((n + half / 2) * orderIds.length) / count)]!,
    );
  const paid = await send(pick(0), true, '200 paid, 200 paid');
  const cancelled = await send(mayCancel ? pick(1) : [], false, '200 cancelled, 409 invalid-transition');
  const late = cancelled.filter((_, n) => n % 2 === 0);
  const refundDue = await send(late, true, '200 refund-due, 200 refund-due');
  const findings: string[] = [];
  const examples = strange.slice(0, 3).join(' | ');
  if (strange.length > 0) {
    findings.push(`unexpected pairs of answers after the load: ${strange.length}, such as ${examples}`);
  }
  if (unsent > 0) findings.push(`payments and cancellations for which there was no time: ${unsent}`);
  return { paid: paid.length, cancelled: cancelled.length, refundDue: refundDue.length, findings };
}

/** @returns "200 paid", "409 invalid-transition", or why there is no answer */
async function answerTo({ url, signal }: PostLoad, path: string, body: object | null): Promise<string> {
  try {
    // Without secrets, payments are reported by administrators.
    const { status, text } = await post(`${url}${path}`, body, adminHeaders(), { signal });
    // A problem, the status of an order, or the answer itself.
    const name = problemIn(text) ?? /"status":"([^"]+)"/.exec(text)?.[1];
    return `${status} ${name ?? text.slice(0, quotedLength)}`;
  } catch (error) {
    return `no answer (${error instanceof Error ? error.message : error})`.slice(0, quotedLength);
  }
}
