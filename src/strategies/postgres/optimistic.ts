/**
 * `optimistic`: read the sale and its version, then count, insert and write the points in one statement, only if the version is
 * still the same.
 *
 *   read ──▶ rejected, or a repeat: answered
 *     │ a unit is free
 *     ▼
 *   compare and set ──same version──▶ sold
 *     └──another attempt was faster──▶ a short wait, longer each time ──▶ read again …, at most RETRIES times ──▶ busy
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { accepted } from '../../domain/outcome.ts';
import { insertIf, placeOne } from '../../store/postgres/insert-orders.ts';
import type { Tried } from '../kit/placing.ts';
import { postgresStrategy, readAnswer } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'optimistic',
  summary: 'Version column, compare and set, bounded retries with jitter.',
  store: 'postgres',
  usesLock: false,
  roundTrips: 2,
  guarantees: ALL_GUARANTEES,
};

/**
 * Retries of an attempt that lost the race. Retries make others lose, so the waits matter more than their number: they grow
 * until few of some hundred attempts on one sale are active at once. Together they take 2.3 s on average, about as long as
 * other strategies wait for the row lock.
 */
const RETRIES = 12;
/** The longest wait before the first retry; it doubles with each retry, up to MAX_WAIT_MS. */
const WAIT_MS = 32;
const MAX_WAIT_MS = 512;

const SELL_IF_UNCHANGED = insertIf('sell-if-unchanged', 'version = $7');

export function create(context: StrategyContext): Strategy {
  const { postgres } = context;

  async function place(attempt: Attempt): Promise<Tried> {
    for (let retries = 0; ; retries++) {
      const { answer, sale } = await readAnswer(postgres.pool, attempt);
      if (answer !== null) return answer;
      const others = [sale?.version];
      const placed = await placeOne(postgres, SELL_IF_UNCHANGED, attempt, context.paymentWindowS, others);
      if (placed !== false) return placed === true ? accepted(attempt) : placed;
      if (retries === RETRIES) return { kind: 'busy', reason: 'contended' };
      await sleep(Math.random() * Math.min(MAX_WAIT_MS, WAIT_MS * 2 ** retries));
    }
  }

  return postgresStrategy(context, description, place);
}
