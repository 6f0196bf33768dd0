/** Batches with members that Postgres rejects. Both stores are real. */
import { randomUUID } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, it, onTestFinished, vi } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { limits } from '../../src/config/limits.ts';
import type { ClaimedReservation, Result } from '../../src/domain/outcome.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createBacklog } from '../../src/orders/backlog.ts';
import { createOrderCommitter, type OrderCommitter } from '../../src/orders/order-committer.ts';
import { reapOnce } from '../../src/orders/reservation-reaper.ts';
import { createSettlement } from '../../src/orders/settlement.ts';
import { createOutboxRelay } from '../../src/store/outbox-relay.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { testHealth } from '../support/background.ts';
import { users } from '../support/client.ts';
import { judge } from '../support/judge.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const redis = opened(() => openRedis(stores.redisUrl, () => {}));
const instruments = createInstruments();
const sizes = vi.spyOn(instruments.commitBatchSize, 'observe');

/** @param store perhaps behind a proxy */
function settling(store: PostgresStore) {
  const orders = orderTable(store);
  const mirror = createSaleMirror(redis, redisEpochs(redis, store), orders, 0);
  const outbox = createOutboxRelay(store, mirror, testHealth().loop('mirror-outbox'));
  return { postgres: store, orders, mirror, outbox, instruments };
}

function startCommitter(store: PostgresStore = postgres): OrderCommitter {
  return createOrderCommitter({
    ...settling(store),
    paymentWindowS: 900,
    onError: (doing) => void errors.push(doing),
  });
}
const errors: string[] = [];
afterEach(() => {
  expect(errors.splice(0)).toEqual([]);
});

async function makeSale(stock: number): Promise<number> {
  const sale = { name: 'a', stock, priceCents: 250, startsAt: null, endsAt: null };
  return (await saleTable(postgres, 'USD').create(sale)).id;
}

const reservation = (saleId: number, userId: string, orderId: string = randomUUID()): ClaimedReservation => ({
  ...{ saleId, userId, orderId, quantity: 1 },
  reservedAt: '1',
  claimedAtMs: 1,
  isFirst: true,
  epoch: null,
  untilMs: performance.now() + limits.claimMs,
});

/** Commits the members in one batch, or many of them in a few, while statements with another sale's orders are in progress. */
async function commitTogether(
  committer: OrderCommitter,
  fillerSale: number,
  members: readonly ClaimedReservation[],
): Promise<Result[]> {
  await setImmediate(); // statements that were answered have ended
  const fillers = Array.from({ length: limits.commitInFlight }, () =>
    committer.commit(reservation(fillerSale, randomUUID())),
  );
  await setImmediate(); // they are in progress
  const results = await Promise.all(members.map((member) => committer.commit(member)));
  for (const { kind } of await Promise.all(fillers)) expect(kind).toBe('accepted');
  const gathered = Math.max(...sizes.mock.calls.map(([size]) => Number(size)));
  expect(gathered).toBeGreaterThanOrEqual(Math.min(members.length, limits.leastBatch));
  sizes.mockClear();
  return results;
}

const kindsOf = (results: readonly Result[]) => results.map(({ kind }) => kind);

/** The audit finds nothing wrong. @returns how many units are sold */
async function sold(saleId: number): Promise<number> {
  const { sold, findings } = await judge(stores.sql, null, saleId);
  expect(findings).toEqual([]);
  return sold;
}

