/**
 * A sale is loaded again in the same Redis: one that was loaded elsewhere, whose epoch there is over, and one whose copy differs from
 * Postgres.
 */
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { eventually } from '../../lab/kit/eventually.ts';
import { limits } from '../../src/config/limits.ts';
import type { Sale } from '../../src/domain/sale.ts';
import { createRedisLock } from '../../src/locks/redis.ts';
import { type OrderTable, orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror, type SaleDigest, type SaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { create } from '../../src/strategies/redis/lua.ts';
import { attemptOf, reserveFor } from '../support/attempts.ts';
import { opened } from '../support/opened.ts';
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
  const sales = saleTable(postgres, 'USD');
  const sale = await sales.create({ name: 's', stock, priceCents: 500, startsAt: null, endsAt: null });
  const old = mirrorOn(orderTable(postgres), false, segments);
  await old.load(sale);
  return { sale, old };
}

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
    expect(await loading.digest(sale.id)).toMatchObject({ free: 1, pending: 1, held: 1 });
  }
});

it('keeps the newer of two terms, whichever comes first', async () => {
  const { sale, old } = await openSale();
  const orders = orderTable(postgres);
  const before = await orders.terms(sale.id);
  const late = mirrorOn({ ...orders, terms: async () => before });
  const isPaused = () => redis.redis.hget(old.keys(sale.id).state, 'paused');
  for (const paused of [true, false]) {
    await saleTable(postgres, 'USD').change(sale.id, { paused });
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
  const sales = saleTable(postgres, 'USD');
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
  /** As the repair of drift does. @param seen the copy that it replaces */
  const replace = (seen: SaleDigest | null) => mirror.load({ id: saleId }, seen);

  it('replaces a copy in which nothing has happened since the snapshot', async () => {
    const { state, restocks } = mirror.keys(saleId);
    await mirror.acknowledge([await reserve('ann')]);
    await mirror.restock(saleId, 2, '77');
    const loadedMs = await redis.redis.hget(state, 'loadedMs');
    expect(await replace(await mirror.digest(saleId))).toBe(true);
    expect(await mirror.digest(saleId)).toMatchObject({ free: STOCK, pending: 0, held: 0 });
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
    const seen = await mirror.digest(saleId);
    await happens();
    const { free, generation, held } = await mirror.digest(saleId);
    expect(await replace(seen)).toBe(false);
    expect(await mirror.digest(saleId)).toMatchObject({ free, generation, held });
  });

  it('replaces the segments of a copy', async () => {
    await open(3);
    await redis.redis.hset(mirror.keys(saleId).counters, { 0: 7, 1: -1, 4: 5 }); // a process had more segments
    expect(await replace(await mirror.digest(saleId))).toBe(true);
    expect(await redis.redis.hgetall(mirror.keys(saleId).counters)).toEqual({ 0: '3', 1: '3', 2: '3' });
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
  expect(await old.digest(sale.id)).toMatchObject({ free: 2, pending: 0, held: 0 });
});
