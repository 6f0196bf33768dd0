/** The mirror of a sale: reservations, claims, repair, restocks. Both stores are real. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { eventually } from '../../lab/kit/eventually.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { limits } from '../../src/config/limits.ts';
import type { ClaimedReservation } from '../../src/domain/outcome.ts';
import { isUnanswered } from '../../src/store/late-requests.ts';
import { relayOutbox } from '../../src/store/outbox-relay.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import {
  claimEndMs,
  createSaleMirror,
  type SaleMirror,
  withFirstClaim,
} from '../../src/store/redis/sale-mirror.ts';
import { attemptOf, reserveFor } from '../support/attempts.ts';
import { testHealth } from '../support/background.ts';
import { users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { OwnRedis } from '../support/servers.ts';
import { openTestStores } from '../support/stores.ts';

const STOCK = 9;

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const redis = opened(() => openRedis(stores.redisUrl, () => {}));

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

const reserve = (userId: string, orderId?: string) =>
  reserveFor(redis, sales, { ...attemptOf(saleId, userId), ...(orderId && { orderId }) });

const buyers = async () => Object.keys(await redis.redis.hgetall(sales.keys(saleId).buyers));

// Simulates another server of Redis, or an older snapshot.
/** Makes the copy in Redis one of epoch 7. @param last the epoch of the last load; by default the same */
async function changeEpoch(last = 7): Promise<void> {
  await redis.redis.hset(sales.keys(saleId).state, 'epoch', 7);
  await stores.sql.query('UPDATE sales SET mirror_epoch = $2 WHERE id = $1', [saleId, last]);
}

it.each([
  [true, 7, 'keeps', { remaining: STOCK - 1, pending: 1, held: 1 }],
  [true, 8, 'drops', { remaining: STOCK, pending: 0, held: 0 }],
  [false, 7, 'drops', { remaining: STOCK, pending: 0, held: 0 }],
])(
  'a load, when answers depend on reservations (%s), last in epoch %i, %s those of 7',
  async (keeps, last, word, after) => {
    const ann = await reserve('ann');
    await age(ann, limits.claimMs + 1);
    await changeEpoch(last);
    expect(await sales.claim(ann)).toBe('claimed-by-another'); // the reservation may have been released
    expect(await sales.claimAbandoned(saleId, 9)).toEqual([]);
    const opening = createSaleMirror(redis, redisEpochs(redis, postgres), orderTable(postgres), 0, keeps);
    expect(await opening.load((await saleTable(postgres).get(saleId))!)).toBe(true);
    expect(await sales.snapshot(saleId)).toMatchObject(after);
    expect(typeof (await sales.claim(ann))).toBe(word === 'keeps' ? 'object' : 'string');
  },
);

describe('a restock', () => {
  const told: string[] = [];
  const publish = (mirror = sales) =>
    relayOutbox(
      { postgres, mirror, health: testHealth((what) => void told.push(what)).loop('mirror-outbox') },
      { saleId },
    );
  const restock = (units: number) => saleTable(postgres).restock(saleId, units, true);
  const waiting = async () =>
    (await stores.sql.query('SELECT FROM mirror_outbox WHERE sale_id = $1', [saleId])).rowCount;

  it('is published once, also when the answer was lost', async () => {
    await restock(5);
    const lost: SaleMirror = {
      ...sales,
      async applyChange(change) {
        await sales.applyChange(change);
        throw new Error('Command timed out');
      },
    };
    await publish(lost);
    expect(told.splice(0)).toEqual(['publish changes']);
    expect(await waiting()).toBe(1);
    await publish();
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK + 5 });
    expect(await waiting()).toBe(0);
  });

  it('is included in a load, and not applied again', async () => {
    await restock(5);
    await redis.redis.del(sales.keys(saleId).state);
    await publish(); // Redis does not have the sale
    expect(await waiting()).toBe(1);
    await sales.load((await saleTable(postgres).get(saleId))!);
    await publish();
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK + 5 });
    expect(await waiting()).toBe(0);
  });

  it('during a load is published afterwards', async () => {
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
    await publish();
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK + 5 });
  });
});

it('removes the reservation of an order that is released before it is acknowledged', async () => {
  const ann = await reserve('ann');
  await sales.applyChange({ change: 'release', ...ann, units: 1 });
  expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK, pending: 0, held: 0 });
});

