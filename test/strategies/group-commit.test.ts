import { setImmediate } from 'node:timers/promises';
import pg from 'pg';
import { afterEach, expect, it, vi } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import type { Attempt } from '../../src/domain/order.ts';
import * as groupCommit from '../../src/strategies/postgres/group-commit.ts';
import { attemptOf } from '../support/attempts.ts';
import { sellPast, statementsOf, strategyBench, tally } from '../support/postgres-strategy.ts';

const bench = strategyBench({ withCheck: false });
afterEach(() => vi.restoreAllMocks());

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
      const batch = third.map((attempt) => strategy.decide(attempt));
      await end('ROLLBACK');
      return { ahead: await Promise.all(ahead), batch: await Promise.all(batch) };
    },
  );
}

type Query = { readonly name?: string; readonly values?: readonly unknown[] };

/** Fails the first query of that name, before it is sent or after. @param which selects the query; by default any */
function failOnce(
  name: string,
  when: 'before' | 'after',
  error: Error,
  which: (query: Query) => boolean = () => true,
): { readonly hasFailed: () => boolean } {
  type Callback = (error: Error | null, result?: unknown) => void;
  const { query } = pg.Client.prototype as unknown as { query(sent: Query, ...others: unknown[]): unknown };
  let failed = false;
  vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
    this: unknown,
    sent: Query,
    ...others: unknown[]
  ) {
    const fails = !failed && sent.name === name && which(sent);
    if (!fails) return query.call(this, sent, ...others);
    failed = true;
    const callback = others.pop() as Callback;
    if (when === 'before') return process.nextTick(callback, error);
    return query.call(this, sent, ...others, () => callback(error));
  } as never);
  return { hasFailed: () => failed };
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
  const { batch } = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), members);
  await bench.sql.query('DROP TRIGGER refuse ON orders');
  for (const [i, { kind }] of batch.entries()) expect(kind, String(i)).toBe(i === 23 ? 'busy' : 'accepted');
  expect(await bench.sold(saleId)).toBe(49 + AHEAD);
});

it('isolates a member with an unexpected error', async () => {
  const saleId = await bench.sale(100);
  const strategy = bench.start(groupCommit);
  const odd = { ...attemptOf(saleId, 'odd'), orderId: 'no uuid' };
  const deciding = [...attempts(saleId, 20), odd].map((attempt) => strategy.decide(attempt));
  const ends = await Promise.allSettled(deciding);
  expect(ends.map((end) => (end.status === 'rejected' ? 'rejected' : end.value.kind))).toEqual([
    ...Array(20).fill('accepted'),
    'rejected',
  ]);
});

it('does not make a sale wait for the row of another one', async () => {
  const strategy = bench.start(groupCommit, bench.patient);
  const [held, free] = [await bench.sale(100), await bench.sale(100)];
  await bench.during(
    (client) => client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [held]),
    async (end) => {
      const waiting = attempts(held, 20).map((attempt) => strategy.decide(attempt));
      const going = await Promise.all(attempts(free, 20).map((attempt) => strategy.decide(attempt)));
      expect(tally(going)).toEqual({ accepted: 20 });
      await end('ROLLBACK');
      expect(tally(await Promise.all(waiting))).toEqual({ accepted: 20 });
    },
  );
});

/**
 * Attempts that arrive while no order can be inserted.
 * @param waiters statements that wait for that at once, each on a connection
 * @returns how often each statement was sent
 */
async function gatheredByTable(tried: readonly Attempt[], waiters = 1): Promise<Record<string, number>> {
  const strategy = bench.start(groupCommit, bench.patient);
  const sent = await statementsOf(() =>
    bench.during(
      (client) => client.query('LOCK TABLE orders IN SHARE MODE'),
      async (end) => {
        const outcomes = tried.map((attempt) => strategy.decide(attempt));
        await bench.waiters(waiters);
        await end('ROLLBACK');
        expect(tally(await Promise.all(outcomes))).toEqual({ accepted: tried.length });
      },
    ),
  );
  return tally(sent.flatMap((statements) => statements.split(', ')).map((kind) => ({ kind })));
}

it.each([1, 20])('commits concurrent attempts on %i sales with few statements', async (sales) => {
  const saleIds = await Promise.all(Array.from({ length: sales }, () => bench.sale(60)));
  const sent = await gatheredByTable(saleIds.flatMap((saleId) => attempts(saleId, 60 / sales)));
  expect(sent['place-batch']).toBe(limits.commitInFlight);
  expect(sent).not.toHaveProperty('place-batch-of-sale');
  expect(sent).not.toHaveProperty('read-sale-and-orders');
  for (const saleId of saleIds) expect(await bench.sold(saleId)).toBe(60 / sales);
});

it('sends a sale with many attempts separately, so that others do not queue behind them', async () => {
  const [busy, quiet] = [await bench.sale(600), await bench.sale(1)];
  const sent = await gatheredByTable([...attempts(busy, 600), ...attempts(quiet, 1)], 2);
  expect(sent['place-batch-of-sale']).toBeGreaterThan(1);
  expect(await bench.sold(busy)).toBe(600);
  expect(await bench.sold(quiet)).toBe(1);
});

it('does not wait for a cancellation in progress', async () => {
  const saleId = await bench.sale(20);
  const old = attemptOf(saleId, 'cancelling');
  await sellPast(bench.sql, old);
  const strategy = bench.start(groupCommit);
  await bench.during(
    (client) => client.query(`UPDATE orders SET status = 'cancelled' WHERE id = $1`, [old.orderId]),
    async () => {
      const users = ['a', 'b', 'cancelling', 'c'];
      const outcomes = await Promise.all(users.map((user) => strategy.decide(attemptOf(saleId, user))));
      expect(outcomes.map(({ kind }) => kind)).toEqual(['accepted', 'accepted', 'replayed', 'accepted']);
    },
  );
});

it('finds its orders when the answer of the commit was lost', async () => {
  const saleId = await bench.sale(100);
  const { hasFailed } = failOnce(
    'place-batch-of-sale',
    'after',
    Object.assign(new Error('lost'), { code: 'ECONNRESET' }),
  );
  const { ahead, batch } = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), attempts(saleId, 30));
  expect(hasFailed()).toBe(true);
  expect(tally([...ahead, ...batch])).toEqual({ accepted: 30 + AHEAD });
  expect(await bench.sold(saleId)).toBe(30 + AHEAD);
});

it('keeps its orders when the read for the others fails', async () => {
  const saleId = await bench.sale(3 + AHEAD);
  const { hasFailed } = failOnce(
    'read-sale-and-orders',
    'before',
    Object.assign(new Error('no connection'), { code: '53300', severity: 'FATAL' }),
    ({ values }) => (values![1] as string[]).length > 1,
  );
  const { ahead, batch } = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), attempts(saleId, 8));
  expect(hasFailed()).toBe(true);
  expect(tally([...ahead, ...batch]).accepted).toBe(3 + AHEAD);
  const { accepted: placed = 0, ...others } = tally(batch);
  expect(others).toEqual({ busy: 8 - placed });
  expect(await bench.sold(saleId)).toBe(3 + AHEAD);
});
