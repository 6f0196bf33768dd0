/**
 * No two writes to a sale wait for each other: each pair, in both sequences, meets behind a transaction that holds what one of them
 * wants, and none ends in a deadlock. The order of locks: docs/explanation/consistency.md.
 */
import type pg from 'pg';
import { beforeAll, beforeEach, expect, it } from 'vitest';
import type { Attempt } from '../../src/domain/order.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createLifecycle } from '../../src/orders/lifecycle.ts';
import { createOrderCommitter } from '../../src/orders/order-committer.ts';
import { createPayments } from '../../src/orders/payments.ts';
import { uncommittedOrders } from '../../src/orders/uncommitted-orders.ts';
import { createOutboxRelay } from '../../src/store/outbox-relay.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { claimEndMs, withFirstClaim } from '../../src/store/redis/sale-records.ts';
import { strategies } from '../../src/strategies/registry.ts';
import type { LocksFirst, Strategy } from '../../src/strategies/strategy.ts';
import { attemptOf } from '../support/attempts.ts';
import { testHealth } from '../support/background.ts';
import { opened } from '../support/opened.ts';
import { closePast, sellPast, strategyBench } from '../support/postgres-strategy.ts';

const bench = strategyBench();
const instruments = createInstruments();
const deadlocks: string[] = [];
const redis = opened(() => openRedis(bench.redisUrl, () => {}));
beforeAll(() => {
  bench.patient.pool.on('connect', (client) => {
    const { connection } = client as unknown as { connection: NodeJS.EventEmitter };
    connection.on('errorMessage', ({ code, detail }: pg.DatabaseError) => {
      if (code === '40P01') deadlocks.push(detail!);
    });
  });
});

// The audit of a sale reads all rows.
beforeEach(() => bench.sql.query('TRUNCATE sales, points_entries, payment_notifications, tasks CASCADE'));

/** Pairs that run at once. Each uses two connections; another one holds what they want. */
const TOGETHER = 6;

/** The writes of one way to sell to a sale. */
interface Seller {
  readonly locksFirst: LocksFirst;
  readonly buy: (attempt: Attempt) => Promise<{ readonly kind: string }>;
  readonly restock: (saleId: number, units: number) => Promise<unknown>;
  readonly load: (saleId: number) => Promise<unknown>;
}

const inPostgres = [...strategies.values()].filter(({ description }) => description.store === 'postgres');

function sellerOf(name: string): Seller {
  const { patient: postgres } = bench;
  const sales = saleTable(postgres, 'USD');
  if (name === 'order-committer') {
    const orders = orderTable(postgres);
    const mirror = createSaleMirror(redis, redisEpochs(redis, postgres), orders, 0);
    const outbox = createOutboxRelay(postgres, mirror, testHealth().loop('mirror-outbox'));
    const parts = { postgres, orders, mirror, outbox, instruments, paymentWindowS: 900, onError: () => {} };
    // One committer per attempt, as if in separate processes: a committer has few statements in progress.
    const buy = (attempt: Attempt) =>
      createOrderCommitter(parts).commit(
        withFirstClaim({ ...attempt, reservedAt: String(Date.now()) }, claimEndMs()),
      );
    const restock = (saleId: number, units: number) => sales.restock(saleId, units);
    return { locksFirst: 'customer', buy, restock, load: async () => {} };
  }
  const start = () =>
    bench.start({ create: (context) => strategies.get(name)!.create(context, null) as Strategy }, postgres);
  const strategy = start();
  return {
    locksFirst: strategy.locksFirst,
    buy: (attempt) => (strategy.maxBatch > 1 ? start() : strategy).decide(attempt), // likewise
    restock: (saleId, units) => strategy.restock(saleId, units),
    load: async (saleId) => strategy.load?.((await sales.get(saleId))!),
  };
}

/** A sale with three units: ann's order has expired, bob's is pending, cyd waits. */
interface Scene {
  readonly saleId: number;
  readonly ann: Attempt;
  readonly bob: Attempt;
}

