/** The clients of a schedule: they send the actions of the workload, and keep the history that the audit judges. */

import { limits } from '../../src/config/limits.ts';
import { failureOf } from '../../src/service/pipeline.ts';
import type { AttemptOutcome, HistoryRecord } from '../history.ts';
import { resultOf, unanswered } from '../history.ts';
import { Excuses, nowUs } from './excuses.ts';
import { type ExploredProcess, type Target, usesRedis } from './process.ts';
import type { Action, Operation } from './workload.ts';

/** How an action ended. */
type Ending = Pick<HistoryRecord, 'outcome'> & Partial<HistoryRecord>;
type Parts = NonNullable<ExploredProcess['parts']>;

export class Clients {
  readonly history: HistoryRecord[] = [];
  /** The order that the last answer to each customer named. */
  readonly orders = new Map<string, string>();
  /** Answers that came before the commit of their order: with CONFIRM=accepted they may be lost with Redis. */
  readonly #ahead = new Set<number>();
  readonly excuses: Excuses;
  /** Whether an answer may come before the commit. */
  readonly #isAhead: boolean;
  readonly #onDefect: (error: unknown, doing: string) => void;

  constructor(target: Target, onDefect: (error: unknown, doing: string) => void) {
    this.#isAhead = target.confirm === 'accepted';
    this.excuses = new Excuses(this.history, this.#ahead, usesRedis(target));
    this.#onDefect = onDefect;
  }

  /** Whether an action can be sent now. One about an order waits for its id, and is left out if there never is one. */
  canSend(action: Action): boolean {
    return !('user' in action) || !ABOUT_ORDER.has(action.kind) || this.orders.has(action.user);
  }

  /** Sends an action. Its owner must be set. @returns how it ended; null: the history does not have it */
  send(action: Sent, saleId: number, parts: Parts): Promise<AttemptOutcome | null> {
    const id = this.#begin(action, saleId);
    return ask(action, parts, saleId, this.orders).then(
      (ending) => this.#end(id, action, ending),
      (error) => {
        const kind = failureOf(error);
        if (kind === 'defect') this.#onDefect(error, action.kind);
        return this.#end(id, action, {
          outcome: kind === 'unknown' || kind === 'defect' ? 'unknown' : 'busy',
        });
      },
    );
  }

  #begin(action: Sent, saleId: number): number | null {
    const op = OPERATIONS[action.kind];
    if (op === undefined) return null;
    const id = this.history.length;
    const userId = 'user' in action ? action.user : 'operator';
    const orderId = op === 'pay' || op === 'cancel' ? (this.orders.get(userId) ?? null) : null;
    this.history.push({
      ...{ ...unanswered, id, op, saleId, userId, invokedUs: nowUs(), orderId },
      ...('units' in action && { units: action.units }),
      ...(action.kind === 'pay' && { paymentId: action.payment }),
    });
    return id;
  }

  #end(id: number | null, action: Sent, { outcome, status = null, ...rest }: Ending): AttemptOutcome | null {
    if (id === null) return null;
    const asked = this.history[id]!;
    // A process that knows that the sale is sold out answers at once, by what was true a moment ago.
    const isKnown = outcome === 'sold-out' && asked.invokedUs === nowUs();
    const before = isKnown ? { ...asked, invokedUs: asked.invokedUs - limits.latchTtlMs * 1_000 } : asked;
    const orderId = rest.orderId ?? before.orderId;
    this.history[id] = {
      ...before,
      ...rest,
      outcome,
      result: resultOf[outcome],
      orderId,
      status,
      completedUs: nowUs(),
    };
    if (action.kind !== 'buy' || orderId === null) return outcome;
    if (!action.isTwin) this.orders.set(action.user, orderId);
    if (status === 202 || (status === 200 && this.#isAhead)) this.#ahead.add(id);
    return outcome;
  }

  /** The customers of a sale whose last answer named an order, and who have not asked to give it up. */
  holders(sale: number): string[] {
    const ofSale = this.history.filter(({ saleId, userId }) => saleId === sale && this.orders.has(userId));
    const hasGivenUp = new Set(ofSale.filter(({ op }) => op === 'cancel').map(({ userId }) => userId));
    return [...new Set(ofSale.map(({ userId }) => userId))].filter((user) => !hasGivenUp.has(user));
  }

  /**
   * Orders that were closed without a request of their own: they expired, or with those of the whole sale.
   * @param closings when; µs since 1970
   */
  addClosed(
    orders: readonly {
      readonly id: string;
      readonly saleId: number;
      readonly userId: string;
      readonly status: string;
    }[],
    closings: ReadonlyMap<string, number>,
  ): void {
    const isKnown = (order: string) =>
      this.history.some(
        ({ op, orderId, result }) => op === 'cancel' && orderId === order && result !== 'fail',
      );
    for (const { id: orderId, saleId, userId, status } of orders) {
      if (status === 'pending' || status === 'paid') continue;
      if (status !== 'expired' && isKnown(orderId)) continue;
      const atUs = closings.get(orderId)! - 1_000; // it is rounded
      const id = this.history.length;
      this.history.push({
        ...{ ...unanswered, id, op: 'expire', saleId, userId, orderId },
        ...{ invokedUs: atUs, completedUs: atUs, outcome: 'done', result: 'ok' },
      });
    }
  }

  /** An operator may have refunded what was paid; the history has no refunds. */
  addRefunds(sale: number, orders: readonly { readonly id: string; readonly status: string }[]): void {
    const refunded = new Set(orders.filter(({ status }) => status === 'refund-due').map(({ id }) => id));
    for (const [id, one] of this.history.entries())
      if (one.op === 'pay' && one.saleId === sale && one.orderStatus === 'paid' && refunded.has(one.orderId!))
        this.history[id] = { ...one, orderStatus: 'refund-due' };
  }

  /** Until when an order was placed, as an answer said, and for good; µs since 1970, Infinity: no answer did. */
  placedUntilUs(order: string): number {
    const named = this.history.filter(
      ({ op, orderId, result }) => op === 'purchase' && orderId === order && result === 'ok',
    );
    const untilUs = ({ id, completedUs }: HistoryRecord) =>
      this.#ahead.has(id) ? this.excuses.committedUs(order) : completedUs!;
    return Math.min(...named.map((one) => untilUs(one) ?? Number.POSITIVE_INFINITY));
  }
}

