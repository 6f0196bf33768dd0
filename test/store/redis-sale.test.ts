/** What Redis keeps of reservations, and when it lets itself be corrected. Both stores are real. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import type { ClaimedReservation } from '../../src/domain/outcome.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createOutboxRelay } from '../../src/orders/outbox-relay.ts';
import { compare, repair } from '../../src/orders/reconcile.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { tellRestocks } from '../../src/store/postgres/restock-moves.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import {
  claimEndMs,
  createSaleMirror,
  type SaleMirror,
  withFirstClaim,
} from '../../src/store/redis/sale-mirror.ts';
import { testHealth } from '../support/background.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

const STOCK = 9;

let stores: TestStores;
let postgres: PostgresStore;
let redis: RedisStore;
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

let saleId: number;
let sales: SaleMirror;
beforeEach(() => openSale(0));

/** @param segments 0: one counter */
async function openSale(segments: number): Promise<void> {
  const given = { name: 'a', stock: STOCK, priceCents: 1, startsAt: null, endsAt: null };
  const sale = await saleTable(postgres).create(given);
  saleId = sale.id;
  sales = createSaleMirror(redis, redisEpochs(redis, postgres), orderTable(postgres), segments);
  await sales.load(sale);
}

async function reserve(userId: string, orderId: string = randomUUID()): Promise<ClaimedReservation> {
  const [word, held, reservedAt] = await redis.scripts.reserve(
    sales.keys(saleId),
    userId,
    orderId,
    await sales.epoch(),
  );
  expect([word, held]).toEqual(['reserved', orderId]);
  return withFirstClaim({ saleId, userId, orderId, reservedAt: reservedAt! }, claimEndMs());
}

const buyers = async () => Object.keys(await redis.redis.hgetall(sales.keys(saleId).buyers));

it('corrects a sale in which nothing has happened since the look', async () => {
  await sales.acknowledge([await reserve('ann')]);
  const seen = (await sales.snapshot(saleId))!;
  expect(seen).toMatchObject({ remaining: STOCK - 1, pending: 0, buyers: 1 });
  expect(await sales.repair(saleId, seen, STOCK)).toBe(true);
  expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK, pending: 0, buyers: 0 });
});

it.each<[string, () => Promise<unknown>]>([
  ['a reservation is under way', () => reserve('bob')],
  ['one was settled', async () => sales.acknowledge([await reserve('bob')])],
  [
    'one was settled, and its unit came back',
    async () => {
      const bob = await reserve('bob');
      await sales.acknowledge([bob]);
      await sales.applyChange({ direction: 'back', ...bob });
    },
  ],
  ['one was made and given up', async () => sales.release(await reserve('bob'))],
  [
    'a unit was taken off and added',
    async () => {
      await sales.restock(saleId, -1);
      await sales.restock(saleId, 1);
    },
  ],
])('does not correct a sale in which %s since the look', async (_, happens) => {
  const seen = (await sales.snapshot(saleId))!;
  await happens();
  const before = await sales.snapshot(saleId);
  expect(await sales.repair(saleId, seen, 1)).toBe(false);
  expect(await sales.snapshot(saleId)).toEqual(before);
});

it('does not correct a sale while a reservation is under way', async () => {
  const ann = await reserve('ann');
  const seen = (await sales.snapshot(saleId))!;
  expect(await sales.repair(saleId, seen, STOCK)).toBe(false);
  await sales.acknowledge([ann]);
  expect(await sales.repair(saleId, seen, STOCK)).toBe(true);
});

it('counts a reservation that is committed and settled while the sale is opened', async () => {
  const ann = await reserve('ann');
  await redis.redis.hset(sales.keys(saleId).state, 'epoch', 'of another Redis');
  const orders = orderTable(postgres);
  const meanwhile: typeof orders = {
    ...orders,
    async snapshot(...given) {
      const snapshot = await orders.snapshot(...given); // Postgres does not have ann's order
      await sales.acknowledge([ann]); // by now it does
      return snapshot;
    },
  };
  const opening = createSaleMirror(redis, redisEpochs(redis, postgres), meanwhile, 0);
  expect(await opening.load((await saleTable(postgres).get(saleId))!)).toBe(true);
  expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK - 1, pending: 1, buyers: 1 });
  await sales.acknowledge([ann]); // recovery does
  expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK - 1, pending: 0, buyers: 1 });
});

