/** A sale that was loaded elsewhere is loaded again in the same Redis: its epoch there is over. */
import { expect, it, vi } from 'vitest';
import type { ClaimedReservation } from '../../src/domain/outcome.ts';
import type { Sale } from '../../src/domain/sale.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createOrderCommitter } from '../../src/orders/order-committer.ts';
import { type OrderTable, orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror, type SaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { attemptOf, reserveFor } from '../support/attempts.ts';
import { opened } from '../support/opened.ts';
import { sellPast } from '../support/postgres-strategy.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const redis = opened(() => openRedis(stores.redisUrl, () => {}));

/** @param isAccepted CONFIRM=accepted: orders are committed in any epoch */
const mirrorOn = (orders: OrderTable, isAccepted = false): SaleMirror =>
  createSaleMirror(redis, redisEpochs(redis, postgres), orders, 0, isAccepted);

const inAnotherEpoch = (saleId: number) =>
  stores.sql.query('UPDATE sales SET mirror_epoch = 7 WHERE id = $1', [saleId]);
const loadedIn = async (saleId: number) => (await orderTable(postgres).loadedIn([saleId])).get(saleId);

async function openSale(): Promise<{ readonly sale: Sale; readonly old: SaleMirror }> {
  const sales = saleTable(postgres);
  const sale = await sales.create({ name: 's', stock: 2, priceCents: 500, startsAt: null, endsAt: null });
  const old = mirrorOn(orderTable(postgres));
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

it('begins again when the sale is loaded elsewhere meanwhile', async () => {
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
});

it('gives up when the sale is loaded elsewhere again and again', async () => {
  const { sale } = await openSale();
  const markLoaded = vi.fn(async () => false);
  const loading = mirrorOn({ ...orderTable(postgres), markLoaded }).load(sale);
  await expect(loading).rejects.toMatchObject({
    failure: { kind: 'unavailable', reason: 'sale-is-loaded-elsewhere' },
  });
  expect(markLoaded).toHaveBeenCalledTimes(5);
});
