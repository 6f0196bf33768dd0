/**
 * A sale is loaded again in the same Redis: one that was loaded elsewhere, whose epoch there is over, and one whose copy differs from
 * Postgres.
 */
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { eventually } from '../../lab/kit/eventually.ts';
import { limits } from '../../src/config/limits.ts';
import type { ClaimedReservation } from '../../src/domain/outcome.ts';
import type { Sale } from '../../src/domain/sale.ts';
import { createRedisLock } from '../../src/locks/redis.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { repair } from '../../src/orders/drift.ts';
import { createOrderCommitter } from '../../src/orders/order-committer.ts';
import { relayOutbox } from '../../src/store/outbox-relay.ts';
import { type OrderTable, orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror, type MirrorSnapshot, type SaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { create } from '../../src/strategies/redis/lua.ts';
import { attemptOf, reserveFor } from '../support/attempts.ts';
import { opened } from '../support/opened.ts';
import { closePast, sellPast } from '../support/postgres-strategy.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const redis = opened(() => openRedis(stores.redisUrl, () => {}));

/** @param isAccepted CONFIRM=accepted: orders are committed in any epoch */
const mirrorOn = (orders: OrderTable, isAccepted = false, segments = 0): SaleMirror =>
  createSaleMirror(redis, redisEpochs(redis, postgres), orders, segments, isAccepted);

const inAnotherEpoch = (saleId: number) =>
  stores.sql.query('UPDATE sales SET mirror_epoch = 7 WHERE id = $1', [saleId]);
const loadedIn = async (saleId: number) => (await orderTable(postgres).loadedIn([saleId])).get(saleId);

async function openSale(stock = 2, segments = 0): Promise<{ readonly sale: Sale; readonly old: SaleMirror }> {
  const sales = saleTable(postgres);
  const sale = await sales.create({ name: 's', stock, priceCents: 500, startsAt: null, endsAt: null });
  const old = mirrorOn(orderTable(postgres), false, segments);
  await old.load(sale);
  return { sale, old };
}

it('keeps the customer of an order that is committed before the sale is marked', async () => {
  const { sale, old } = await openSale();
  await inAnotherEpoch(sale.id);
  const orders = orderTable(postgres);
  const ann = await reserveFor(redis, old, attemptOf(sale.id, 'ann'));
  const markLoaded: OrderTable['markLoaded'] = async (...given) => {
    await sellPast(stores.sql, ann);
    return orders.markLoaded(...given);
  };
  const loading = mirrorOn({ ...orders, markLoaded });
  expect(await loading.load((await saleTable(postgres).get(sale.id))!)).toBe(true);
  expect(Object.keys(await redis.redis.hgetall(old.keys(sale.id).buyers))).toEqual(['ann']);
  expect(await loading.snapshot(sale.id)).toMatchObject({ remaining: 1, pending: 0, held: 1 });
});

it.each(['before the snapshot', 'after it', 'after it, and acknowledged at once'])(
  'with CONFIRM=accepted, keeps the customer of an order that is committed %s',
  async (when) => {
    const { sale, old } = await openSale();
    await inAnotherEpoch(sale.id);
    const orders = orderTable(postgres);
    /** Made just before the copy is left. */
    let ann: ClaimedReservation | undefined;
    const loadedIn: OrderTable['loadedIn'] = async (...given) => {
      const epochs = await orders.loadedIn(...given);
      ann ??= await reserveFor(redis, old, attemptOf(sale.id, 'ann'));
      return epochs;
    };
    /** As a process commits it that has not noticed that the sale was loaded elsewhere. */
    const commit = async (reservation: ClaimedReservation) => {
      await sellPast(stores.sql, reservation);
      if (when === 'after it, and acknowledged at once') await old.acknowledge([reservation]);
    };
    const snapshot: OrderTable['snapshot'] = async (...given) => {
      if (when === 'before the snapshot') await commit(ann!);
      const taken = await orders.snapshot(...given);
      if (when !== 'before the snapshot') await commit(ann!);
      return taken;
    };
    const loading = mirrorOn({ ...orders, snapshot, loadedIn }, true);
    expect(await loading.load((await saleTable(postgres).get(sale.id))!)).toBe(true);
    expect(Object.keys(await redis.redis.hgetall(old.keys(sale.id).buyers))).toEqual(['ann']);
    await loading.acknowledge([ann!]);
    expect(await loading.snapshot(sale.id)).toMatchObject({ remaining: 1, pending: 0, held: 1 });
  },
);

it('with CONFIRM=accepted, keeps what was accepted in all sales that were loaded elsewhere, also on a second try', async () => {
  const orders = orderTable(postgres);
  const sales = [(await openSale()).sale, (await openSale()).sale];
  const old = mirrorOn(orders);
  for (const { id } of sales) {
    await reserveFor(redis, old, attemptOf(id, 'ann'));
    await inAnotherEpoch(id);
  }
  const snapshot: OrderTable['snapshot'] = async () => {
    throw new Error('this process dies');
  };
  await expect(mirrorOn({ ...orders, snapshot }, true).load(sales[0]!)).rejects.toThrow('dies');
  const loading = mirrorOn(orders, true);
  for (const sale of sales) {
    expect(await loading.load(sale)).toBe(true);
    expect(await loading.snapshot(sale.id)).toMatchObject({ remaining: 1, pending: 1, held: 1 });
  }
});

// Ann's release reached the other Redis, where she was decided again and refused.
it.each(['was not left', 'was left'])(
  'commits nothing that was reserved in a copy that %s, after the sale was loaded elsewhere',
  async (which) => {
    const { sale, old } = await openSale();
    const epoch = await old.epoch(sale.id);
    const ann = { ...(await reserveFor(redis, old, attemptOf(sale.id, 'ann'))), epoch };
    await inAnotherEpoch(sale.id);
    if (which === 'was left') await redis.redis.hset(old.keys(sale.id).state, 'epoch', -epoch); // as its process does

    const orders = orderTable(postgres);
    const snapshot: OrderTable['snapshot'] = async (...given) => {
      expect(Number(await redis.redis.hget(old.keys(sale.id).state, 'epoch'))).toBe(-epoch); // the copy serves nothing
      return orders.snapshot(...given);
    };
    const again = mirrorOn({ ...orders, snapshot });
    expect(await again.load(sale)).toBe(true);
    expect(await again.snapshot(sale.id)).toMatchObject({ remaining: 2, pending: 0, held: 0 });
    expect(await loadedIn(sale.id)).not.toBe(epoch);
    const { commit } = createOrderCommitter({
      ...{ postgres, orders: orderTable(postgres), mirror: again, instruments: createInstruments() },
      ...{ paymentWindowS: 900, onError: () => {} },
    });
    expect(await commit(ann)).toMatchObject({ kind: 'superseded' });
    // The process that has made the reservation finds the new epoch, and all processes agree.
    expect(await old.load(sale)).toBe(false);
    expect(await old.epoch(sale.id)).toBe(await again.epoch(sale.id));
  },
);

it('keeps the newer of two terms, whichever comes first', async () => {
  const { sale, old } = await openSale();
  const orders = orderTable(postgres);
  const before = await orders.terms(sale.id);
  const late = mirrorOn({ ...orders, terms: async () => before });
  const isPaused = () => redis.redis.hget(old.keys(sale.id).state, 'paused');
  for (const paused of [true, false]) {
    await saleTable(postgres).change(sale.id, { paused });
    for (const mirror of [old, late]) {
      await mirror.setTerms(sale);
      expect(await isPaused()).toBe(paused ? '1' : '');
    }
  }
});

it('begins again when the sale is loaded elsewhere meanwhile, and gives up after five times', async () => {
  const { sale, old } = await openSale();
  const epoch = await old.epoch(sale.id);
  const orders = orderTable(postgres);
  let marked = 0;
  const markLoaded: OrderTable['markLoaded'] = async (...given) => {
    if (marked++ === 0) await inAnotherEpoch(sale.id);
    return orders.markLoaded(...given);
  };
  await stores.sql.query('UPDATE sales SET mirror_epoch = 6 WHERE id = $1', [sale.id]);
  expect(await mirrorOn({ ...orders, markLoaded }).load(sale)).toBe(true);
  expect(marked).toBe(2);
  expect([6, 7, epoch]).not.toContain(await loadedIn(sale.id));
  const never = vi.fn(async () => false);
  const failure = { kind: 'unavailable', reason: 'sale-is-loaded-elsewhere' };
  await stores.sql.query('UPDATE sales SET mirror_epoch = 6 WHERE id = $1', [sale.id]);
  await expect(mirrorOn({ ...orders, markLoaded: never }).load(sale)).rejects.toMatchObject({ failure });
  expect(never).toHaveBeenCalledTimes(5);
});

it('keeps the latest of the epochs that a server has left', async () => {
  const { sale, old } = await openSale();
  const epoch = await old.epoch(sale.id);
  const earlier = Array.from({ length: limits.retiredEpochs }, (_, i) => i + 1);
  await stores.sql.query('UPDATE redis_epochs SET retired = $1', [earlier]);
  await inAnotherEpoch(sale.id);
  expect(await mirrorOn(orderTable(postgres)).load(sale)).toBe(true);
  const { rows } = await stores.sql.query('SELECT retired FROM redis_epochs');
  expect(rows).toEqual([{ retired: [...earlier.slice(1), epoch] }]);
});

it('a load keeps its claim for as long as it takes', async () => {
  const orders = orderTable(postgres);
  let finish = () => {};
  const gate = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const snapshot: OrderTable['snapshot'] = async (...given) => {
    await gate;
    return orders.snapshot(...given);
  };
  const sales = saleTable(postgres);
  const sale = await sales.create({ name: 's', stock: 2, priceCents: 500, startsAt: null, endsAt: null });
  const strategy = create({
    ...{ postgres, redis, epochs: redisEpochs(redis, postgres), sales, orders: { ...orders, snapshot } },
    ...{ lock: createRedisLock({ redis: redis.locks }), segments: 0, lockTtlMs: 5_000, lockWaitMs: 2_000 },
    ...{ confirm: 'durable', paymentWindowS: 900, onBatch: () => {}, onError: () => {} },
  });
  const deciding = strategy.decide(attemptOf(sale.id, 'ann'));
  const claim = `stampede:{sale:${sale.id}}:loading`;
  const leftMs = () => redis.redis.pttl(claim);
  await eventually(leftMs, (ms) => ms > 0);
  await redis.redis.pexpire(claim, 9_000);
  expect(await eventually(leftMs, (ms) => ms > 9_000 || ms < 0)).toBeGreaterThan(9_000);
  finish();
  expect(await deciding).toMatchObject({ kind: 'reserved' });
  await eventually(leftMs, (ms) => ms < 0);
});

describe('a copy that differs from Postgres', () => {
  const STOCK = 9;
  let saleId: number;
  let mirror: SaleMirror;
  beforeEach(() => open(0));
  async function open(segments: number): Promise<void> {
    const { sale, old } = await openSale(STOCK, segments);
    [saleId, mirror] = [sale.id, old];
  }
  const reserve = (userId: string) => reserveFor(redis, mirror, attemptOf(saleId, userId));
  const repairing = {
    get sales() {
      return saleTable(postgres);
    },
    instruments: createInstruments(),
    log: () => {},
  };
  /** As the repair of drift does. @param seen the copy that it replaces */
  const replace = (seen: MirrorSnapshot | null) => mirror.load({ id: saleId }, seen);

  it('replaces a copy in which nothing has happened since the snapshot', async () => {
    const { state, restocks } = mirror.keys(saleId);
    await mirror.acknowledge([await reserve('ann')]);
    await mirror.restock(saleId, 2, '77');
    const loadedMs = await redis.redis.hget(state, 'loadedMs');
    expect(await replace(await mirror.snapshot(saleId))).toBe(true);
    expect(await mirror.snapshot(saleId)).toMatchObject({ remaining: STOCK, pending: 0, held: 0 });
    expect(await redis.redis.hget(state, 'loadedMs')).toBe(loadedMs);
    expect(await redis.redis.smembers(restocks)).toEqual(['77']);
  });

  it.each<[string, () => Promise<unknown>]>([
    ['a reservation is pending', () => reserve('bob')],
    ['one was acknowledged', async () => mirror.acknowledge([await reserve('bob')])],
    [
      'one was acknowledged, and its unit released',
      async () => {
        const bob = await reserve('bob');
        await mirror.acknowledge([bob]);
        await mirror.applyChange({ change: 'release', ...bob, units: 1 });
      },
    ],
    ['one was made and released', async () => mirror.release(await reserve('bob'))],
    [
      'a unit was taken and added',
      async () => {
        await mirror.restock(saleId, -1);
        await mirror.restock(saleId, 1);
      },
    ],
  ])('does not replace a copy in which %s since the snapshot', async (_, happens) => {
    const seen = await mirror.snapshot(saleId);
    await happens();
    const before = await mirror.snapshot(saleId);
    expect(await replace(seen)).toBe(false);
    expect(await mirror.snapshot(saleId)).toEqual(before);
  });

  it('does not replace a copy with a pending reservation', async () => {
    const ann = await reserve('ann');
    const seen = await mirror.snapshot(saleId);
    expect(await replace(seen)).toBe(false);
    await mirror.acknowledge([ann]);
    expect(await replace(seen)).toBe(true);
  });

  it('replaces the segments of a copy', async () => {
    await open(3);
    await redis.redis.hset(mirror.keys(saleId).counters, { 0: 7, 1: -1, 4: 5 }); // a process had more segments
    expect(await replace(await mirror.snapshot(saleId))).toBe(true);
    expect(await redis.redis.hgetall(mirror.keys(saleId).counters)).toEqual({ 0: '3', 1: '3', 2: '3' });
  });

  it.each(['pendingChanges', 'snapshot'] as const)(
    'a repair strands no unit of an order that is cancelled during it, after its %s',
    async (read) => {
      const ann = await reserve('ann');
      await sellPast(stores.sql, ann);
      await mirror.acknowledge([ann]);
      await redis.redis.hincrby(mirror.keys(saleId).state, 'remaining', 1); // a surplus unit
      const orders = orderTable(postgres);
      const cancel = async () => {
        await closePast(stores.sql, ann);
        await stores.sql.query(
          `INSERT INTO mirror_outbox (order_id, sale_id, user_id, change) VALUES ($1, $2, 'ann', 'release')`,
          [ann.orderId, saleId],
        );
      };
      const cancelling = {
        ...orders,
        async [read](...given: never[]) {
          const found = await (orders[read] as (...of: never[]) => Promise<unknown>)(...given);
          await cancel();
          return found;
        },
      };
      mirror = mirrorOn(cancelling);
      await repair({ ...repairing, mirror, orders: cancelling }, (await repairing.sales.get(saleId))!);
      await relayOutbox({ postgres, mirror }, { saleId });
      expect(await mirror.snapshot(saleId)).toMatchObject({ remaining: STOCK, pending: 0, held: 0 });
    },
  );

  it('a repair waits for a stock cut that Redis has made and Postgres has not committed', async () => {
    await redis.redis.hincrby(mirror.keys(saleId).state, 'remaining', 1); // a surplus unit
    const { sql } = stores;
    const cut = await sql.connect();
    await cut.query('BEGIN');
    await cut.query('SELECT FROM sales WHERE id = $1 FOR NO KEY UPDATE', [saleId]);
    await mirror.restock(saleId, -2);
    let isOver = false;
    const sale = (await repairing.sales.get(saleId))!;
    const repaired = repair({ ...repairing, mirror, orders: orderTable(postgres) }, sale).finally(() => {
      isOver = true;
    });
    const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    await eventually(
      async () => isOver || (await sql.query(waiting)).rowCount === 1,
      (isReached) => isReached,
    );
    await cut.query('UPDATE sales SET stock = stock - 2 WHERE id = $1', [saleId]);
    await cut.query('COMMIT');
    cut.release();
    expect(await repaired).toBe(true);
    expect(await mirror.snapshot(saleId)).toMatchObject({ remaining: STOCK - 2, pending: 0, held: 0 });
  });
});

it('loads a sale with 70,000 committed reservations', async () => {
  const { sale, old } = await openSale();
  const { state, reservations } = old.keys(sale.id);
  const add = `for n = ARGV[1], ARGV[2] do
    redis.call('ZADD', KEYS[1], 1, string.format('user-%d 00000000-0000-4000-8000-%012d 1', n, n)) end`;
  for (
    let n = 1;
    n <= 70_000;
    n += 10_000 // a call of V8 has 40,000 to 60,000 arguments at most
  )
    await stores.redis.eval(add, 1, reservations, n, n + 9_999);
  expect(await redis.redis.zcard(reservations)).toBe(70_000);
  await redis.redis.del(state);
  const orders = orderTable(postgres);
  const snapshot: typeof orders.snapshot = async (id, orderIds, use) => {
    const taken = await orders.snapshot(id, orderIds, use);
    return { ...taken, known: new Set(orderIds) }; // to insert the orders would take seconds
  };
  const loading = mirrorOn({ ...orders, snapshot });
  expect(await loading.load(sale)).toBe(true);
  expect(await old.snapshot(sale.id)).toMatchObject({ remaining: 2, pending: 0, held: 0 });
});
