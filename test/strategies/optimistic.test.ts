import { afterEach, expect, it, vi } from 'vitest';
import * as optimistic from '../../src/strategies/postgres/optimistic.ts';
import { attemptOf } from '../support/attempts.ts';
import { sellPast, statementsOf, strategyBench } from '../support/postgres-strategy.ts';

const bench = strategyBench({ withCheck: false });
afterEach(() => vi.restoreAllMocks());

/** Does something after each of the strategy's reads, before its compare-and-set. */
function afterEachLook(work: (look: number) => Promise<unknown>): void {
  const { pool } = bench.postgres;
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
  let looks = 0;
  vi.spyOn(pool, 'query').mockImplementation((async (...args: unknown[]) => {
    const result = await query(...args);
    if ((args[0] as { name?: string }).name === 'read-sale-and-orders') await work(++looks);
    return result;
  }) as never);
}
const change = (saleId: number) =>
  bench.sql.query('UPDATE sales SET version = version + 1 WHERE id = $1', [saleId]);

it('answers busy, not sold out, when every compare-and-set fails', async () => {
  const strategy = bench.start(optimistic);
  const saleId = await bench.sale(3);
  let lost = 0;
  afterEachLook((look) => {
    lost = look;
    return change(saleId);
  });
  expect(await strategy.decide(attemptOf(saleId, 'u'))).toEqual({ kind: 'busy', reason: 'contended' });
  expect(lost).toBeGreaterThan(10);
  expect(await bench.sold(saleId)).toBe(0);
});

it('sells when contention ends', async () => {
  const strategy = bench.start(optimistic);
  const saleId = await bench.sale(3);
  afterEachLook(async (look) => {
    if (look <= 5) await change(saleId);
  });
  expect((await strategy.decide(attemptOf(saleId, 'u'))).kind).toBe('accepted');
  expect(await bench.sold(saleId)).toBe(1);
});

it('does not sell on a stale read', async () => {
  const strategy = bench.start(optimistic);
  const saleId = await bench.sale(1);
  afterEachLook(async (look) => {
    if (look === 1) await sellPast(bench.sql, attemptOf(saleId, 'faster'));
  });
  const sent = await statementsOf(async () => {
    expect((await strategy.decide(attemptOf(saleId, 'slower'))).kind).toBe('sold-out');
  });
  expect(sent.filter((name) => name === 'sell-if-unchanged')).toHaveLength(1);
  expect(await bench.sold(saleId)).toBe(1);
});

it("finds the customer's concurrent order, even if the version has not changed", async () => {
  const strategy = bench.start(optimistic);
  const saleId = await bench.sale(5);
  const faster = attemptOf(saleId, 'same');
  afterEachLook(async (look) => {
    if (look > 1) return;
    await sellPast(bench.sql, faster);
    await bench.sql.query('UPDATE sales SET version = version - 1 WHERE id = $1', [saleId]);
  });
  expect(await strategy.decide(attemptOf(saleId, 'same'))).toMatchObject({
    kind: 'replayed',
    order: { orderId: faster.orderId },
  });
  expect(await bench.sold(saleId)).toBe(1);
});
