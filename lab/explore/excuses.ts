/**
 * Promises that stores take back by their own rules, as the failure model states them: what was not replicated, or was answered ahead of its
 * commit, is lost with a store.
 */
import type { HistoryRecord } from '../history.ts';
import { HOLD_S } from './extras.ts';
import { PAYMENT_WINDOW_S } from './process.ts';
import { virtual } from './virtual.ts';

export const nowUs = (): number => Math.round(virtual.nowMs * 1_000);

/** When an order was made, by its id. */
export const placedUs = (orderId: string): number =>
  Number.parseInt(orderId.replace('-', '').slice(0, 12), 16) * 1_000;

export class Excuses {
  readonly #history: HistoryRecord[];
  readonly #ahead: ReadonlySet<number>;
  /** What stores lost by their own rules. */
  readonly #losses: Loss[] = [];
  /** When Postgres had each order first; µs since 1970. */
  readonly #committedUs = new Map<string, number>();
  readonly #isMirrored: boolean;

  /**
   * @param ahead answers that came before the commit of their order: with CONFIRM=accepted they may be lost with Redis
   * @param isMirrored whether Redis decides
   */
  constructor(history: HistoryRecord[], ahead: ReadonlySet<number>, isMirrored: boolean) {
    this.#history = history;
    this.#ahead = ahead;
    this.#isMirrored = isMirrored;
  }

  /** Postgres has these orders now. */
  committed(orders: readonly string[]): void {
    for (const order of orders) if (!this.#committedUs.has(order)) this.#committedUs.set(order, nowUs());
  }

  /** What was not replicated was lost with the primary, and was no promise. @param orders those that Postgres still has */
  rolledBack(orders: readonly string[]): void {
    const kept = new Set(orders);
    for (const order of this.#committedUs.keys()) {
      if (kept.has(order)) continue;
      this.#committedUs.delete(order);
      // Nor has Redis kept what Postgres had, as it seemed, when Redis lost its data.
      for (const loss of this.#losses) loss.kept.delete(order);
    }
  }

  /**
   * Redis has lost data: what it had, and was answered ahead of its commit, is no promise any more, unless it was kept. All are order ids.
   * @param displaced those that are reserved there, while the units of some of them were sold in another copy
   */
  lostRedis(what: Pick<Loss, 'had' | 'kept' | 'displaced'>): void {
    this.#losses.push({ ...what, untilUs: nowUs(), noticedUs: nowUs() });
  }

  /**
   * What a primary that replicated asynchronously had committed meanwhile was lost with it; and what was answered ahead of a commit that
   * was on its way then.
   */
  lostPostgres(sinceUs: number): void {
    this.#losses.push({
      ...{
        sinceUs,
        untilUs: nowUs(),
        had: new Set<string>(),
        kept: new Set<string>(),
        displaced: new Set<string>(),
      },
      noticedUs: Number.POSITIVE_INFINITY,
    });
  }

  /** Whether a process may not know yet that a standby of Postgres was promoted. */
  get isUnnoticed(): boolean {
    return this.#losses.some(({ noticedUs }) => noticedUs === Number.POSITIVE_INFINITY);
  }