/** Makes a claim `ms` older. */
async function age({ userId, orderId, reservedAt }: ClaimedReservation, ms: number): Promise<void> {
  const member = `${userId} ${orderId} ${reservedAt}`;
  await redis.redis.zincrby(sales.keys(saleId).reservations, -ms, member);
}

describe('a claim', () => {
  it('excludes other claims until it ends; then the oldest goes first', async () => {
    const [zoe, ann] = [await reserve('zoe'), await reserve('ann')];
    expect(await sales.claimAbandoned(saleId, 9)).toEqual([]);
    expect(await sales.claim(ann)).toBe('claimed-by-another');
    await age(zoe, limits.claimMs + 1);
    await age(ann, limits.claimMs + 100);
    const [digest] = await sales.scan([saleId]);
    expect(digest).toMatchObject({ free: STOCK - 2, pending: 2, held: 2 });
    expect(digest!.ageMs).toBeGreaterThanOrEqual(limits.claimMs + 100);
    const oldest = expect.stringMatching(/^ann /);
    expect(await sales.abandoned(saleId)).toEqual({ count: 2, oldest });
    const [first] = await sales.claimAbandoned(saleId, 1);
    expect(first).toMatchObject({ userId: 'ann', orderId: ann.orderId, reservedAt: ann.reservedAt });
    expect(await sales.claim(zoe)).toMatchObject({ userId: 'zoe', orderId: zoe.orderId });
    expect(await sales.claimAbandoned(saleId, 9)).toEqual([]);
  });

  it('gives way to a newer one: nothing under the old one releases, or ends the newer', async () => {
    const ann = await reserve('ann');
    await age(ann, limits.claimMs + 1);
    expect(await sales.release(ann)).toBe('claimed-by-another');
    await sleep(2); // claims are distinguished by their milliseconds
    const [first] = await sales.claimAbandoned(saleId, 1);
    expect(await sales.release(ann)).toBe('claimed-by-another');
    await sleep(2);
    await age(first!, limits.claimMs + 1);
    const [second] = await sales.claimAbandoned(saleId, 1);
    await sales.unclaim(first!);
    expect(await sales.release(second!)).toBe('released');
    expect(await sales.claim(ann)).toBe('released');
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK, pending: 0, held: 0 });
  });

  it('is not released by another server than the one that has its reservation', async () => {
    const ann = await reserve('ann');
    expect(await sales.release({ ...ann, epoch: ann.epoch! + 1 })).toBe('elsewhere');
    expect(await sales.claim(ann, ann.epoch! + 1)).toBe('claimed-by-another'); // it may still be reserved there
    expect(await sales.claim(ann, ann.epoch)).toBe('released');
  });

  it('of a buyer without a reservation records it again', async () => {
    const ann = await reserve('ann');
    await redis.redis.del(sales.keys(saleId).reservations);
    const claimed = await sales.claim(ann);
    expect(claimed).toMatchObject({ orderId: ann.orderId });
    expect(await sales.snapshot(saleId)).toMatchObject({ remaining: STOCK - 1, pending: 1, held: 1 });
  });

  it('does not hide the order of a reservation', async () => {
    const { orderId } = await reserve('ann');
    for (const user of [null, 'ann']) expect(await sales.isReserved(saleId, orderId, user)).toBe(true);
    expect(await sales.isReserved(saleId, orderId, 'bob')).toBe(false);
    expect(await sales.isReserved(saleId, randomUUID(), 'ann')).toBe(false);
    expect(await sales.isReserved(saleId + 1, orderId, null)).toBe(false);
    expect(await sales.isReservedFor(saleId, 'ann')).toBe(true);
    expect(await sales.isReservedFor(saleId, 'bob')).toBe(false);
  });
});

it('finds a reservation by its order among many', async () => {
  const { reservations } = sales.keys(saleId);
  const members = users(5_000).flatMap((user) => [1, `${user} ${randomUUID()} 1`]);
  await redis.redis.zadd(reservations, ...members);
  const ids = [1, 4_999, 9_999].map((i) => String(members[i]).split(' ')[1]!);
  for (const id of ids) expect(await sales.isReserved(saleId, id, null)).toBe(true);
});

