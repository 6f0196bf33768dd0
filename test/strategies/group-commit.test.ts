import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import type { Attempt } from '../../src/domain/order.ts';
import type { Decision } from '../../src/domain/outcome.ts';
import * as groupCommit from '../../src/strategies/postgres/group-commit.ts';
import type { Strategy } from '../../src/strategies/strategy.ts';
import { attemptOf } from '../support/attempts.ts';
import { sellPast, statementsOf, strategyBench, tally } from '../support/postgres-strategy.ts';

const bench = strategyBench({ withCheck: false });

const attempts = (saleId: number, count: number, prefix = 'u') =>
  Array.from({ length: count }, (_, i) => attemptOf(saleId, `${prefix}${i}`));

/** Reserves with as many batches of the sale in flight as may be, the first of which waits for the row, so that all others are gathered. */
async function gathered(saleId: number, first: readonly Attempt[], third: readonly Attempt[]) {
  const strategy = bench.start(groupCommit, bench.patient);
  return bench.during(
    (client) => client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [saleId]),
    async (end) => {
      const ahead = [strategy.decide(first[0]!)];
      await bench.waiters(1); // from now on the sale has batches; they share a connection
      for (const attempt of first.slice(1)) {
        ahead.push(strategy.decide(attempt));
        await setImmediate(); // the next is another batch
      }
      const batch = third.map((attempt) =>
        strategy.decide(attempt).catch(() => ({ kind: 'threw' as const })),
      );
      await end('ROLLBACK');
      await Promise.all(ahead);
      return Promise.all(batch);
    },
  );
}

/** As many as batches may be in flight: those behind them are gathered. */
const AHEAD = limits.commitInFlight;

it('rejects one member of fifty, and no other', async () => {
  await bench.sql.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN IF NEW.user_id = 'refused' THEN RAISE EXCEPTION 'refused for the test'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse();`);
  const saleId = await bench.sale(100);
  const members = attempts(saleId, 50);
  members[23] = attemptOf(saleId, 'refused');
  members[31] = { ...attemptOf(saleId, 'odd'), orderId: 'no uuid' }; // a defect
  const batch = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), members);
  await bench.sql.query('DROP TRIGGER refuse ON orders');
  const others: Record<number, string> = { 23: 'busy', 31: 'threw' };
  for (const [i, { kind }] of batch.entries()) expect(kind, String(i)).toBe(others[i] ?? 'accepted');
  expect(await bench.sold(saleId)).toBe(48 + AHEAD);
});

it('does not make a sale wait for the row of another one', async () => {
  const strategy = bench.start(groupCommit, bench.patient);
  const [held, free] = [await bench.sale(100), await bench.sale(100)];
  await bench.during(
    (client) => client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [held]),
    async (end) => {
      const waiting = attempts(held, 20).map((attempt) => strategy.decide(attempt));
      const sent = await statementsOf(async () => {
        const going = await Promise.all(attempts(free, 20).map((attempt) => strategy.decide(attempt)));
        expect(tally(going)).toEqual({ accepted: 20 });
      });
      expect(sent.length, 'statements').toBeLessThan(20);
      await end('ROLLBACK');
      expect(tally(await Promise.all(waiting))).toEqual({ accepted: 20 });
    },
  );
});

describe('beside another process that sells the same sale', () => {
  /** Time as the strategy sees it. It passes only here, so that a slow machine ends no hold. */
  async function pass(ms: number): Promise<void> {
    for (let n = 0; n < 2; n++) await setImmediate(); // what was answered has ended its batch, what was submitted is held back
    vi.mocked(performance.now).mockReturnValue(performance.now() + ms);
    await vi.advanceTimersByTimeAsync(ms);
  }
  afterEach(() => void vi.useRealTimers().restoreAllMocks());

  /** Decides each in another turn of the event loop: they may be in different batches. */
  async function decideInTurn(
    strategy: Strategy,
    attempts: readonly Attempt[],
  ): Promise<Promise<Decision>[]> {
    const answers: Promise<Decision>[] = [];
    for (const attempt of attempts) {
      answers.push(strategy.decide(attempt));
      await setImmediate();
    }
    return answers;
  }

  /** The other process sells a unit, and a statement of this one waits for the row for as long as a hold may be. */
  async function besideAnother(strategy: Strategy, attempt: Attempt): Promise<void> {
    await bench.during(
      (client) => sellPast(client, attemptOf(attempt.saleId, `past-${attempt.userId}`)),
      async (end) => {
        const answer = strategy.decide(attempt);
        await expect
          .poll(() => bench.sql.query(WAITED, [2 * limits.commitHoldMs]))
          .toHaveProperty('rowCount', 1);
        await end('COMMIT');
        expect(await answer).toMatchObject({ kind: 'accepted' });
      },
    );
  }
  const WAITED = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
    AND clock_timestamp() > query_start + make_interval(secs => $1 / 1000.0)`;

  async function startBesideAnother(saleId: number): Promise<Strategy> {
    vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const strategy = bench.start(groupCommit, bench.patient);
    await besideAnother(strategy, attemptOf(saleId, 'first'));
    await pass(limits.commitHoldMs);
    await besideAnother(strategy, attemptOf(saleId, 'second'));
    return strategy;
  }

  it('holds a batch back until the row may be free, and sends all that arrives meanwhile in one statement', async () => {
    const saleId = await bench.sale(200);
    const strategy = await startBesideAnother(saleId);
    const sent = await statementsOf(async () => {
      const answers = await decideInTurn(strategy, attempts(saleId, 20, 'early'));
      await pass(limits.commitHoldMs - 1);
      answers.push(...(await decideInTurn(strategy, attempts(saleId, 20, 'late'))));
      await pass(1);
      expect(tally(await Promise.all(answers))).toEqual({ accepted: 40 });
    });
    expect(sent).toEqual(['place-batch-of-sale']);
  });

  it('has one batch in progress, and several again when the other has ended', async () => {
    const saleId = await bench.sale(200);
    const strategy = await startBesideAnother(saleId);
    /** @returns how many batches of the sale wait for a row that is held */
    const sendWhileHeld = (prefix: string) =>
      bench.during(
        (client) => client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [saleId]),
        async (end) => {
          const answers: Promise<Decision>[] = [];
          const sent = await statementsOf(async () => {
            answers.push(strategy.decide(attemptOf(saleId, `${prefix}-0`)));
            await pass(limits.commitHoldMs);
            await bench.waiters(1);
            answers.push(...(await decideInTurn(strategy, attempts(saleId, AHEAD, prefix))));
          });
          await end('ROLLBACK');
          await answers[0];
          await pass(limits.commitHoldMs);
          expect(tally(await Promise.all(answers))).toEqual({ accepted: AHEAD + 1 });
          return sent.join().match(/place-batch-of-sale/g)?.length;
        },
      );
    expect(await sendWhileHeld('beside')).toBe(1);
    for (const attempt of attempts(saleId, 4, 'alone')) {
      const answer = strategy.decide(attempt);
      await pass(limits.commitHoldMs);
      await answer;
    }
    await strategy.decide(attemptOf(saleId, 'shared')); // changes the sale in a batch of any sales
    expect(await sendWhileHeld('again')).toBe(AHEAD);
    expect(await sendWhileHeld('still')).toBe(AHEAD);
  });
});
