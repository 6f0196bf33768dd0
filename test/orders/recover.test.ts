/** Which sales a pass of the recovery looks after, when there are too many that seem to differ. Both stores are real. */
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { type RecoveryContext, recoverOnce } from '../../src/orders/recover.ts';
import { orderTable } from '../../src/store/orders.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres.ts';
import { openRedis, type RedisStore } from '../../src/store/redis.ts';
import { redisEpochs } from '../../src/store/redis-epoch.ts';
import { redisSales } from '../../src/store/redis-sale.ts';
import { saleTable } from '../../src/store/sales.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

/** More than twice as many as one pass takes of those that are selling. */
const SALES = 2 * limits.recoverBusy + 5;
const STOCK = 1_000;

let stores: TestStores;
let postgres: PostgresStore;
let redis: RedisStore;
let saleIds: number[];
let corrected: number[];
let context: RecoveryContext;

beforeAll(async () => {
  stores = await openTestStores();
  postgres = openPostgres(stores.databaseUrl, () => {});
  redis = await openRedis(stores.redisUrl, () => {});
});

afterAll(async () => {
  await redis?.close();
  await postgres?.close();
  await stores?.[Symbol.asyncDispose]();
});

beforeEach(async () => {
  await stores.sql.query('TRUNCATE sales CASCADE');
  const sales = saleTable(postgres);
  const orders = orderTable(postgres);
  const reservations = redisSales(redis, redisEpochs(redis, postgres), orders, 0);
  saleIds = [];
  for (let i = 0; i < SALES; i++) {
    const sale = await sales.create({ name: 'a', stock: STOCK, priceCents: 1, startsAt: null, endsAt: null });
    await reservations.open(sale);
    saleIds.push(sale.id);
  }
  corrected = [];
  context = {
    sales,
    orders,
    strategy: { reservations } as RecoveryContext['strategy'],
    writer: { holds: () => false } as unknown as RecoveryContext['writer'],
    instruments: createInstruments(),
    log: (message, details) => {
      if (message.startsWith('corrected')) corrected.push((details as { saleId: number }).saleId);
    },
    onError: (doing, error) => {
      throw new Error(doing, { cause: error });
    },
  };
});

const state = (saleId: number) => `stampede:{sale:${saleId}}:state`;
/** As if a sale had sold since it was read in Postgres, or units were missing: the next look tells. */
const take = (units: number) =>
  Promise.all(saleIds.map((id) => redis.redis.hincrby(state(id), 'remaining', -units)));
const remaining = async () =>
  Promise.all(saleIds.map(async (id) => Number(await redis.redis.hget(state(id), 'remaining'))));

/** @returns the sales that one pass corrected */
async function pass(memory: Parameters<typeof recoverOnce>[2]): Promise<number[]> {
  corrected = [];
  await recoverOnce(context, () => false, memory);
  return corrected;
}

it('takes those that are selling in turn, so many in a pass', async () => {
  const memory = { glances: new Map<number, string>(), turn: 0 };
  const most = limits.recoverBusy;
  const turns: number[][] = [];
  for (const units of [1, 10, 100]) {
    await take(units);
    turns.push(await pass(memory));
  }
  expect(turns).toEqual([
    saleIds.slice(0, most),
    saleIds.slice(most, 2 * most),
    [...saleIds.slice(2 * most), ...saleIds.slice(0, most - 5)],
  ]);
});

it('looks after all that stand still, from the second pass on', async () => {
  const memory = { glances: new Map<number, string>(), turn: 0 };
  await take(1);
  expect(await pass(memory)).toHaveLength(limits.recoverBusy);
  expect(await pass(memory)).toEqual(saleIds.slice(limits.recoverBusy));
  expect(await remaining()).toEqual(saleIds.map(() => STOCK));
});

it('has nothing to do where both stores say the same', async () => {
  expect(await pass(undefined)).toEqual([]);
});