type Sent = Exclude<Action, Operation>;
const ABOUT_ORDER: ReadonlySet<Action['kind']> = new Set(['pay', 'cancel', 'refund', 'extend', 'transfer']);

const OPERATIONS: Partial<Record<Action['kind'], HistoryRecord['op']>> = {
  buy: 'purchase',
  pay: 'pay',
  cancel: 'cancel',
  refund: 'cancel', // of a paid order, too
  restock: 'restock',
};

async function ask(
  action: Sent,
  parts: Parts,
  saleId: number,
  orders: ReadonlyMap<string, string>,
): Promise<Ending> {
  switch (action.kind) {
    case 'buy':
      return purchased(
        await parts.purchases.attempt(saleId, action.user, action.units, null, openingOf(action)),
      );
    case 'pay': {
      const orderId = orders.get(action.user)!;
      const result = await parts.payments.notify({
        ...{ notificationId: action.payment, provider: null, orderId, amountCents: action.cents },
      });
      if (result.kind === 'done') return { outcome: 'done', status: 200, orderStatus: result.order.status };
      return { outcome: result.kind === 'unknown' ? 'unknown' : result.kind === 'busy' ? 'busy' : 'refused' };
    }
    case 'cancel': {
      const { kind } = await parts.lifecycle.cancel(orders.get(action.user)!, action.user);
      if (kind === 'closed') return { outcome: 'done', status: 200 };
      return { outcome: kind === 'unknown' ? 'unknown' : 'refused' };
    }
    case 'refund': {
      const how = { returnUnits: action.returnUnits, actor: 'operator' };
      const { kind } = await parts.lifecycle.refund(orders.get(action.user)!, how);
      if (kind === 'closed') return { outcome: 'done', status: 200 };
      return { outcome: kind === 'unknown' ? 'unknown' : 'refused' };
    }
    case 'restock': {
      const result = await parts.strategy.restock(saleId, action.units);
      if (result === 'busy') return { outcome: 'busy' };
      return typeof result === 'object' ? { outcome: 'done', status: 200 } : { outcome: 'refused' };
    }
    case 'wait':
      await parts.waitlist.join(saleId, action.user, 1);
      return { outcome: 'done' };
    case 'pass':
      await parts.passes.find(({ name }) => name === action.name)?.run(() => false);
      return { outcome: 'done' };
  }
}

const openingOf = ({ code }: { readonly code?: string }) => (code === undefined ? null : { code });

type Outcome = Awaited<ReturnType<Parts['purchases']['attempt']>>;

function purchased(outcome: Outcome): Ending {
  switch (outcome.kind) {
    case 'accepted':
      return { outcome: 'accepted', orderId: outcome.order.orderId, status: outcome.durable ? 201 : 202 };
    case 'replayed':
      return { outcome: 'replayed', orderId: outcome.order.orderId, status: 200 };
    case 'unknown':
      return { outcome: 'unknown', orderId: outcome.orderId, status: 503 };
    case 'not-enough-units':
      return { outcome: outcome.kind, remaining: outcome.remaining, status: 409 };
    case 'customer-limit':
    case 'invalid-code':
      return { outcome: 'refused', status: 409 };
    case 'sold-out':
    case 'not-open':
    case 'busy':
      return { outcome: outcome.kind, status: 409 };
    default:
      throw new Error(`the answer is ${outcome.kind}`);
  }
}
