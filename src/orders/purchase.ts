/**
 * One attempt, from the parsed request to its outcome: see the states in domain/outcome.ts. The strategy decides, and settlement.ts
 * commits what it has reserved. A code is presented before that (store/postgres/sale-groups.ts), so that the strategy knows whether the
 * customer may buy before the sale starts for all.
 */
import { uuidv7obj } from 'uuidv7';
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { limits } from '../config/limits.ts';
import type { Attempt } from '../domain/order.ts';
import type { Busy, Decision, Outcome, Result, Unknown } from '../domain/outcome.ts';
import type { AttemptTally } from '../metrics/attempt-tally.ts';
import { expectedPostgresFailure } from '../store/failures/postgres.ts';
import type { Presented, SaleGroups } from '../store/postgres/sale-groups.ts';
import type { Strategy } from '../strategies/strategy.ts';
import type { Settlement } from './settlement.ts';

export interface PurchaseContext {
  readonly strategy: Strategy;
  /** Null: the strategy commits by itself. */
  readonly settlement: Settlement | null;
  readonly shedder: LoadShedder;
  readonly tally: AttemptTally;
  readonly groups: Pick<SaleGroups, 'present'>;
}

/** What opens a sale to a customer before it starts for all: a code, or a ticket that was got with one. Null: nothing. */
export type Opening = { readonly code: string } | 'ticket' | null;

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
    opening?: Opening,
  ): Outcome | Promise<Outcome>;
  /** Waits for commits in the background. */
  idle(): Promise<void>;
}

export function createPurchases(context: PurchaseContext): Purchases {
  const { strategy, settlement, shedder, tally, groups } = context;
  const { knownSoldOut } = strategy;

  /** A second time if its state has changed meanwhile. */
  async function decide(attempt: Attempt): Promise<Outcome> {
    const decision = await strategy.decide(attempt);
    const result = settlement === null ? committed(decision) : await settlement.settle(decision);
    if (result.kind !== 'retry') return result;
    if (attempt.isAgain === true) return { kind: 'busy', reason: result.reason };
    return decide({ ...attempt, isAgain: true });
  }

  /** Decides an attempt whose customer may be early. */
  async function decideEarly(attempt: Attempt, opening: NonNullable<Opening>): Promise<Outcome> {
    if (opening !== 'ticket') {
      const presented = await present(groups, attempt, opening.code);
      if (presented.kind === 'ignored') return decide(attempt);
      if (presented.kind === 'invalid-code') {
        // A customer with an order is answered with it: one that was transferred to them came without a code.
        const outcome = await decide(attempt);
        return outcome.kind === 'not-open' ? presented : outcome;
      }
      if (presented.kind !== 'opens') return presented;
      if (presented.nowMs < presented.opensMs) return decide(attempt);
    }
    return decide({ ...attempt, isEarly: true });
  }

  async function admitted(
    { saleId, userId, quantity }: Omit<Attempt, 'orderId'>,
    opening: Opening,
    isAdmitted: true | Promise<boolean>,
    startedMs: number,
  ): Promise<Outcome> {
    if (isAdmitted !== true && !(await isAdmitted)) return counted(OVERLOADED, startedMs);
    try {
      const attempt = { saleId, userId, quantity, orderId: newOrderId(saleId) };
      const outcome = await (opening === null ? decide(attempt) : decideEarly(attempt, opening));
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
    attempt(saleId, userId, quantity, client = null, opening = null) {
      if (saleId > limits.maxSaleId) return { kind: 'unknown-sale' };
      const startedMs = performance.now();
      if (knownSoldOut?.isSoldOut(saleId, userId)) return counted(SOLD_OUT, startedMs);
      // Orders accepted ahead of their commit must not pile up without bound.
      const isAdmitted = settlement?.isBehind !== true && shedder.enter(client);
      if (isAdmitted === false) return counted(OVERLOADED, startedMs);
      return admitted({ saleId, userId, quantity }, opening, isAdmitted, startedMs);
    },
    idle: async () => settlement?.idle(),
  };
}

async function present(
  groups: PurchaseContext['groups'],
  { saleId, userId, orderId }: Attempt,
  code: string,
): Promise<Presented | Busy | Unknown> {
  try {
    return await groups.present(saleId, userId, code);
  } catch (error) {
    const { kind, reason } = expectedPostgresFailure(error);
    return kind === 'unknown' ? { kind, orderId, reason } : { kind: 'busy', reason };
  }
}

function committed(decision: Decision): Result {
  if (decision.kind === 'reserved' || decision.kind === 'held')
    throw new Error('a strategy without a mirror has made a reservation');
  return decision;
}

const SOLD_OUT: Outcome = { kind: 'sold-out' };
const OVERLOADED: Outcome = { kind: 'busy', reason: 'overloaded' };

const SALE_AT = 12;
/** Hexadecimal digits of the sale. */
const DIGITS = 8;

/**
 * The id of an order: a UUIDv7 whose last four bytes are the number of its sale. So an order that is not in Postgres yet is looked for in
 * one sale, and an id that never existed costs as little. 42 random bits are left for the orders of a sale within a millisecond.
 * @param saleId below 2^32
 */
function newOrderId(saleId: number): string {
  const id = uuidv7obj();
  new DataView(id.bytes.buffer, id.bytes.byteOffset).setUint32(SALE_AT, saleId);
  return id.toString();
}

/** The sale that an order id names; earlier versions and other programs make ids that name any sale, or none. */
export const saleOf = (orderId: string): number => Number.parseInt(orderId.slice(-DIGITS), 16);