describe('a restock', () => {
  const told: string[] = [];
  const tell = (mirror = sales) =>
    tellRestocks({
      postgres,
      mirror,
      health: testHealth((what) => void told.push(what)).loop('restock-moves'),
    });
  const restock = (units: number) => saleTable(postgres).restock(saleId, units, true);
  const waiting = async () =>
    (await stores.sql.query('SELECT FROM restock_moves WHERE sale_id = $1', [saleId])).rowCount;

  it('is told once, also when the answer was lost', async () => {
    await restock(5);
    const lost: SaleMirror = {
      ...sales,
      async restock(...given) {
        await sales.restock(...given);
        throw new Error('Command timed out');
      },
    };
    await tell(lost);
    expect(told.splice(0)).toEqual(['tell redis of restocks']);
    expect(await waiting()).toBe(1);
    await tell();
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK + 5 });
    expect(await waiting()).toBe(0);
  });

  it('is in what a sale is opened with, and not told again', async () => {
    await restock(5);
    await redis.redis.del(sales.keys(saleId).state);
    await tell(); // nobody to tell
    expect(await waiting()).toBe(1);
    await sales.load((await saleTable(postgres).get(saleId))!);
    await tell();
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK + 5 });
    expect(await waiting()).toBe(0);
  });

  it('that comes while the sale is opened is told afterwards', async () => {
    await redis.redis.del(sales.keys(saleId).state);
    const orders = orderTable(postgres);
    const meanwhile: typeof orders = {
      ...orders,
      async snapshot(...given) {
        const snapshot = await orders.snapshot(...given);
        await restock(5);
        return snapshot;
      },
    };
    const opening = createSaleMirror(redis, redisEpochs(redis, postgres), meanwhile, 0);
    await opening.load((await saleTable(postgres).get(saleId))!);
    await tell();
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK + 5 });
  });

  it('that Redis has not heard of is not corrected as well', async () => {
    const orders = orderTable(postgres);
    const log = vi.fn();
    const context = {
      mirror: sales,
      sales: saleTable(postgres),
      orders,
      instruments: createInstruments(),
      log,
    };
    await restock(5);
    const sale = (await context.sales.get(saleId))!;
    expect(await repair(context, sale)).toBe(false);
    expect([...(await compare(context, sale)).differences.values()]).toContain(
      'Redis has not heard of 5 units that were returned or taken again',
    );
    await tell();
    expect(await repair(context, sale)).toBe(false);
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK + 5 });
  });
});

it('tells of the units of other sales while one of them cannot be told', async () => {
  const broken = saleId;
  const [ann, ...others] = await Promise.all(['ann', 'bob', 'cyd'].map((user) => reserve(user)));
  await openSale(0);
  const eve = await reserve('eve');
  const moves = async (of: ClaimedReservation, times = 1) => {
    for (let i = 0; i < times; i++)
      await stores.sql.query(
        `INSERT INTO unit_moves (order_id, sale_id, user_id, direction) VALUES ($1, $2, $3, 'back')`,
        [times > 1 ? randomUUID() : of.orderId, of.saleId, of.userId],
      );
  };
  await moves(ann!, limits.outboxBatch);
  for (const other of others) await moves(other);
  await moves(eve);
  const key = sales.keys(broken).buyers;
  await redis.redis.rename(key, `${key}:before`);
  await redis.redis.set(key, 'something else');
  const { tell } = createOutboxRelay({
    postgres,
    mirror: sales,
    background: testHealth(),
    onError: () => {},
  });
  expect(await tell()).toBe(0); // the oldest, of the sale that is broken
  expect(await tell()).toBe(1);
  expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK });
});

it('forgets the reservation of a unit that came back before it was settled', async () => {
  const ann = await reserve('ann');
  await sales.applyChange({ direction: 'back', ...ann });
  expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK, pending: 0, buyers: 0 });
});

/** As if a claim had been made so long ago. */
async function age({ userId, orderId, reservedAt }: ClaimedReservation, ms: number): Promise<void> {
  const member = `${userId} ${orderId} ${reservedAt}`;
  await redis.redis.zincrby(sales.keys(saleId).reservations, -ms, member);
}

