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

it('sells a lone attempt at once, with one statement', async () => {
  const strategy = bench.start(groupCommit);
  const saleId = await bench.sale(3);
  await strategy.decide(attemptOf(saleId, 'first'));
  const sent = await statementsOf(() => strategy.decide(attemptOf(saleId, 'second')));
  expect(sent).toEqual(['place-batch']);
  expect(sent).toHaveLength(groupCommit.description.roundTrips);
});

it('sells the last units to the first attempts', async () => {
  const saleId = await bench.sale(12);
  const { ahead, batch } = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), attempts(saleId, 40));
  const left = 12 - (tally(ahead).accepted ?? 0);
  expect(batch.map(({ kind }) => kind)).toEqual(batch.map((_, i) => (i < left ? 'accepted' : 'sold-out')));
  expect(await bench.sold(saleId)).toBe(12);
});

it("places one order for a customer who is in a batch twice, at no other customer's cost", async () => {
  const saleId = await bench.sale(4 + AHEAD);
  const [one, again, ...others] = ['twice', 'twice', 'a', 'b', 'c', 'd'].map((user) =>
    attemptOf(saleId, user),
  );
  const { batch } = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), [one!, again!, ...others]);
  // Four units are left: the second 'twice' takes none.
  expect(batch.map(({ kind }) => kind)).toEqual([
    'accepted',
    'replayed',
    'accepted',
    'accepted',
    'accepted',
    'sold-out',
  ]);
  expect(batch[1]).toMatchObject({ order: { orderId: one!.orderId } });
  expect(await bench.sold(saleId)).toBe(4 + AHEAD);
});

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
  const members = attempts(saleId, 20);
  const odd = { ...attemptOf(saleId, 'odd'), orderId: 'no uuid' };
  const ends = await Promise.allSettled([...members, odd].map((attempt) => strategy.decide(attempt)));
  expect(ends.at(-1)!.status).toBe('rejected');
  expect(ends.slice(0, -1).every((end) => end.status === 'fulfilled' && end.value.kind === 'accepted')).toBe(
    true,
  );
});

it('answers each member for itself: repeats, orders of others, a sale that ends', async () => {
  const saleId = await bench.sale(3);
  const earlier = attemptOf(saleId, 'earlier');
  await sellPast(bench.sql, earlier);
  const { ahead, batch } = await gathered(saleId, attempts(saleId, AHEAD, 'ahead'), [
    attemptOf(saleId, 'earlier'),
    attemptOf(saleId, 'late'),
  ]);
  expect(batch[0]).toMatchObject({ kind: 'replayed', order: { orderId: earlier.orderId } });
  expect(tally([...ahead, batch[1]!])).toEqual({ accepted: 2, 'sold-out': AHEAD - 1 });
  const strategy = bench.start(groupCommit);
  expect(await strategy.decide(attemptOf(999_999, 'u'))).toEqual({ kind: 'unknown-sale' });
  await bench.sql.query('UPDATE sales SET stock = 9, ends_at = now() WHERE id = $1', [saleId]);
  expect(await strategy.decide(attemptOf(saleId, 'u'))).toEqual({ kind: 'not-open', reason: 'ended' });
});

it.each(['COMMIT', 'ROLLBACK'] as const)(
  'judges by the row as it is after the %s of its holder',
  async (how) => {
    const strategy = bench.start(groupCommit, bench.patient);
    const saleId = await bench.sale(3);
    const outcomes = await bench.during(
      async (client) => {
        for (const user of 'xy') await sellPast(client, attemptOf(saleId, user));
      },
      async (end) => {
        const reserving = ['a', 'b', 'x'].map((user) => strategy.decide(attemptOf(saleId, user)));
        await bench.waiters(1);
        await end(how);
        return Promise.all(reserving);
      },
    );
    if (how === 'COMMIT') {
      expect(tally(outcomes.slice(0, 2))).toEqual({ accepted: 1, 'sold-out': 1 });
      expect(outcomes[2]!.kind).toBe('replayed');
    } else expect(tally(outcomes)).toEqual({ accepted: 3 });
    expect(await bench.sold(saleId)).toBe(3);
  },
);

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

it('loses and doubles nothing when connections are killed in the middle of batches', async () => {
  const strategy = bench.start(groupCommit);
  const saleId = await bench.sale(1_000_000);
  const kill = `SELECT count(pg_terminate_backend(pid))::int AS n FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'stampede' AND state = 'active'`;
  let killed = 0;
  const kept: string[] = [];
  // By counts, not by time: how often a statement is caught in progress depends on the machine.
  const isEnough = () => killed > 3 && kept.length > 100;
  const killer = (async () => {
    while (!isEnough()) {
      killed += (await bench.sql.query<{ n: number }>(kill)).rows[0]!.n;
      await new Promise((resolve) => setTimeout(resolve, 60));
    }
  })();
  let sent = 0;
  const customers = Array.from({ length: 40 }, async () => {
    while (!isEnough()) {
      const attempt = attemptOf(saleId, `k${sent++}`);
      const outcome = await strategy.decide(attempt);
      if (outcome.kind === 'accepted') {
        expect(outcome.order.orderId).toBe(attempt.orderId);
        kept.push(attempt.orderId);
      } else expect(['busy', 'unknown']).toContain(outcome.kind);
    }
  });
  await Promise.all([killer, ...customers]);
  await bench.sold(saleId);
  const { rows } = await bench.sql.query('SELECT id FROM orders WHERE id = ANY($1)', [kept]);
  expect(rows).toHaveLength(kept.length);
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
