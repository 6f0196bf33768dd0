/**
 * `group-commit`: attempts on one sale that come at the same time are decided by one statement, which is one commit.
 * It locks the row of the sale, gives the free units to the first that came, inserts their orders and points, and
 * counts them.
 *
 *   attempt ──▶ gathered (see batches.ts) ──▶ placed ──▶ accepted, committed with the answer
 *                                               └─ not placed ──▶ one look for all of these: refused, or a repeat
 *                                                                   └─ a unit is free ──▶ once more with the others
 *                                                                      of the batch that were not placed
 *
 * A customer who is in a batch twice meets the unique index with the second one, and so does an attempt whose first
 * answer was lost with the connection; the look finds their orders. Nobody is told "sold out" but by the look. A batch
 * that is refused because of a member goes again in halves.
 *
 * A batch holds attempts on one sale, because the row of the sale is all that they wait for: batches then never wait for
 * each other crosswise, and a sale whose row somebody holds keeps no other from selling. The price is that many sales
 * with few attempts each are committed one by one, but these have nothing to wait for either.
 */

import { microBatcher } from '../../concurrency/micro-batcher.ts';
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { ACTIVE } from '../../store/postgres/orders.ts';
import { blamesRows, classifyPostgresError } from '../../store/postgres/pool.ts';
import {
  EARN,
  OPEN,
  type PlacedRow,
  place as placeOrders,
  readPlaced,
  readSaleAndOrders,
  selectPlaced,
} from '../../store/postgres/purchases.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';
import { accepted, classify, type Decision, postgresStrategy } from './base.ts';

export const description: StrategyDescription = {
  name: 'group-commit',
  summary: 'Attempts gathered in the process, one statement and one commit for the batch.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 1,
  guarantees: ALL_GUARANTEES,
};

/**
 * The row is locked as an UPDATE of `sold` locks it, so that foreign keys to it are checked meanwhile. Having waited for
 * it, `sale` holds it as it is now; the rest of the statement sees the tables as they were, but the unique index does not.
 * A sale that has nothing to sell is not locked. A customer who is seen to have an order takes no place, and is not
 * inserted to see it fail: when that order is just being cancelled, an INSERT would wait for that, with the row held.
 */
const PLACE = `
  WITH sale AS (
    SELECT id, price_cents, stock - sold AS free FROM sales WHERE id = $1 AND sold < stock AND ${OPEN}
    FOR NO KEY UPDATE
  ), newcomers AS (
    SELECT a.id, a.user_id, row_number() OVER (ORDER BY a.place) AS place
    FROM unnest($2::uuid[], $3::text[]) WITH ORDINALITY AS a (id, user_id, place)
    LEFT JOIN LATERAL (
      SELECT id FROM orders WHERE sale_id = $1 AND orders.user_id = a.user_id AND ${ACTIVE} LIMIT 1
    ) AS o ON true
    WHERE o.id IS NULL
  ), placed AS (
    INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
    SELECT n.id, sale.id, n.user_id, 'pending', price_cents, now() + make_interval(secs => $4)
    FROM sale CROSS JOIN newcomers AS n
    WHERE place <= free
    ORDER BY place
    ON CONFLICT DO NOTHING
    RETURNING id, user_id, price_cents
  ), counted AS (
    UPDATE sales SET sold = sold + c.units * before_deadline($5), version = version + 1
    FROM (SELECT count(*)::int AS units FROM placed) AS c
    WHERE sales.id = $1 AND c.units > 0
  ), earned AS (${EARN})
  ${selectPlaced('$2::uuid[]')}`;

export function create(context: StrategyContext): Strategy {
  const { pool } = context.postgres;

  /** @returns whether an order was placed */
  async function place(saleId: number, attempts: readonly Attempt[]): Promise<(orderId: string) => boolean> {
    const ids = attempts.map(({ orderId }) => orderId);
    const users = attempts.map(({ userId }) => userId);
    const { rows } = await placeOrders<PlacedRow>(context.postgres, {
      name: 'place-batch',
      text: PLACE,
      values: [saleId, ids, users, context.paymentWindowS],
    });
    return readPlaced(rows);
  }

  /** One round; those that would get a unit by now go into another one, unless this one has decided nobody. */
  async function decide(saleId: number, batch: readonly Attempt[], answer: Answer): Promise<void> {
    const isPlaced = await place(saleId, batch);
    for (const attempt of batch) if (isPlaced(attempt.orderId)) answer(attempt, accepted(attempt));
    const rest = batch.filter(({ orderId }) => !isPlaced(orderId));
    if (rest.length === 0) return;
    const users = rest.map(({ userId }) => userId);
    const seen = await readSaleAndOrders(pool, saleId, users);
    const decisions = rest.map((attempt) => [attempt, classify(attempt, seen)] as const);
    const again = decisions.filter(([, { kind }]) => kind === 'again');
    const goOn = again.length < batch.length;
    for (const [attempt, decision] of decisions) {
      if (decision.kind !== 'again' || !goOn) answer(attempt, decision);
    }
    if (goOn && again.length > 0)
      await decide(
        saleId,
        again.map(([attempt]) => attempt),
        answer,
      );
  }

  const { submit } = microBatcher<Attempt, Decision>({
    work: decide,
    maxBatch: limits.commitBatchSize,
    inFlight: limits.commitInFlight,
    eagerBelow: limits.batchEagerBelow,
    maxQueued: limits.commitQueue,
    waitMs: limits.commitWaitMs,
    onBatch: context.onBatch,
    rejected: (reason) => ({ kind: 'busy', reason }),
    isMemberError,
  });
  const strategy = postgresStrategy(context, description, (attempt) => submit(attempt.saleId, attempt));
  return { ...strategy, maxBatch: limits.commitBatchSize };
}

type Answer = (attempt: Attempt, decision: Decision) => void;

/** A constraint or a trigger may refuse a single member; so may a defect be a single member's. */
function isMemberError(error: unknown): boolean {
  try {
    classifyPostgresError(error);
    return blamesRows(error);
  } catch {
    return true;
  }
}
