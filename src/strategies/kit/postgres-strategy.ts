/**
 * What the strategies that decide in Postgres share: they commit order, count and points by themselves, in rounds (placing.ts), and a
 * restock is one transaction.
 */
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { beyondLimit, type Result, shortage } from '../../domain/outcome.ts';
import { once } from '../../store/postgres/idempotency.ts';
import { readFor, type SaleState } from '../../store/postgres/purchases.ts';
import type { LocksFirst, Strategy, StrategyContext } from '../strategy.ts';
import { existing, placeInRounds, RETRY, type Tried } from './placing.ts';
import { restocked } from './restock.ts';
import { soldOutLatch } from './sold-out-latch.ts';

/**
 * Builds a strategy from its decision.
 * @param place one try in Postgres with one attempt; it may throw what Postgres throws
 */
export function postgresStrategy(
  context: StrategyContext,
  description: StrategyDescription,
  place: (attempt: Attempt) => Promise<Tried>,
  locksFirst: LocksFirst = 'sale',
): Strategy {
  async function decide(attempt: Attempt): Promise<Result> {
    let result: Result = RETRY;
    await placeInRounds<Attempt>(context.postgres, [{ order: attempt, unanswered: null }], {
      async place() {
        const tried = await place(attempt);
        return () => tried;
      },
      rejectionOf,
      answer(_, answer) {
        result = answer;
      },
    });
    return result;
  }
  return strategyOf(context, description, decide, locksFirst);
}

/** The same, from what decides an attempt for good. */
export function strategyOf(
  { postgres, sales, orders, onError }: StrategyContext,
  description: StrategyDescription,
  decide: (attempt: Attempt) => Promise<Result>,
  locksFirst: LocksFirst = 'sale',
): Strategy {
  const knownSoldOut = soldOutLatch({ states: sales.soldOut, customers: orders.customers }, onError);
  return {
    description,
    locksFirst,
    maxBatch: 1,
    mirror: null,
    knownSoldOut,
    decide,
    async restock(saleId, units, key = null) {
      const result = await once(postgres, key, async (client) =>
        restocked(await sales.restock(saleId, units, false, client)),
      );
      knownSoldOut.forget(saleId);
      return result;
    },
  };
}

/** Why the sale cannot sell as many units; null if it can. */
export function rejectionOf(sale: SaleState | null, { quantity, isEarly }: Attempt): Result | null {
  if (sale === null) return { kind: 'unknown-sale' };
  if (sale.paused) return { kind: 'not-open', reason: 'paused' };
  if (sale.notStarted && isEarly !== true) return { kind: 'not-open', reason: 'not-started' };
  if (sale.ended) return { kind: 'not-open', reason: 'ended' };
  const { free, maxPerOrder } = sale;
  if (quantity > maxPerOrder) return { kind: 'over-limit', maxPerOrder };
  return shortage(free, quantity) ?? beyondLimit(sale, quantity);
}

/** Reads what answers an attempt: the customer's order, or why there is none. */
export async function readAnswer(
  db: Parameters<typeof readFor>[0],
  attempt: Attempt,
): Promise<{ readonly answer: Result | null; readonly sale: SaleState | null }> {
  const [seen] = await readFor(db, [attempt]);
  const { sale, own, active } = seen!;
  const order = own ?? active;
  return { answer: order === null ? rejectionOf(sale, attempt) : existing(attempt, order), sale };
}
