/** Faults between the two stores that once broke a promise. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { type Answer, attempt, buy, createSale, eventually, post, users } from '../support/client.ts';
import { openScene } from '../support/scene.ts';
import { OwnRedis } from '../support/servers.ts';

const scene = openScene();
const { start, sold } = scene;
const prefix = (saleId: number) => `stampede:{sale:${saleId}}`;

describe('Redis unreachable', () => {
  it('a sale is created and restocked once, and published to Redis later', async () => {
    const redis = scene.kept(await OwnRedis.open());
    const service = await start({ REDIS_URL: redis.url });
    const early = await createSale(service.url, 1);
    await buy(service.url, early.id, 'a');
    await redis.kill();
    const restocked = await post(`${service.url}/sales/${early.id}/restock`, { units: 2 });
    expect(restocked).toMatchObject({ status: 200, body: { stock: 3 } });
    expect((await post(`${service.url}/sales`, { name: 's', stock: 1, priceCents: 1 })).status).toBe(201);
    expect((await attempt(service.url, early.id, 'b')).problem).toMatch(/busy|unknown-outcome/);
    await redis.start();
    for (const user of ['b', 'c']) expect((await buy(service.url, early.id, user)).status).toBeLessThan(300);
    expect((await buy(service.url, early.id, 'd')).problem).toBe('sold-out');
  });

  it('no password is logged', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-secret-'));
    const server = await startRedisServer({
      folder,
      password: 'right-and-secret',
      args: ['--appendonly', 'no'],
    });
    const service = await start({ REDIS_URL: server.url });
    const admin = new Redis(server.url);
    admin.on('error', () => {}); // it is locked out, too
    await admin.config('SET', 'requirepass', 'rotated');
    await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no').catch(() => {});
    await expect.poll(() => service.log.join('\n')).toContain('redis-connection');
    expect(service.log.join('\n')).not.toContain('right-and-secret');
    admin.disconnect();
    await server.kill();
    await rm(folder, { recursive: true });
  });
});

it('a sale whose keys have another type fails alone: the others sell and are repaired', async () => {
  const service = await start({ STRATEGY: 'lua' });
  const [broken, sound] = await Promise.all([createSale(service.url, 50), createSale(service.url, 50)]);
  for (const { id } of [broken, sound])
    expect((await buy(service.url, id, 'first')).status).toBeLessThan(300);
  await scene.stores.redis.set(`${prefix(broken.id)}:reservations`, 'what is this');
  await scene.stores.redis.hincrby(`${prefix(sound.id)}:state`, 'remaining', 7);
  // Attempts at both sales come together, so they share batches.
  const answers = await Promise.all(
    users(30).map((user, i) => buy(service.url, (i % 2 ? broken : sound).id, user)),
  );
  const statuses = answers.map(({ status }) => (status === 200 ? 201 : status)); // 200: an earlier answer was unknown
  expect(statuses).toEqual(answers.map((_, i) => (i % 2 ? 500 : 201)));
  await expect
    .poll(() => scene.stores.redis.hget(`${prefix(sound.id)}:state`, 'remaining'))
    .toBe(String(50 - 16));
});

describe('Redis losing its data', () => {
  it.each([
    ['lua', 'buyers'],
    ['segmented-lock', 'state'],
    ['segmented-lock', 'segments'],
    ['global-lock', 'fence'],
    ['global-lock', 'state'],
  ])('%s heals when %s alone is lost', async (STRATEGY, key) => {
    const service = await start({ STRATEGY });
    // While a unit is left, a forgotten customer's attempt takes one, and then finds the order.
    const units = key === 'buyers' ? 4 : 10;
    const sale = await createSale(service.url, units);
    for (const user of users(4)) await buy(service.url, sale.id, user);
    await scene.stores.redis.del(`${prefix(sale.id)}:${key}`);
    const repeat = () => Promise.all(users(4).map((user) => attempt(service.url, sale.id, user)));
    await eventually(repeat, (answers) => answers.every(({ status }) => status === 200));
    for (const user of users(units - 4, 'next'))
      expect((await buy(service.url, sale.id, user)).status).toBeLessThan(300);
    expect((await buy(service.url, sale.id, 'late')).problem).toBe('sold-out');
    expect(await sold(sale.id)).toBe(units);
  });

  it('one attempt copies the buyers while the others wait', async () => {
    const service = await start();
    const sale = await createSale(service.url, 30_000);
    await scene.stores.sql.query(
      `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
       SELECT gen_random_uuid(), $1, 'old-' || n, 'pending', 1, now() FROM generate_series(1, 20000) n`,
      [sale.id],
    );
    await scene.stores.sql.query('UPDATE sales SET sold = 20000 WHERE id = $1', [sale.id]);
    await scene.stores.redis.flushdb();
    const waiting = Promise.all(users(150).map((user) => buy(service.url, sale.id, user)));
    let copies = 0;
    for (let done = false; !done; ) {
      copies = Math.max(copies, (await scene.stores.redis.keys(`${prefix(sale.id)}:buyers:*`)).length);
      done = await Promise.race([waiting.then(() => true), sleep(5, false)]);
    }
    expect((await waiting).every((answer) => answer.status < 300)).toBe(true);
    expect(copies).toBeLessThanOrEqual(1);
  });

  it('a load that lost its connection, and could not give up its claim, is repeated by its process', async () => {
    const link = await scene.proxyTo(scene.stores.redisUrl);
    const service = await start({ REDIS_URL: link.through(scene.stores.redisUrl) });
    const sale = await createSale(service.url, 2);
    const { redis } = scene.stores;
    await redis.flushdb();
    link.watch = (request) => {
      if (!/hmget.*:state.*epoch/is.test(request)) return 'pass'; // the load, after its claim
      link.watch = null;
      return 'drop';
    };
    expect((await attempt(service.url, sale.id, 'a')).status).toBe(503);
    expect(await redis.pttl(`${prefix(sale.id)}:loading`)).toBeGreaterThan(0);
    const answers: Answer[] = [];
    await eventually(
      async () => answers[answers.push(await attempt(service.url, sale.id, 'a')) - 1]!,
      ({ status }) => status === 201,
    );
    expect(answers.map(({ body }) => body.reason)).not.toContain('sale-is-being-loaded');
  });
});

it('segments can be increased while Redis keeps its data, to ten thousand', async () => {
  const few = await start({ STRATEGY: 'segmented-lock', SEGMENTS: '7' });
  const sale = await createSale(few.url, 5);
  await few.stop();
  const many = await start({ STRATEGY: 'segmented-lock', SEGMENTS: '10000' });
  for (const units of [3, -2])
    expect((await post(`${many.url}/sales/${sale.id}/restock`, { units })).status).toBe(200);
  const answers = await Promise.all(users(20).map((user) => buy(many.url, sale.id, user)));
  expect(answers.filter((answer) => answer.status < 300)).toHaveLength(6); // 200: after an unknown outcome
});