  /** Every process knows it now. */
  noticed(): void {
    for (const loss of this.#losses) loss.noticedUs = Math.min(loss.noticedUs, nowUs());
  }

  /** When Postgres had an order first, as far as that was noted; µs since 1970. */
  committedUs(order: string): number | undefined {
    return this.#committedUs.get(order);
  }

  get hasLostRedis(): boolean {
    return this.#losses.some(({ sinceUs }) => sinceUs === undefined);
  }

  get hasLostPostgres(): boolean {
    return this.#losses.some(({ sinceUs }) => sinceUs !== undefined);
  }

  /**
   * Takes back the promises that stores have lost by their own rules; a 202 whose order was committed after all counts from then on.
   * @param revivals late payments that took the units of their order again: ids
   */
  apply(revivals: ReadonlySet<string>): void {
    this.#excuseOnTheWay();
    this.#excusePaidLate(revivals);
    this.#excuseCancelled();
    const lost = new Set<string>();
    for (const [id, { invokedUs, completedUs, result, orderId, outcome }] of this.#history.entries()) {
      if (completedUs === null) continue;
      if (result === 'fail' && this.#restsOnLostRows(invokedUs, completedUs)) this.forget(id);
      if (result !== 'ok') continue;
      const isAhead = this.#ahead.has(id);
      const happenedUs = isAhead ? (this.#committedUs.get(orderId!) ?? completedUs) : completedUs;
      const isLost = this.#losses.some(({ sinceUs, untilUs, noticedUs, had, kept, displaced }) => {
        if (kept.has(orderId ?? '')) return false;
        if (sinceUs === undefined) return isAhead && (had.has(orderId!) || displaced.has(orderId!));
        // Until a process notices, Redis offers units that are free by a cancellation that was lost.
        return happenedUs >= sinceUs && invokedUs <= (isAhead ? noticedUs : untilUs);
      });
      // Until a process notices, it names an order that is lost to its customer.
      const isNamed = isAhead && outcome === 'replayed' && lost.has(orderId!);
      const endsWithCommit = isLost && isAhead && happenedUs > completedUs && !this.hasLostPostgres;
      if (endsWithCommit) this.#history[id] = { ...this.#history[id]!, completedUs: happenedUs };
      else if (isLost && isAhead) lost.add(orderId!);
      if ((isLost && !endsWithCommit) || isNamed) this.forget(id);
    }
    this.#excuseDisplaced();
  }

  /**
   * An order that is on its way when Redis loses its data is unknown there until it is acknowledged, and its customer may be refused. With
   * CONFIRM=accepted, what is reserved in a Redis that was left is committed when the address leads back: also for an attempt without an answer.
   */
  #excuseOnTheWay(): void {
    const purchases = this.#history.filter(({ op }) => op === 'purchase');
    for (const { userId, saleId, orderId, invokedUs } of purchases) {
      const committedUs = this.#committedUs.get(orderId ?? '') ?? 0;
      const wasOnTheWay = this.#losses.some(
        ({ sinceUs, untilUs }) => sinceUs === undefined && invokedUs <= untilUs && untilUs < committedUs,
      );
      if (!wasOnTheWay) continue;
      for (const one of purchases)
        if (
          one.userId === userId &&
          one.saleId === saleId &&
          one.result === 'fail' &&
          one.invokedUs >= invokedUs
        )
          this.forget(one.id);
    }
  }

  /**
   * An order that is paid late was expired in between, and its customer may have been refused. Redis may learn of the payment later, and has a
   * unit too many until then: see docs/reference/failure-model.md, "What no test covers".
   */
  #excusePaidLate(revivals: ReadonlySet<string>): void {
    for (const { op, paymentId, result, orderId, saleId, userId, ...pay } of this.#history) {
      if (op !== 'pay' || result === 'fail' || !revivals.has(paymentId!)) continue;
      const dueUs = placedUs(orderId!) + Math.min(PAYMENT_WINDOW_S, HOLD_S) * 1e6;
      const untilUs = this.#isMirrored
        ? Number.POSITIVE_INFINITY
        : (pay.completedUs ?? Number.POSITIVE_INFINITY);
      for (const { id, ...one } of this.#history) {
        if (one.op !== 'purchase' || one.saleId !== saleId || (one.completedUs ?? 0) < dueUs) continue;
        const isLate = one.invokedUs >= pay.invokedUs;
        const isLost = isLate && this.#ahead.has(id) && !this.#committedUs.has(one.orderId!);
        const isRefused = one.result === 'fail' && one.userId === userId && one.invokedUs <= untilUs;
        if (isLost || isRefused) this.forget(id);
      }
    }
  }

  /** An attempt whose order another request of its customer found, and cancelled, may still be in progress, and end as `busy`. */
  #excuseCancelled(): void {
    for (const { op, result, orderId, saleId, userId, ...cancel } of this.#history) {
      const isNamed = this.#history.some((one) => one.outcome === 'replayed' && one.orderId === orderId);
      if (op !== 'cancel' || result !== 'ok' || !isNamed) continue;
      for (const { id, ...one } of this.#history)
        if (one.outcome === 'busy' && one.op === 'purchase' && one.saleId === saleId && one.userId === userId)
          if (one.invokedUs <= cancel.completedUs! && one.completedUs! >= cancel.invokedUs) this.forget(id);
    }
  }

  /** A customer may have been refused after passing an order on, and have it again: until a process notices, if Redis refuses. */
  #restsOnLostRows(invokedUs: number, completedUs: number): boolean {
    return this.#losses.some(({ sinceUs, untilUs, noticedUs }) => {
      const endsUs = this.#isMirrored ? noticedUs : untilUs;
      return sinceUs !== undefined && completedUs >= sinceUs && invokedUs <= endsUs;
    });
  }

  /**
   * Of what was on its way when Redis lost its data some was committed nevertheless. Redis did not know of it, so as many later answers had no
   * unit.
   */
  #excuseDisplaced(): void {
    for (const { sinceUs, untilUs, had, kept } of this.#losses) {
      if (sinceUs !== undefined) continue;
      for (const { saleId } of new Map(this.#history.map((one) => [one.saleId, one])).values()) {
        const ofSale = this.#history.filter((one) => one.saleId === saleId && one.op === 'purchase');
        const late = ofSale.filter(({ orderId }) => {
          const isLost = had.has(orderId ?? '') && !kept.has(orderId!);
          return isLost && (this.#committedUs.get(orderId!) ?? 0) > untilUs;
        });
        // By the request that placed it, not by a repeat.
        const orders = new Map(late.toReversed().map(({ orderId, units = 1 }) => [orderId, units]));
        // What the same customer was answered later names an order that gave way to the earlier one.
        const hasOne = new Set(late.map(({ userId }) => userId));
        // Each rejection takes at least one of the units that are too many.
        let units = [...orders.values()].reduce((sum, one) => sum + one, 0);
        const displaced = new Set<string | null>();
        for (const { id, orderId, userId, completedUs } of ofSale)
          if (
            (units > 0 || displaced.has(orderId) || hasOne.has(userId)) &&
            !had.has(orderId!) &&
            completedUs! > untilUs &&
            this.#ahead.has(id) &&
            !this.#committedUs.has(orderId!)
          ) {
            if (!hasOne.has(userId) && !displaced.has(orderId)) units--;
            displaced.add(orderId);
            this.forget(id);
          }
      }
    }
  }

  /** It proves nothing any more. */
  forget(id: number): void {
    this.#history[id] = { ...this.#history[id]!, outcome: 'unknown', result: 'info' };
  }
}

/** What was promised before, and how much of it a store still has. */
interface Loss {
  /** Undefined: only answers that came ahead of a commit are lost. */
  readonly sinceUs?: number;
  readonly untilUs: number;
  /** When every process knew of it. */
  noticedUs: number;
  /** What was reserved in Redis before. */
  readonly had: ReadonlySet<string>;
  readonly kept: Set<string>;
  readonly displaced: ReadonlySet<string>;
}
