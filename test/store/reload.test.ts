/** A sale that was loaded elsewhere is loaded again in the same epoch, while an order that was reserved in the old copy is committed. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { ClaimedReservation } from '../../src/domain/outcome.ts';
import { type OrderTable, orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror, type SaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { attemptOf, reserveFor } from '../support/attempts.ts';
import { sellPast } from '../support/postgres-strategy.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

let stores: TestStores;
let redis: RedisStore;
let postgres: PostgresStore;
beforeAll(async () => {
  stores = await openTestStores();
  redis = await openRedis(stores.redisUrl, () => {});
  postgres = openPostgres(stores.databaseUrl, () => {});
});
afterAll(async () => {
  await redis?.close();
  await postgres?.close();
  await stores?.[Symbol.asyncDispose]();
});

const mirrorOn = (orders: OrderTable): SaleMirror =>
  createSaleMirror(redis, redisEpochs(redis, postgres), orders, 0);

it.each(['before the snapshot', 'after it', 'after it, and acknowledged at once'])(
  'keeps the customer of an order that is committed %s',
  async (when) => {
    const orders = orderTable(postgres);
    const sales = saleTable(postgres);
    const old = mirrorOn(orders);
    const sale = await sales.create({ name: 's', stock: 2, priceCents: 500, startsAt: null, endsAt: null });
    await old.load(sale);
    await stores.sql.query('UPDATE sales SET mirror_epoch = 7 WHERE id = $1', [sale.id]);
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
    const loading = mirrorOn({ ...orders, snapshot, loadedIn });
    expect(await loading.load((await sales.get(sale.id))!)).toBe(true);
    expect(Object.keys(await redis.redis.hgetall(old.keys(sale.id).buyers))).toEqual(['ann']);
    await loading.acknowledge([ann!]);
    expect(await loading.snapshot(sale.id)).toMatchObject({ remaining: 1, pending: 0, held: 1 });
  },
);
