/** Which sales the reaper repairs: those that differ and are idle. Both stores are real. */
import { beforeEach, expect, it, vi } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createBacklog } from '../../src/orders/backlog.ts';
import { compareSale } from '../../src/orders/drift.ts';
import { type PreviousPass, type ReaperContext, reapOnce } from '../../src/orders/reservation-reaper.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { testHealth } from '../support/background.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const SALES = 5;
const STOCK = 1_000;

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const redis = opened(() => openRedis(stores.redisUrl, () => {}));
let saleIds: number[];
let repaired: number[];
let context: ReaperContext;

beforeEach(async () => {
  await stores.sql.query('TRUNCATE sales CASCADE');
  const sales = saleTable(postgres, 'USD');
  const orders = orderTable(postgres);
  const mirror = createSaleMirror(redis, redisEpochs(redis, postgres), orders, 0);
  saleIds = [];
  for (let i = 0; i < SALES; i++) {
    const sale = await sales.create({ name: 'a', stock: STOCK, priceCents: 1, startsAt: null, endsAt: null });
    await mirror.load(sale);
    saleIds.push(sale.id);
  }
  repaired = [];
  context = {
    sales,
    orders,
    mirror,
    committer: {} as ReaperContext['committer'],
    backlog: createBacklog(),
    instruments: createInstruments(),
    log: (message, details) => {
      if (message.startsWith('repaired')) repaired.push((details as { saleId: number }).saleId);
    },
    health: testHealth((what, error) => {
      throw new Error(what, { cause: error });
    }).loop('reservation-reaper'),
  };
});

const state = (saleId: number) => `stampede:{sale:${saleId}}:state`;
/** Lowers the counts, as if units were sold since Postgres was read, or missing. */
const take = (units: number) =>
  Promise.all(saleIds.map((id) => redis.redis.hincrby(state(id), 'remaining', -units)));
const remaining = async () =>
  Promise.all(saleIds.map(async (id) => Number(await redis.redis.hget(state(id), 'remaining'))));

/** @returns the sales that one pass repaired */
async function pass(memory: PreviousPass | null): Promise<number[]> {
  repaired = [];
  await reapOnce(context, () => false, memory);
  return repaired;
}

it('repairs sales that look the same in two passes', async () => {
  const memory: PreviousPass = new Map();
  await take(1);
  expect(await pass(memory)).toEqual([]);
  expect(await pass(memory)).toEqual(saleIds);
  expect(await remaining()).toEqual(saleIds.map(() => STOCK));
  expect(await pass(memory)).toEqual([]);
});

it('sees sales behind one that another strategy has left in Redis', async () => {
  const { orders } = context;
  const mirror = createSaleMirror(redis, redisEpochs(redis, postgres), orders, 3);
  const last = (await context.sales.get(saleIds.at(-1)!))!;
  await mirror.load(last); // the others have one counter each
  const digests = await mirror.scan(saleIds);
  const others = saleIds.slice(1).map(() => ({ free: null, pending: 0, held: 0 }));
  expect(digests).toMatchObject([...others, { free: STOCK, pending: 0, held: 0 }]);
});

it('repairs every sale at once before the first request', async () => {
  await take(1);
  expect(await pass(null)).toEqual(saleIds);
});

it('does not compare sales that are selling', async () => {
  const memory: PreviousPass = new Map();
  const compared = vi.spyOn(context.sales, 'get');
  for (const units of [1, 10, 100]) {
    await take(units);
    expect(await pass(memory)).toEqual([]);
  }
  expect(compared).not.toHaveBeenCalled();
  expect(await pass(memory)).toEqual(saleIds); // idle now
});

it('a difference whose numbers change between comparisons is reported', async () => {
  const [saleId] = saleIds as [number];
  let n = 0;
  const add = async () => {
    await redis.redis.zadd(`stampede:{sale:${saleId}}:reservations`, ++n, `user-${n} order-${n} ${n}`);
    await stores.sql.query('UPDATE sales SET sold = sold + 1 WHERE id = $1', [saleId]);
    return context.sales.get(saleId);
  };
  const listed = (await add())!;
  const { differences } = await compareSale({ ...context, sales: { ...context.sales, get: add } }, listed);
  expect(differences).toContain('Postgres counts 4 sold, and 0 in active orders');
  expect(differences).toContain('4 reservations in Redis are abandoned');
});

it('commits the other reservations when one fails, and retries that one', async () => {
  const [saleId] = saleIds as [number];
  const orderOf = (n: number) => `01939b2e-7f7c-7000-8000-00000000000${n}`;
  const entries = ['ann', 'bob', 'eve'].flatMap((user, i) => [1, `${user} ${orderOf(i)} 1`]);
  await redis.redis.zadd(`stampede:{sale:${saleId}}:reservations`, ...entries);
  let fails = true;
  const committed: string[] = [];
  const commit = async ({ userId }: { userId: string }) => {
    if (userId === 'ann' && fails) throw new TypeError('only ann');
    committed.push(userId);
    return { kind: 'accepted' };
  };
  const reported: string[] = [];
  const background = testHealth((what) => reported.push(what));
  context = {
    ...context,
    health: background.loop('reservation-reaper'),
    committer: { commit } as unknown as ReaperContext['committer'],
  };
  for (let passes = 0; passes < 3; passes++) {
    await take(1); // it is selling
    await reapOnce(context);
  }
  expect(committed.slice(0, 2)).toEqual(['bob', 'eve']);
  expect(reported).toEqual([`order ${orderOf(0)}`]);
  expect(background.degraded()).toEqual([
    { what: 'reservation-reaper', detail: `1 failing; order ${orderOf(0)}: only ann` },
  ]);
  fails = false;
  await reapOnce(context);
  expect(committed).not.toContain('ann'); // its claim still holds
  const key = `stampede:{sale:${saleId}}:reservations`;
  await redis.redis.zincrby(key, -limits.claimMs, entries[1] as string);
  await reapOnce(context);
  expect(committed).toContain('ann');
  expect(background.degraded()).toEqual([]);
  expect(reported).toHaveLength(1);
});

it('counts the reservations of the others when a sale cannot be read', async () => {
  const backlog = createBacklog();
  backlog.left();
  await redis.redis.set(`stampede:{sale:${saleIds[0]}}:reservations`, 'of another type');
  const reported: string[] = [];
  const health = testHealth((what) => reported.push(what)).loop('reservation-reaper');
  context = { ...context, backlog, health };
  await reapOnce(context);
  expect(backlog.size).toBe(0);
  expect(reported).toEqual([`sale ${saleIds[0]}`]);
});
