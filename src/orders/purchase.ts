/**
 * One attempt, from the parsed request to its outcome: see the states in domain/outcome.ts. The strategy decides, and settlement.ts
 * commits what it has reserved.
 */
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { limits } from '../config/limits.ts';
import type { Attempt } from '../domain/order.ts';
import type { Decision, Outcome, Result } from '../domain/outcome.ts';
import type { AttemptTally } from '../metrics/attempt-tally.ts';
import type { Strategy } from '../strategies/strategy.ts';
import { newOrderId } from './order-id.ts';
import type { Settlement } from './settlement.ts';

export interface PurchaseContext {
  readonly strategy: Strategy;
  /** Null: the strategy commits by itself. */
  readonly settlement: Settlement | null;
  readonly shedder: LoadShedder;
  readonly tally: AttemptTally;
}

export interface Purchases {
  /**
   * Makes one attempt. The outcome is returned synchronously when no store is needed.
   * @param quantity units, all or none
   * @param client the client whose share of the queue it uses; null: callers are trusted
   * @throws (or rejects) for a defect only
   */
  attempt(
    saleId: number,
    userId: string,
    quantity: number,
    client?: string | null,
  ): Outcome | Promise<Outcome>;
  /** Waits for commits in the background. */
  idle(): Promise<void>;
}

export function createPurchases({ strategy, settlement, shedder, tally }: PurchaseContext): Purchases {
  const { knownSoldOut } = strategy;
  const decideOnce = async (attempt: Attempt) => {
    const decision = await strategy.decide(attempt);
    return settlement === null ? committed(decision) : settlement.settle(decision);
  };

  async function decide(attempt: Attempt): Promise<Outcome> {
    let outcome = await decideOnce(attempt);
    if (outcome.kind === 'retry') outcome = await decideOnce(attempt);
    return outcome.kind === 'retry' ? { kind: 'busy', reason: outcome.reason } : outcome;
  }

  async function admitted(
    { saleId, userId, quantity }: Omit<Attempt, 'orderId'>,
    isAdmitted: true | Promise<boolean>,
    startedMs: number,
  ): Promise<Outcome> {
    if (isAdmitted !== true && !(await isAdmitted)) return counted(OVERLOADED, startedMs);
    try {
      const outcome = await decide({ saleId, userId, quantity, orderId: newOrderId(saleId) });
      if (outcome.kind === 'sold-out') knownSoldOut?.markSoldOut(saleId);
      return counted(outcome, startedMs);
    } finally {
      shedder.leave();
    }
  }

  function counted(outcome: Outcome, startedMs: number): Outcome {
    tally.add(outcome.kind, performance.now() - startedMs);
    return outcome;
  }

  return {
    attempt(saleId, userId, quantity, client = null) {
      if (saleId > limits.maxSaleId) return { kind: 'unknown-sale' };
      const startedMs = performance.now();
      if (knownSoldOut?.isSoldOut(saleId, userId)) return counted(SOLD_OUT, startedMs);
      // Orders accepted ahead of their commit must not pile up without bound.
      const isAdmitted = settlement?.isBehind !== true && shedder.enter(client);
      if (isAdmitted === false) return counted(OVERLOADED, startedMs);
      return admitted({ saleId, userId, quantity }, isAdmitted, startedMs);
    },
    idle: async () => settlement?.idle(),
  };
}

function committed(decision: Decision): Result {
  if (decision.kind === 'reserved' || decision.kind === 'held')
    throw new Error('a strategy without a mirror has made a reservation');
  return decision;
}

const SOLD_OUT: Outcome = { kind: 'sold-out' };
const OVERLOADED: Outcome = { kind: 'busy', reason: 'overloaded' };