describe('a claim', () => {
  it('keeps others from a reservation until it is over; then the oldest goes first', async () => {
    const [zoe, ann] = [await reserve('zoe'), await reserve('ann')];
    expect(await sales.claimAbandoned(saleId, 9)).toEqual([]);
    expect(await sales.claim(ann)).toBe('claimed-by-another');
    await age(zoe, limits.claimMs + 1);
    await age(ann, limits.claimMs + 100);
    const [glance] = await sales.scan([saleId]);
    expect(glance).toMatchObject({ free: STOCK - 2, pending: 2, buyers: 2 });
    expect(glance!.ageMs).toBeGreaterThanOrEqual(limits.claimMs + 100);
    expect(await sales.countAbandoned(saleId)).toBeGreaterThanOrEqual(1);
    const [first] = await sales.claimAbandoned(saleId, 1);
    expect(first).toMatchObject({ userId: 'ann', orderId: ann.orderId, reservedAt: ann.reservedAt });
    expect(await sales.claim(zoe)).toMatchObject({ userId: 'zoe', orderId: zoe.orderId });
    expect(await sales.claimAbandoned(saleId, 9)).toEqual([]);
  });

  it('is lost to a newer one: a release under the old one fails', async () => {
    const ann = await reserve('ann');
    await age(ann, limits.claimMs + 1);
    expect(await sales.release(ann)).toBe(false);
    await sleep(2); // claims are told apart by their milliseconds
    const [claimed] = await sales.claimAbandoned(saleId, 1);
    expect(await sales.release(ann)).toBe(false);
    expect(await sales.release(claimed!)).toBe(true);
    expect(await sales.claim(ann)).toBe('released');
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK, pending: 0, buyers: 0 });
  });

  it('that is given up leaves the reservation to the next who looks, unless another has it', async () => {
    const ann = await reserve('ann');
    await age(ann, limits.claimMs + 1);
    const [first] = await sales.claimAbandoned(saleId, 1);
    await sleep(2);
    await age(first!, limits.claimMs + 1);
    const [second] = await sales.claimAbandoned(saleId, 1);
    await sales.unclaim(first!);
    expect(await sales.release(second!)).toBe(true);
  });

  it('of a buyer whose reservation is lost records it anew', async () => {
    const ann = await reserve('ann');
    await redis.redis.del(sales.keys(saleId).reservations);
    const claimed = await sales.claim(ann);
    expect(claimed).toMatchObject({ orderId: ann.orderId });
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK - 1, pending: 1, buyers: 1 });
  });

  it('does not hide a reservation from who looks for its order', async () => {
    const { orderId } = await reserve('ann');
    expect(await sales.isReserved(orderId, [saleId + 1, saleId])).toBe(true);
    expect(await sales.isReserved(randomUUID(), [saleId])).toBe(false);
    expect([await sales.isReservedFor(saleId, 'ann'), await sales.isReservedFor(saleId, 'bob')]).toEqual([
      true,
      false,
    ]);
  });
});

it('gives a reservation up once, into the segment that it came from', async () => {
  await openSale(3);
  const keys = sales.keys(saleId);
  const units = () => redis.redis.hgetall(keys.counters);
  const fence = { token: null, lock: 'none' };
  const epoch = await sales.epoch();
  const orderId = randomUUID();
  const [word, reservedAt] = await redis.scripts.fencedDeduct(keys, '1', 'ann', orderId, fence, epoch);
  expect([word, await units()]).toEqual(['reserved', { 0: '3', 1: '2', 2: '3' }]);
  const ann = withFirstClaim({ saleId, userId: 'ann', orderId, reservedAt: reservedAt! }, claimEndMs());
  expect(await sales.release({ ...ann, reservedAt: `${Number.parseInt(reservedAt!, 10) - 1}:1` })).toBe(
    false,
  );
  expect([await sales.release(ann), await sales.release(ann)]).toEqual([true, false]);
  expect([await units(), await buyers()]).toEqual([{ 0: '3', 1: '3', 2: '3' }, []]);
});

it('opens a sale with what is reserved already, less what Postgres has by now', async () => {
  const ann = await reserve('ann');
  await reserve('bob');
  await stores.sql.query(
    `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
     VALUES ($1, $2, 'ann', 'pending', 1, now() + interval '1 hour')`,
    [ann.orderId, saleId],
  );
  const sale = await stores.sql.query('UPDATE sales SET sold = 1 WHERE id = $1', [saleId]);
  expect(sale.rowCount).toBe(1);
  await redis.redis.del(sales.keys(saleId).state, sales.keys(saleId).buyers);
  await sales.load((await saleTable(postgres).get(saleId))!);
  expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK - 2, pending: 1, buyers: 2 });
});
