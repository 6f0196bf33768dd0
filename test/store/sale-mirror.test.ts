/** The mirror of a sale: claims, reads, epochs, and the relay of each of two copies. Both stores are real. */
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { beforeEach, describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { limits } from '../../src/config/limits.ts';
import type { ClaimedReservation } from '../../src/domain/outcome.ts';
import { createOutboxRelay, type OutboxRelay } from '../../src/store/outbox-relay.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror, type SaleMirror } from '../../src/store/redis/sale-mirror.ts';
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
const create = (stock: number) =>
  saleTable(postgres, 'USD').create({ name: 'a', stock, priceCents: 1, startsAt: null, endsAt: null });
const mirrorIn = (one: RedisStore) =>
  createSaleMirror(one, redisEpochs(one, postgres), orderTable(postgres), 0);
beforeEach(async () => {
  const sale = await create(STOCK);
  saleId = sale.id;
  sales = mirrorIn(redis);
  await sales.load(sale);
});

const reserve = (userId: string) => reserveFor(redis, sales, attemptOf(saleId, userId));

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
    expect(await sales.reservations(saleId)).toMatchObject([{ userId: 'ann' }, { userId: 'zoe' }]);
    const [first] = (await sales.claimAbandoned(saleId, 1))!;
    expect(first).toMatchObject({ userId: 'ann', orderId: ann.orderId, reservedAt: ann.reservedAt });
    expect(await sales.claim(zoe)).toMatchObject({ userId: 'zoe', orderId: zoe.orderId });
    expect(await sales.claimAbandoned(saleId, 9)).toEqual([]);
  });

  it('needs the sale in Redis: none is given while it is not loaded', async () => {
    const ann = await reserve('ann');
    await age(ann, limits.claimMs + 1);
    await redis.redis.hdel(sales.keys(saleId).state, 'epoch');
    expect(await sales.claimAbandoned(saleId, 9)).toBeNull();
    await sales.load({ id: saleId });
    expect(await sales.claimAbandoned(saleId, 9)).toMatchObject([{ userId: 'ann' }]);
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

it('a primary that was a replica meanwhile is in another epoch, also on the same connection', async () => {
  await using own = await OwnRedis.open();
  await using other = await OwnRedis.open();
  const store = await openRedis(own.url, () => {});
  const epochs = redisEpochs(store, postgres);
  const epoch = async () => (await epochs.current('stampede:{sale:1}:state')).epoch;
  const before = await epoch();
  expect(await epoch()).toBe(before);
  const client = new Redis(own.url);
  await client.replicaof('127.0.0.1', other.port);
  await epochs.check();
  await expect(epoch()).rejects.toThrow('this server is a replica');
  await client.replicaof('NO', 'ONE');
  await expect.poll(() => epoch().catch(() => before)).not.toBe(before); // it connects again
  const after = await epoch();
  expect(after).not.toBe(before);
  // No check runs while the server is a replica.
  await client.replicaof('127.0.0.1', other.port);
  await client.replicaof('NO', 'ONE');
  await epochs.check();
  expect([before, after]).not.toContain(await epoch());
  client.disconnect();
  await store.close();
});

const relayTo = (store: RedisStore): OutboxRelay =>
  createOutboxRelay(postgres, mirrorIn(store), testHealth().loop('mirror-outbox'));
const ageChanges = () =>
  stores.sql.query(`UPDATE mirror_outbox SET created_at = now() - $1 * interval '1 millisecond'`, [
    2 * limits.outboxKeepMs,
  ]);

it('loads a sale whose last copy is in a replaced Redis, and keeps its change until then', async () => {
  await using own = await OwnRedis.open();
  const store = await openRedis(own.url, () => {});
  const [before, after] = [relayTo(redis), relayTo(store)];
  const [broken, sale] = [await create(1), await create(1)];
  for (const { id } of [broken, sale]) {
    await before.mirror.load({ id });
    await after.mirror.epoch(id); // it is seen later
    await saleTable(postgres, 'USD').restock(id, 1, true);
  }
  await store.redis.set(after.mirror.keys(broken.id).state, 'of another type'); // it does not stop the other
  await ageChanges();
  const changes = () => stores.sql.query('SELECT FROM mirror_outbox WHERE sale_id = $1', [sale.id]);
  await after.publish();
  expect((await changes()).rowCount).toBe(1);
  expect(await before.mirror.isCurrent(sale.id, await after.mirror.epoch(sale.id))).toBe(true);
  await relayTo(store).publish();
  expect((await changes()).rowCount).toBe(0);
  expect(await after.mirror.digest(sale.id)).toMatchObject({ free: 2 });
  await stores.sql.query('DELETE FROM mirror_outbox');
  await store.close();
});

it('loads a sale where its address leads back to a Redis that it had left', async () => {
  await using first = await OwnRedis.open();
  await using second = await OwnRedis.open();
  await using link = await TcpProxy.to(first.url);
  const store = await openRedis(link.through(first.url), () => {});
  const relay = relayTo(store);
  const sale = await create(1);
  await relay.mirror.load(sale);
  link.lead(second.port);
  await expect.poll(() => relay.mirror.load(sale).catch(() => false)).toBe(true);
  await saleTable(postgres, 'USD').restock(sale.id, 1, true);
  await ageChanges();
  link.lead(first.port);
  const changes = async () => {
    await relay.publish();
    return (await stores.sql.query('SELECT FROM mirror_outbox WHERE sale_id = $1', [sale.id])).rowCount;
  };
  await expect.poll(changes).toBe(0);
  expect(await relay.mirror.digest(sale.id)).toMatchObject({ free: 2 });
  await store.close();
});

it('leaves changes of a sale that was loaded in the other to that one, however old, and publishes those behind them', async () => {
  await using own = await OwnRedis.open();
  const other = await openRedis(own.url, () => {});
  // That one was seen later: it may be the primary by now.
  const [here, there] = [relayTo(other), relayTo(redis)];
  const [ofHere, ofThere] = [await create(1), await create(1)];
  await here.mirror.load(ofHere);
  await there.mirror.load(ofThere);
  const { restock } = saleTable(postgres, 'USD');
  for (let n = 0; n < limits.outboxBatch; n++) await restock(ofHere.id, 1, true);
  await ageChanges();
  await restock(ofThere.id, 1, true);
  await there.publish();
  await there.publish();
  expect(await there.mirror.digest(ofThere.id)).toMatchObject({ free: 2 });
  await here.publish();
  expect(await here.mirror.digest(ofHere.id)).toMatchObject({ free: 1 + limits.outboxBatch });
  await other.close();
});

it('passes an order to a customer with a reservation once that is released, and only once', async () => {
  const [given, other] = [await reserve('giver'), await reserve('taker')];
  const { orderId } = given;
  const change = {
    change: 'transfer',
    saleId,
    orderId,
    userId: 'giver',
    toUserId: 'taker',
    units: 1,
  } as const;
  expect(await sales.applyChange(change)).toBe('not-loaded'); // it stays in the outbox
  expect(await sales.digest(saleId)).toMatchObject({ free: STOCK - 2, held: 2 });
  expect(await sales.release(other)).toBe('released');
  for (const _ of [1, 2]) expect(await sales.applyChange(change)).toBe('applied');
  expect(await sales.digest(saleId)).toMatchObject({ free: STOCK - 1, held: 1, pending: 0 });
  await sales.applyChange({ ...change, change: 'release', userId: 'taker' });
  await reserve('giver');
  expect(await sales.applyChange(change)).toBe('applied'); // again, of a relay that had no answer
  expect(await sales.digest(saleId)).toMatchObject({ free: STOCK - 1, held: 1, pending: 1 });
});

it('gives Redis all orders that it lacks, of more than one batch, at once', async () => {
  const orders = limits.outboxBatch + 1;
  const sale = await create(orders + 1);
  await sales.load(sale);
  const { rows } = await stores.sql.query<{ id: string }>(
    `INSERT INTO orders (id, sale_id, user_id, status, quantity, price_cents, expires_at)
     SELECT gen_random_uuid(), $1, 'user-' || n, 'pending', 1, 500, now() + interval '1 day'
     FROM generate_series(1, $2::int) AS n RETURNING id`,
    [sale.id, orders],
  );
  const relay = createOutboxRelay(postgres, sales, testHealth().loop('mirror-outbox'));
  await relay.take(rows.map(({ id }) => id));
  expect(await sales.digest(sale.id)).toMatchObject({ free: 1, pending: 0, held: orders });
});

it('waits for a replica to know that a load begins, before it marks the sale in Postgres', async () => {
  const primary = await openRedis(stores.redisUrl, () => {}, 1); // without a replica, the wait ends by its timeout
  const events: (string | boolean)[] = [];
  const watchReplication = (key: string) => {
    const counts = primary.watchReplication(key);
    return async () => events[events.push(await counts()) - 1] === true;
  };
  const orders = orderTable(postgres);
  const markLoaded: typeof orders.markLoaded = async (...mark) => {
    const begun = Object.keys(await redis.redis.hgetall(sales.keys(saleId).state));
    events.push(begun.some((field) => field.startsWith('begun ')) ? 'begun, and marked' : 'marked');
    return orders.markLoaded(...mark);
  };
  await stores.sql.query('DELETE FROM redis_epochs'); // the next one is another
  try {
    const epochs = redisEpochs(primary, postgres);
    const store = { ...primary, watchReplication };
    await createSaleMirror(store, epochs, { ...orders, markLoaded }, 0, true).load({ id: saleId });
  } finally {
    await primary.close();
  }
  expect(events).toEqual([false, 'begun, and marked']);
});

it('ends a connection to a Redis that is silent', async () => {
  const link = await TcpProxy.to(stores.redisUrl);
  const store = await openRedis(link.through(stores.redisUrl), () => {});
  const closed = new Promise<void>((resolve) => store.redis.once('close', resolve));
  link.set('black-hole');
  await expect(store.ping()).rejects.toThrow('Command timed out');
  await closed;
  await store.close();
  await link.close();
});

it('gives no units to an order that is closed by now: its release would add them to a copy that has sold them', async () => {
  const sale = await create(1);
  const { rows } = await stores.sql.query<{ id: string }>(
    `INSERT INTO orders (id, sale_id, user_id, status, quantity, price_cents, expires_at, closed_at)
     VALUES (gen_random_uuid(), $1, 'bob', 'cancelled', 1, 1, now(), now()) RETURNING id`,
    [sale.id],
  );
  await sales.load(sale);
  await reserveFor(redis, sales, attemptOf(sale.id, 'ann'));
  await stores.sql.query(
    `INSERT INTO mirror_outbox (sale_id, change, order_id, user_id, units)
     SELECT $1, change, $2, 'bob', 1 FROM unnest('{take,release}'::text[]) AS change`,
    [sale.id, rows[0]!.id],
  );
  const relay = createOutboxRelay(postgres, sales, testHealth().loop('mirror-outbox'));
  while ((await relay.publish()) > 0);
  expect(await sales.digest(sale.id)).toMatchObject({ free: 0, held: 1 });
  expect((await stores.sql.query('SELECT FROM mirror_outbox WHERE sale_id = $1', [sale.id])).rowCount).toBe(
    0,
  );
});
