import { expect, it } from 'vitest';
import { inTransaction } from '../../src/store/postgres/pool.ts';
import { lockNumber } from '../../src/store/postgres/purchases.ts';
import * as advisoryLock from '../../src/strategies/postgres/advisory-lock.ts';
import { attemptOf } from '../support/attempts.ts';
import { sellPast, statementsOf, strategyBench } from '../support/postgres-strategy.ts';

const bench = strategyBench();

it('runs under READ COMMITTED, which it needs', async () => {
  const level = await inTransaction(bench.postgres.pool, async (client) => {
    const { rows } = await client.query('SHOW transaction_isolation');
    return { commit: false, value: rows[0].transaction_isolation as string };
  });
  expect(level).toBe('read committed');
});

it('sees units sold while it waited for the lock', async () => {
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
  // It knew before it wrote, not because the CHECK rejected a write.
  expect(sent).not.toContain('insert-order');
  expect(sent.filter((name) => name === 'read-sale-and-orders')).toHaveLength(1);
});

it('waits for its own sale only, not for other advisory locks', async () => {
  const strategy = bench.start(advisoryLock, bench.patient);
  const [held, free] = [await bench.sale(1), await bench.sale(1)];
  await bench.during(
    async (client) => {
      await lockNumber(client, 'attempts', held);
      await lockNumber(client, 'units', free);
      // Locks with one key of 64 bits: the sale's number, and both of the strategy's keys together.
      const { rows } = await client.query<{ key: string }>(
        `SELECT ((classid::bigint << 32) | $1::bigint)::text AS key FROM pg_locks WHERE locktype = 'advisory'`,
        [free],
      );
      for (const key of [String(free), ...rows.map((row) => row.key)])
        await client.query('SELECT pg_advisory_xact_lock($1::bigint)', [key]);
    },
    async (end) => {
      const waiting = strategy.decide(attemptOf(held, 'u'));
      await bench.waiters(1);
      expect((await strategy.decide(attemptOf(free, 'u'))).kind).toBe('accepted');
      await end('ROLLBACK');
      expect((await waiting).kind).toBe('accepted');
    },
  );
});

it('answers busy if the lock is not granted in time, and has written nothing', async () => {
  const strategy = bench.start(advisoryLock);
  const saleId = await bench.sale(1);
  await bench.during(
    (client) => lockNumber(client, 'attempts', saleId),
    async () => {
      const outcome = await strategy.decide(attemptOf(saleId, 'u'));
      expect(outcome).toEqual({ kind: 'busy', reason: 'lock-timeout' });
    },
  );
  expect(await bench.sold(saleId)).toBe(0);
  expect((await strategy.decide(attemptOf(saleId, 'u'))).kind).toBe('accepted');
});