it('commits the rest of a batch with existing orders, customers with another order, and an unknown sale', async () => {
  const committer = startCommitter();
  const [saleId, fillerSale] = [await makeSale(10), await makeSale(10)];
  const ann = reservation(saleId, 'ann');
  const bob = reservation(saleId, 'bob');
  expect(kindsOf(await Promise.all([committer.commit(ann), committer.commit(bob)]))).toEqual([
    'accepted',
    'accepted',
  ]);
  const members = [
    reservation(saleId, 'cyd'),
    ann, // an earlier try, whose answer was lost
    reservation(saleId, 'bob'),
    reservation(2_000_000_000, 'dan'),
    reservation(saleId, 'eve'),
  ];
  const results = await commitTogether(committer, fillerSale, members);
  expect(kindsOf(results)).toEqual(['accepted', 'accepted', 'replayed', 'unknown-sale', 'accepted']);
  expect(results[2]).toMatchObject({ order: { orderId: bob.orderId, userId: 'bob' } });
  expect(await sold(saleId)).toBe(4);
});

it('commits the rest of a batch with orders that were reserved in an earlier epoch of Redis', async () => {
  const committer = startCommitter();
  const [saleId, other, fillerSale] = [await makeSale(10), await makeSale(10), await makeSale(10)];
  const ann = { ...reservation(saleId, 'ann'), epoch: 7 };
  expect(await committer.commit(ann)).toMatchObject({ kind: 'accepted' }); // the epoch of the sale is not known
  await stores.sql.query('UPDATE sales SET mirror_epoch = 8 WHERE id = $1', [saleId]);
  const members = [
    { ...reservation(saleId, 'bob'), epoch: 7 },
    { ...reservation(other, 'bob'), epoch: 7 },
    reservation(saleId, 'cat'), // was answered with 202
    ann, // an earlier try, whose answer was lost
  ];
  const results = await commitTogether(committer, fillerSale, members);
  expect(kindsOf(results)).toEqual(['retry', 'accepted', 'accepted', 'accepted']);
  expect(await sold(saleId)).toBe(2);
});

it('commits the other sales of a batch at once when one has too few units', async () => {
  const committer = startCommitter();
  const [short, other, fillerSale] = [await makeSale(20), await makeSale(100), await makeSale(10)];
  const members = Array.from({ length: 200 }, (_, i) =>
    reservation(i % 4 === 3 ? other : short, `user-${i}`),
  );
  const results = await commitTogether(committer, fillerSale, members);
  expect(results.filter((_, i) => members[i]!.saleId === other).map(({ kind }) => kind)).toEqual(
    Array(50).fill('accepted'),
  );
  expect(kindsOf(results.filter((_, i) => members[i]!.saleId === short))).toEqual([
    ...Array<string>(20).fill('accepted'), // the first that came
    ...Array<string>(130).fill('sold-out'),
  ]);
  expect(await sold(short)).toBe(20);
  expect(await sold(other)).toBe(50);
});

it('commits the orders of other sales while the row of one is held', async () => {
  const committer = startCommitter();
  const [held, other] = [await makeSale(20), await makeSale(20)];
  const holder = await stores.sql.connect();
  onTestFinished(() => holder.release());
  await holder.query('BEGIN');
  await holder.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [held]);
  // In one batch with orders of the held sale, behind them, and claimed from another process.
  const waiting: Promise<Result>[] = [];
  const going: Result[] = [];
  for (const user of users(3)) {
    const commits = (saleId: number) =>
      [true, false].map((isFirst) =>
        committer.commit({ ...reservation(saleId, `${user}-${isFirst}`), isFirst }),
      );
    waiting.push(...commits(held));
    going.push(...(await Promise.all(commits(other))));
  }
  expect(kindsOf(going)).toEqual(Array(6).fill('accepted'));
  await holder.query('COMMIT');
  await Promise.all(waiting);
  expect(await sold(other)).toBe(6);
  await sold(held);
});