it('releases a unit once, into its own segment', async () => {
  await openSale(3);
  const keys = sales.keys(saleId);
  const units = () => redis.redis.hgetall(keys.counters);
  const epoch = await sales.epoch(saleId);
  const [attempt, part] = [attemptOf(saleId, 'ann'), { counter: '1', units: 1, token: null }];
  const reply = await redis.scripts.fencedDeduct(keys, attempt, [part], 'none', epoch);
  if (isUnanswered(reply)) throw new Error(reply.reason);
  const [word, reservedAt] = reply;
  expect([word, await units()]).toEqual(['reserved', { 0: '3', 1: '2', 2: '3' }]);
  const ann = withFirstClaim({ ...attempt, reservedAt: reservedAt! }, claimEndMs());
  expect(await sales.release({ ...ann, reservedAt: `${Number.parseInt(reservedAt!, 10) - 1}:1` })).toBe(
    'gone',
  );
  expect([await sales.release(ann), await sales.release(ann)]).toEqual(['released', 'gone']);
  expect([await units(), await buyers()]).toEqual([{ 0: '3', 1: '3', 2: '3' }, []]);
});

it('takes under a lock neither a unit nor a customer that a late payment has taken without it', async () => {
  await openSale(3);
  const keys = sales.keys(saleId);
  const epoch = await sales.epoch(saleId);
  const deduct = (userId: string, counter: string) => {
    const part = { counter, units: 1, token: null };
    return redis.scripts.fencedDeduct(keys, attemptOf(saleId, userId), [part], 'none', epoch);
  };
  const revived = attemptOf(saleId, 'ann');
  expect(await sales.revive(revived)).toBe('taken');
  expect(await deduct('ann', '1')).toEqual(['held', '0', revived.orderId]);
  await redis.redis.hset(keys.counters, '1', 0);
  expect(await deduct('bob', '1')).toEqual(['empty']);
  expect(await buyers()).toEqual(['ann']);
});

it('a copy of a sale is confirmed for one connection', async () => {
  await using link = await TcpProxy.to(stores.redisUrl);
  const store = await openRedis(link.through(stores.redisUrl), () => {});
  const mirror = createSaleMirror(store, redisEpochs(store, postgres), orderTable(postgres), 0, true);
  const epoch = await mirror.epoch(saleId);
  expect(mirror.isConfirmed(saleId, epoch)).toBe(false);
  expect(await mirror.confirm(saleId)).toBe(true);
  expect(mirror.isConfirmed(saleId, epoch)).toBe(true);
  expect(mirror.isConfirmed(saleId, epoch + 1)).toBe(false);
  link.cut();
  await eventually(
    async () => mirror.isConfirmed(saleId, epoch),
    (isConfirmed) => !isConfirmed,
  );
  await eventually(
    () => mirror.epoch(saleId).catch(() => null),
    (again) => again === epoch,
  );
  expect(mirror.isConfirmed(saleId, epoch)).toBe(false); // although the epoch is known again

  await changeEpoch(8); // the sale is loaded in another Redis
  await redis.redis.hset(sales.keys(saleId).state, 'epoch', epoch);
  expect(await mirror.confirm(saleId)).toBe(false);
  expect(await redis.redis.hget(sales.keys(saleId).state, 'epoch')).toBe(String(-epoch)); // the copy serves nothing
  await eventually(
    () => mirror.confirm(saleId).catch(() => false), // it is connected again
    (isLeft) => isLeft,
  );
  expect(mirror.isConfirmed(saleId, epoch)).toBe(false); // it is to be loaded
  await store.close();
});

it('a primary that was a replica meanwhile is in another epoch, also on the same connection', async () => {
  await using own = await OwnRedis.open();
  await using other = await OwnRedis.open();
  const store = await openRedis(own.url, () => {});
  const epochs = redisEpochs(store, postgres);
  const key = 'stampede:{sale:1}:state';
  const before = await epochs.current(key);
  expect(await epochs.current(key)).toBe(before);
  await store.redis.replicaof('127.0.0.1', other.port);
  await epochs.check();
  await expect(epochs.current(key)).rejects.toThrow('this server is a replica');
  await store.redis.replicaof('NO', 'ONE');
  const after = await epochs.current(key);
  expect(after).not.toBe(before);
  // No check runs while the server is a replica.
  await store.redis.replicaof('127.0.0.1', other.port);
  await store.redis.replicaof('NO', 'ONE');
  await epochs.check();
  expect([before, after]).not.toContain(await epochs.current(key));
  await store.close();
});
