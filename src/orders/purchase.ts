/**
 * One attempt, from the parsed request to its outcome: see the states in domain/outcome.ts. The strategy decides. A Postgres
 * strategy has then committed; the reservation of a Redis strategy goes through settlement.ts.
 */
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { limits } from '../config/limits.ts';
import type { Attempt } from '../domain/order.ts';
import type { Outcome } from '../domain/outcome.ts';
import type { AttemptTally } from '../metrics/attempt-tally.ts';
import { SUPERSEDED } from '../store/postgres/failures.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { CommittingStrategy, ReservingStrategy } from '../strategies/strategy.ts';
import type { OrderCommitter } from './order-committer.ts';
import { newOrderId } from './order-id.ts';
import { createSettlement } from './settlement.ts';

/** A strategy, and the settlement that commits its reservations. */
export type Pipeline =
  | { readonly strategy: CommittingStrategy; readonly committer: null }
  | { readonly strategy: ReservingStrategy; readonly committer: OrderCommitter };

export interface PurchaseContext {
  readonly pipeline: Pipeline;
  readonly postgres: PostgresStore;
  readonly orders: OrderTable;
  readonly confirm: 'durable' | 'accepted';
  readonly shedder: LoadShedder;
  readonly tally: AttemptTally;
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

export interface Purchases {
  /**
   * Makes one attempt. The outcome is returned synchronously when no store is needed.
   * @param client the client whose share of the queue it uses; null: callers are trusted
   * @throws (or rejects) for a defect only
   */
  attempt(saleId: number, userId: string, client?: string | null): Outcome | Promise<Outcome>;
  /** Waits for commits in the background. */
  idle(): Promise<void>;
}

export function createPurchases(context: PurchaseContext): Purchases {
  const { pipeline, shedder, tally } = context;
  const { strategy, committer } = pipeline;
  const latch = strategy.kind === 'reserves' ? strategy.latch : undefined;
  const isAheadOfCommits = () =>
    context.confirm === 'accepted' && committer !== null && committer.waiting >= limits.acceptedBacklog;
  const { decide, idle } = deciderOf(context);

  async function admitted(
    saleId: number,
    userId: string,
    isAdmitted: true | Promise<boolean>,
    startedMs: number,
  ): Promise<Outcome> {
    if (isAdmitted !== true && !(await isAdmitted)) return counted(OVERLOADED, startedMs);
    try {
      return counted(await decide({ saleId, userId, orderId: newOrderId(saleId) }), startedMs);
    } finally {
      shedder.leave();
    }
  }

  function counted(outcome: Outcome, startedMs: number): Outcome {
    tally.add(outcome.kind, performance.now() - startedMs);
    return outcome;
  }

  return {
    attempt(saleId, userId, client = null) {
      if (saleId > limits.maxSaleId) return { kind: 'unknown-sale' };
      const startedMs = performance.now();
      if (latch?.isSoldOut(saleId, userId)) return counted(SOLD_OUT, startedMs);
      // Orders accepted ahead of their commit must not pile up without bound.
      const isAdmitted = !isAheadOfCommits() && shedder.enter(client);
      if (isAdmitted === false) return counted(OVERLOADED, startedMs);
      return admitted(saleId, userId, isAdmitted, startedMs);
    },
    idle,
  };
}

function deciderOf({ pipeline, ...context }: PurchaseContext): {
  readonly decide: (attempt: Attempt) => Promise<Outcome>;
  readonly idle: () => Promise<void>;
} {
  const { committer, strategy } = pipeline;
  if (committer === null) {
    return {
      async decide(attempt) {
        const outcome = await strategy.reserve(attempt);
        return outcome.kind === 'accepted' ? { ...outcome, durable: true } : outcome;
      },
      async idle() {},
    };
  }
  const settlement = createSettlement({ ...context, mirror: strategy.mirror, committer });
  const decide = async (attempt: Attempt) => settlement.settle(await strategy.reserve(attempt));
  return {
    async decide(attempt) {
      const outcome = await decide(attempt);
      const isSuperseded = outcome.kind === 'busy' && outcome.reason === SUPERSEDED;
      // The copy of the sale that was loaded since decides: Redis was promoted, or the sale's slot moved.
      return isSuperseded ? decide(attempt) : outcome;
    },
    idle: () => settlement.idle(),
  };
}

const SOLD_OUT: Outcome = { kind: 'sold-out' };
const OVERLOADED: Outcome = { kind: 'busy', reason: 'overloaded' };