it('bounds the orders answered with 202 that Postgres does not take, until the reaper has caught up', async () => {
  await using link = await TcpProxy.open({ port: Number(new URL(stores.databaseUrl).port) });
  const distant = openPostgres(link.through(stores.databaseUrl), () => {});
  onTestFinished(() => distant.close());
  const committer = startCommitter(distant);
  const backlog = createBacklog();
  const context = {
    ...settling(distant),
    committer,
    backlog,
    sales: saleTable(distant, 'USD'),
    log() {},
    onError() {},
  };
  const settlement = createSettlement({ ...context, confirm: 'accepted' });
  const saleId = await makeSale(10);
  const { acceptedBacklog } = limits;
  onTestFinished(() => void Object.assign(limits, { acceptedBacklog }));
  Object.assign(limits, { acceptedBacklog: 3 });

  link.set('refuse');
  for (const user of users(3)) {
    expect(settlement.isBehind).toBe(false);
    const decision = { kind: 'reserved', reservation: reservation(saleId, user), mayBeAhead: true } as const;
    expect(settlement.settle(decision)).toMatchObject({ kind: 'accepted', durable: false });
    await settlement.idle();
  }
  expect(settlement.isBehind).toBe(true);
  const health = testHealth(() => {}).loop('reservation-reaper');
  await expect(reapOnce({ ...context, health })).rejects.toThrow();
  expect(settlement.isBehind).toBe(true);
  link.set('pass');
  await expect.poll(() => reapOnce({ ...context, health }).then(() => backlog.size)).toBe(0);
  expect(settlement.isBehind).toBe(false);
});

it('commits abandoned reservations at the offer at which they were made', async () => {
  const saleId = await makeSale(10);
  const committer = startCommitter();
  const made = {
    ann: '1@100/60:3x2,7',
    bob: '1@0x2',
    cyd: '1', // by an earlier version: the offer of the sale
    dan: '1:2x2',
  };
  for (const [user, reservedAt] of Object.entries(made))
    await redis.redis.zadd(
      `stampede:{sale:${saleId}}:reservations`,
      1,
      `${user} ${randomUUID()} ${reservedAt}`,
    );
  const health = testHealth(() => {}).loop('reservation-reaper');
  const others = { committer, backlog: createBacklog(), sales: saleTable(postgres, 'USD'), log() {}, health };
  const context = { ...settling(postgres), ...others };
  await reapOnce(context);
  const { rows } = await stores.sql.query(
    `SELECT user_id || ': ' || quantity || ' at ' || price_cents || ' for ' || extract(epoch FROM expires_at - created_at)::int AS of
     FROM orders WHERE sale_id = $1 ORDER BY user_id`,
    [saleId],
  );
  const placed = [
    'ann: 3 at 100 for 60',
    'bob: 2 at 0 for 900',
    'cyd: 1 at 250 for 900',
    'dan: 2 at 250 for 900',
  ];
  expect(rows.map((row) => row.of)).toEqual(placed);
  expect(await sold(saleId)).toBe(8);
});

it('commits the others when Postgres rejects members with an unexpected error', async () => {
  const committer = startCommitter();
  const [saleId, fillerSale] = [await makeSale(100), await makeSale(10)];
  await stores.sql.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.user_id LIKE 'odd-%' THEN RAISE 'no' USING ERRCODE = 'XX001'; END IF;
      IF NEW.user_id LIKE 'far-%' THEN RAISE 'no' USING ERRCODE = '08001'; END IF;
      RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()`);
  const members = Array.from({ length: 40 }, (_, i) =>
    reservation(saleId, `${i % 20 === 7 ? 'odd' : i % 20 === 13 ? 'far' : 'user'}-${i}`),
  );
  const results = await commitTogether(committer, fillerSale, members);
  await stores.sql.query('DROP TRIGGER refuse ON orders; DROP FUNCTION refuse()');
  for (const [i, result] of results.entries()) {
    const code = i % 20 === 7 ? 'XX001' : i % 20 === 13 ? '08001' : null;
    if (code !== null)
      expect(result).toEqual({ kind: 'busy', reason: `rejected-by-postgres:${code}`, cause: 'order' });
    else expect(result.kind).toBe('accepted');
  }
  expect(await sold(saleId)).toBe(36);
  expect(new Set(errors.splice(0))).toEqual(new Set(['commit-orders']));
});
