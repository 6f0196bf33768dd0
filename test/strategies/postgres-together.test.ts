/** Strategies that decide in Postgres, on one sale at the same time: each keeps its guarantees, whatever the others do. */
import { expect, it } from 'vitest';
import type { Attempt } from '../../src/domain/order.ts';
import { stockUnits } from '../../src/store/postgres/stock-units.ts';
import * as advisoryLock from '../../src/strategies/postgres/advisory-lock.ts';
import * as conditionalUpdate from '../../src/strategies/postgres/conditional-update.ts';
import * as forUpdate from '../../src/strategies/postgres/for-update.ts';
import * as groupCommit from '../../src/strategies/postgres/group-commit.ts';
import * as optimistic from '../../src/strategies/postgres/optimistic.ts';
import * as skipLocked from '../../src/strategies/postgres/skip-locked.ts';
import * as uniqueKey from '../../src/strategies/postgres/unique-key.ts';
import { attemptOf } from '../support/attempts.ts';
import { closePast, strategyBench, tally } from '../support/postgres-strategy.ts';

const bench = strategyBench();
const entries = [forUpdate, uniqueKey, conditionalUpdate, optimistic, advisoryLock, skipLocked, groupCommit];

it('never oversells, counts every order, and strands nothing', async () => {
  const strategies = entries.map((entry) => bench.start(entry));
  const saleId = await bench.sale(60);
  await stockUnits(bench.postgres).complete(saleId);
  const closing: Promise<void>[] = [];
  const reserve = async (attempt: Attempt, i: number) => {
    const outcome = await strategies[i % strategies.length]!.decide(attempt);
    if (outcome.kind === 'accepted' && i % 5 === 0) closing.push(closePast(bench.sql, attempt));
    return outcome;
  };
  const outcomes = await Promise.all(
    Array.from({ length: 420 }, (_, i) => reserve(attemptOf(saleId, `u${i % 150}`), i)),
  );
  await Promise.all(closing);
  expect(
    Object.keys(tally(outcomes)).filter((kind) => !/accepted|replayed|sold-out|busy/.test(kind)),
  ).toEqual([]);
  // Each strategy alone sells what is left.
  for (const [i, strategy] of strategies.entries()) {
    const left = 60 - (await bench.sold(saleId));
    const attempts = Array.from({ length: left }, (_, j) => attemptOf(saleId, `late${i}-${j}`));
    for (const attempt of attempts) expect((await strategy.decide(attempt)).kind).toBe('accepted');
    expect((await strategy.decide(attemptOf(saleId, `none${i}`))).kind).toBe('sold-out');
    for (const attempt of attempts.slice(0, 5)) await closePast(bench.sql, attempt);
    if (left === 0) for (const past of await oldest(saleId, 5)) await closePast(bench.sql, past);
  }
});

it.each(entries.map((entry, n) => [entry.description.name, entry, 21 + n] as const))(
  '%s goes on after the type of a column changed, on connections that have prepared its statements',
  async (_name, entry, length) => {
    const strategy = bench.start(entry);
    const saleId = await bench.sale(100);
    await stockUnits(bench.postgres).complete(saleId);
    const sell = (users: readonly string[]) =>
      Promise.all(users.map((user) => strategy.decide(attemptOf(saleId, user))));
    await sell(Array.from({ length: 20 }, (_, i) => `before${i}`));
    await bench.sql.query(`ALTER TABLE orders ALTER COLUMN status TYPE varchar(${length})`);
    await bench.sql.query(`ALTER TABLE sales ALTER COLUMN name TYPE varchar(${200 + length})`);
    // One after the other: each meets a connection of the pool that has not failed yet.
    for (let i = 0; i < 20; i++) expect((await sell([`after${i}`, 'before0']))[0]!.kind).toBe('accepted');
  },
);

async function oldest(saleId: number, count: number): Promise<readonly Attempt[]> {
  const { rows } = await bench.sql.query<Attempt>(
    `SELECT id AS "orderId", sale_id AS "saleId", user_id AS "userId" FROM orders
     WHERE sale_id = $1 AND status = 'pending' ORDER BY created_at LIMIT $2`,
    [saleId, count],
  );
  return rows;
}