async function scene(seller: Seller): Promise<Scene> {
  const saleId = await bench.sale(3);
  const [ann, bob] = [attemptOf(saleId, 'ann'), attemptOf(saleId, 'bob')];
  for (const attempt of [ann, bob]) await sellPast(bench.sql, attempt);
  await closePast(bench.sql, ann);
  await bench.sql.query(`UPDATE orders SET status = 'expired', closed_at = now() WHERE id = $1`, [
    ann.orderId,
  ]);
  await bench.sql.query(`UPDATE orders SET expires_at = now() WHERE id = $1`, [bob.orderId]);
  // A unit that returns becomes her order.
  await bench.sql.query(`UPDATE sales SET waitlist = 'hold', waitlist_hold_s = 60 WHERE id = $1`, [saleId]);
  await bench.sql.query(`INSERT INTO waitlist (sale_id, user_id) VALUES ($1, 'cyd')`, [saleId]);
  await seller.load(saleId);
  return { saleId, ann, bob };
}

type Write = (scene: Scene) => Promise<unknown>;

function writesOf({ locksFirst, buy, restock }: Seller): Record<string, Write> {
  const { patient: postgres } = bench;
  const [orders, sales] = [orderTable(postgres), saleTable(postgres, 'USD')];
  const onError = (_doing: string, error: unknown) => {
    throw error;
  };
  const health = testHealth().loop('expiry');
  const lifecycle = createLifecycle({
    ...{ postgres, orders, instruments, health, outbox: null, maxHoldS: 3_600, confirm: 'durable' as const },
    strategy: { locksFirst },
  });
  const payments = createPayments({
    ...{ postgres, orders, sales, instruments, onError, outbox: null, confirm: 'durable' as const },
    uncommitted: uncommittedOrders(null, orders),
    strategy: { locksFirst },
    warn: () => {},
  });
  const pay = ({ orderId }: Attempt) =>
    payments.notify({ notificationId: crypto.randomUUID(), orderId, amountCents: 500 });
  return {
    "ann's purchase": ({ saleId }) => buy(attemptOf(saleId, 'ann')),
    "bob's purchase": ({ saleId }) => buy(attemptOf(saleId, 'bob')),
    "cyd's purchase": ({ saleId }) => buy(attemptOf(saleId, 'cyd')),
    "ann's late payment": ({ ann }) => pay(ann),
    "bob's payment": ({ bob }) => pay(bob),
    "bob's cancellation": ({ bob }) => lifecycle.cancel(bob.orderId, 'bob'),
    "bob's transfer to ann": ({ bob }) => lifecycle.transfer(bob.orderId, 'ann', 'admin'),
    expiry: () => lifecycle.expireDue(),
    restock: ({ saleId }) => restock(saleId, 1),
    cut: ({ saleId }) => restock(saleId, -1),
  };
}

/** Locks that another transaction holds while a pair of writes starts. */
const HELD: Record<string, (client: pg.PoolClient, scene: Scene) => Promise<unknown>> = {
  'the sale': (client, { saleId }) => client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [saleId]),
  'the customer ann': (client, { saleId }) =>
    client.query(
      `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
       VALUES ($1, $2, 'ann', 'pending', 500, now() + interval '1 hour')`,
      [crypto.randomUUID(), saleId],
    ),
  "bob's order": (client, { bob }) =>
    client.query('SELECT FROM orders WHERE id = $1 FOR UPDATE', [bob.orderId]),
};

/** Starts the first write of each pair, and the second once all first ones wait or are done; then frees the locks. */
async function meet(
  pairs: readonly (readonly [Write, Write])[],
  seller: Seller,
  held: string,
): Promise<void> {
  const scenes = await Promise.all(pairs.map(() => scene(seller)));
  await bench.during(
    async (client) => {
      for (const one of scenes) await HELD[held]!(client, one);
    },
    async (end) => {
      const started: Promise<unknown>[] = [];
      let left = 0;
      for (const turn of [0, 1]) {
        for (const [i, pair] of pairs.entries()) {
          left++;
          started.push(pair[turn]!(scenes[i]!).finally(() => left--));
        }
        await expect.poll(async () => (await bench.waiting()) >= left, { interval: 10 }).toBe(true);
      }
      await end('ROLLBACK');
      await Promise.all(started);
    },
  );
  for (const { saleId } of scenes) await bench.sold(saleId);
}

it.each([...inPostgres.map(({ description }) => description.name), 'order-committer'])(
  '%s: no two writes to a sale end in a deadlock',
  { timeout: 600_000 },
  async (name) => {
    const seller = sellerOf(name);
    const writes = Object.entries(writesOf(seller));
    const pairs = writes.flatMap(([, first]) => writes.map(([, second]) => [first, second] as const));
    for (const held of Object.keys(HELD))
      for (let from = 0; from < pairs.length; from += TOGETHER)
        await meet(pairs.slice(from, from + TOGETHER), seller, held);
    expect(deadlocks).toEqual([]);
  },
);
