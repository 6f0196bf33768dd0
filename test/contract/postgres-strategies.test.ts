/** Strategies that decide in Postgres, without a service: on one pool, beside connections that lock, sell and close. */
import { describe, expect, it, vi } from 'vitest';
import { lockNumber } from '../../src/store/postgres/purchases.ts';
import * as advisoryLock from '../../src/strategies/postgres/advisory-lock.ts';
import * as optimistic from '../../src/strategies/postgres/optimistic.ts';
import { strategies } from '../../src/strategies/registry.ts';
import type { Strategy } from '../../src/strategies/strategy.ts';
import { attemptOf } from '../support/attempts.ts';
import { sellPast, statementsOf, strategyBench } from '../support/postgres-strategy.ts';

const bench = strategyBench({ withCheck: false });
const safe = [...strategies].filter(
  ([, { description }]) => description.store === 'postgres' && description.guarantees.neverOversells,
);
/** Strategies whose attempts wait for the transaction that holds the row of the sale. */
const waits = ['for-update', 'for-update-prisma', 'conditional-update', 'group-commit'];

describe.each(safe)('%s', (name, entry) => {
  type Start = Parameters<typeof bench.start>;
  const start = (store?: Start[1]) => bench.start(entry as unknown as Start[0], store) as Strategy;

  it('sends as many statements as its description says', async () => {
    const strategy = start();
    const saleId = await bench.sale(3);
    await strategy.decide(attemptOf(saleId, 'first')); // the pool connects
    const sent = await statementsOf(() => strategy.decide(attemptOf(saleId, 'second')));
    expect(sent).toHaveLength(entry.description.roundTrips as number);
  });

  it('goes on after the type of a column changed, on connections that have prepared its statements', async () => {
    const strategy = start();
    const saleId = await bench.sale(100);
    const sell = (users: readonly string[]) =>
      Promise.all(users.map((user) => strategy.decide(attemptOf(saleId, user))));
    await sell(Array.from({ length: 20 }, (_, i) => `before${i}`));
    const length = 21 + safe.findIndex(([other]) => other === name);
    await bench.sql.query(`ALTER TABLE orders ALTER COLUMN status TYPE varchar(${length})`);
    await bench.sql.query(`ALTER TABLE sales ALTER COLUMN name TYPE varchar(${200 + length})`);
    // One after the other: each meets a connection of the pool that has not failed yet.
    for (let i = 0; i < 20; i++) expect((await sell([`after${i}`, 'before0']))[0]!.kind).toBe('accepted');
  });

  if (!waits.includes(name)) return;

  it.each(['COMMIT', 'ROLLBACK'] as const)('reads the row again after the %s of its holder', async (how) => {
    const strategy = start(bench.patient);
    const saleId = await bench.sale(1);
    const outcome = await bench.during(
      (client) => sellPast(client, attemptOf(saleId, 'faster')),
      async (end) => {
        const reserving = strategy.decide(attemptOf(saleId, 'slower'));
        await bench.waiters(1);
        await end(how);
        return reserving;
      },
    );
    expect(outcome.kind).toBe(how === 'COMMIT' ? 'sold-out' : 'accepted');
    expect(await bench.sold(saleId)).toBe(1);
  });
});

it('advisory-lock sees units sold while it waited for the lock', async () => {
  const strategy = bench.start(advisoryLock, bench.patient);
  const saleId = await bench.sale(1);
  const sent = await statementsOf(() =>
    bench.during(
      async (client) => {
        await lockNumber(client, 'attempts', saleId);
        await sellPast(client, attemptOf(saleId, 'faster'));
      },
      async (end) => {
        const reserving = strategy.decide(attemptOf(saleId, 'slower'));
        await bench.waiters(1);
        await end('COMMIT');
        expect((await reserving).kind).toBe('sold-out');
      },
    ),
  );
  // It knew before it wrote, not because a write was rejected.
  expect(sent.join()).not.toContain('insert-order');
});

it('optimistic answers busy, not sold out, when every compare-and-set fails', async () => {
  const strategy = bench.start(optimistic);
  const saleId = await bench.sale(3);
  const { pool } = bench.postgres;
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
  let lost = 0;
  const spy = vi.spyOn(pool, 'query').mockImplementation((async (...args: unknown[]) => {
    const result = await query(...args);
    if ((args[0] as { name?: string }).name !== 'read-for-attempts') return result;
    lost++;
    await bench.sql.query('UPDATE sales SET version = version + 1 WHERE id = $1', [saleId]);
    return result;
  }) as never);
  expect(await strategy.decide(attemptOf(saleId, 'u'))).toEqual({ kind: 'busy', reason: 'contended' });
  spy.mockRestore();
  expect(lost).toBeGreaterThan(10);
  expect(await bench.sold(saleId)).toBe(0);
});
