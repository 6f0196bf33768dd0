import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { audit } from '../../lab/audit/audit.ts';
import {
  readStores as readAll,
  type Settled,
  type SettleWait,
  settle as settleAll,
} from '../../lab/audit/reader.ts';
import { removeFolder, temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { startPostgres } from '../../lab/servers/postgres-folder.ts';
import { openStores, type StoresOptions } from '../../lab/servers/stores.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { opened } from '../support/opened.ts';
import { openStoresWithRedis } from '../support/stores.ts';

const stores = opened(openStoresWithRedis); // the bench empties the whole Redis
let redis: Redis;
beforeAll(() => {
  redis = new Redis(stores.redisUrl);
});
afterAll(() => redis.disconnect());
beforeEach(async () => {
  await redis.flushall();
});

const id = (n: number): string => `01900000-0000-7000-8000-${String(n).padStart(12, '0')}`;

/** A sale with one order per buyer, and its points. */
async function makeSale(stock: number, buyers: readonly string[], sold = buyers.length): Promise<number> {
  const { sql } = stores;
  await sql.query(`TRUNCATE sales, orders, points_entries, payment_notifications, tasks, mirror_outbox, stock_units
     RESTART IDENTITY CASCADE`);
  const sale = await sql.query<{ id: number }>(
    `INSERT INTO sales (name, price_cents, stock, sold) VALUES ('test', 100, $1, $2) RETURNING id`,
    [stock, sold],
  );
  const saleId = sale.rows[0]!.id;
  for (const [n, buyer] of buyers.entries()) {
    await sql.query(
      `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
       VALUES ($1, $2, $3, 'pending', 100, now() + interval '1 hour')`,
      [id(n), saleId, buyer],
    );
    await sql.query(
      `INSERT INTO points_entries (user_id, source_type, source_id, points) VALUES ($1, 'order', $2, 1)`,
      [buyer, id(n)],
    );
  }
  return saleId;
}

describe("the audit's reader", () => {
  const place = (saleId: number) => ({ databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, saleId });
  type Place = ReturnType<typeof place>;
  const settle = async (at: Place, wait?: SettleWait) =>
    (await settleAll(at, [at.saleId], wait)).get(at.saleId)!;
  const readStores = async (at: Place, settled: Settled) =>
    (await readAll(at, [at.saleId], new Map([[at.saleId, settled]]))).get(at.saleId)!;

  it('reads the sale, its orders, what belongs to them, and what Redis would still sell', async () => {
    const { sql } = stores;
    const saleId = await makeSale(5, ['ann', 'bob', 'cyd'], 2);
    const settled = await settle(place(saleId));
    expect(settled).toEqual({ unsettled: 0, unpublished: 0, settling: false });
    const nothing = { remaining: null, held: null };
    expect((await readStores(place(saleId), settled)).redis).toMatchObject(nothing);
    await redis.hset(`stampede:{sale:${saleId}}:segments`, { 0: 2, 1: 0, 2: 3 });
    expect((await readStores(place(saleId), settled)).redis).toMatchObject({ remaining: 5, held: 0 });
    await redis.del(`stampede:{sale:${saleId}}:segments`);
    await redis.hset(`stampede:{sale:${saleId}}:state`, { remaining: 3 });
    await redis.hset(`stampede:{sale:${saleId}}:buyers`, { ann: `${id(0)} 0`, cyd: `${id(2)} 0` });
    for (const [text, ...values] of [
      [
        "UPDATE orders SET status = CASE id WHEN $1 THEN 'paid' ELSE 'cancelled' END WHERE id <> $2",
        id(0),
        id(2),
      ],
      [
        `INSERT INTO points_entries (user_id, source_type, source_id, points)
         VALUES ('bob', 'order-reversal', $1, -1), ('bob', 'welcome', 'x', 100)`,
        id(1),
      ],
      [
        `INSERT INTO payment_notifications (id, order_id, amount_cents, result) VALUES ('n', $1, 100, 'paid')`,
        id(0),
      ],
      [
        `INSERT INTO tasks (kind, payload, state)
         VALUES ('ship', $1, 'dead'), ('award', '{}', 'waiting'), ('tidy', '{}', 'done')`,
        { orderId: id(0) },
      ],
      [
        `INSERT INTO mirror_outbox (order_id, sale_id, user_id, change)
         VALUES ($1, $2, 'bob', 'release'), ($1, $2 + 1, 'bob', 'release')`,
        id(1),
        saleId,
      ],
      [
        `INSERT INTO stock_units (sale_id, unit, order_id)
         VALUES ($1, 1, $2), ($1, 2, $3), ($1, 3, $4), ($1, 4, NULL)`,
        saleId,
        id(0),
        id(1),
        id(7),
      ],
    ] as [string, ...unknown[]][])
      await sql.query(text, values);
    const order = (n: number, userId: string, status: string) => {
      return { id: id(n), saleId, userId, status, quantity: 1, earns: 1, transferredFrom: null };
    };
    const points = (n: number, userId: string, sourceType = 'order', count = 1) => {
      return { userId, sourceType, sourceId: id(n), points: count };
    };
    const { postgres, redis: mirror } = await readStores(place(saleId), settled);
    expect(postgres).toMatchObject({
      sale: { id: saleId, stock: 5, sold: 2, epoch: null, loadedInto: null },
      points: [points(0, 'ann'), points(1, 'bob'), points(2, 'cyd'), points(1, 'bob', 'order-reversal', -1)],
      payments: [{ id: 'n', orderId: id(0), result: 'paid' }],
      tasks: [
        { kind: 'ship', orderId: id(0), state: 'dead' },
        { kind: 'award', orderId: null, state: 'waiting' },
      ],
      unpublished: 1,
      heldUnits: 2,
    });
    const orders = [order(0, 'ann', 'paid'), order(1, 'bob', 'cancelled'), order(2, 'cyd', 'pending')];
    expect(postgres).toHaveProperty('orders', expect.arrayContaining(orders));
    expect(mirror).toEqual({ remaining: 3, held: 2, unsettled: 0, settling: false, epoch: null });
  });

  it('ignores a copy that another server has brought, under the number of the last epoch', async () => {
    const saleId = await makeSale(5, []);
    const store = await openRedis(stores.redisUrl, () => {});
    const postgres = openPostgres(stores.databaseUrl, () => {});
    const { epoch } = await redisEpochs(store, postgres).fresh('any', 1);
    await Promise.all([store.close(), postgres.close()]);
    await stores.sql.query('UPDATE sales SET mirror_epoch = $2 WHERE id = $1', [saleId, epoch]);
    await redis.hset(`stampede:{sale:${saleId}}:state`, { remaining: 3, epoch });
    const remaining = async () => {
      const settled = { unsettled: 0, unpublished: 0, settling: false };
      const { redis } = await readStores(place(saleId), settled);
      return 'remaining' in redis ? redis.remaining : redis.unreadable;
    };
    expect(await remaining()).toBe(3);
    await stores.sql.query(`UPDATE redis_epochs SET incarnation = 'another server' WHERE epoch = $1`, [
      epoch,
    ]);
    expect(await remaining()).toBeNull();
  });

  it('waits until every change is published to Redis, and counts those that are not', async () => {
    const saleId = await makeSale(5, []);
    const { sql } = stores;
    const move = `INSERT INTO mirror_outbox (order_id, sale_id, user_id, change) VALUES ($1, $2, 'ann', 'release')`;
    await sql.query(move, [id(0), saleId]);
    const publishing = setTimeout(() => void sql.query('DELETE FROM mirror_outbox'), 300);
    expect(await settle(place(saleId))).toEqual({ unsettled: 0, unpublished: 0, settling: false });
    clearTimeout(publishing);
    await sql.query(move, [id(0), saleId]);
    const wait = { timeoutMs: 600, stuckAfterMs: 300 };
    expect(await settle(place(saleId), wait)).toEqual({ unsettled: 0, unpublished: 1, settling: false });
    await sql.query('DELETE FROM mirror_outbox');
  });

  it('distinguishes stuck reservations from those being settled', async () => {
    const reservations = 'stampede:{sale:1}:reservations';
    for (let n = 0; n < 200; n++) await redis.zadd(reservations, n, `ann ${n} ${n}`);
    const wait = { timeoutMs: 600, stuckAfterMs: 300 };
    expect(await settle(place(1), wait)).toEqual({ unsettled: 200, unpublished: 0, settling: false });
    const drain = setInterval(() => void redis.zpopmin(reservations), 30);
    expect(await settle(place(1), wait)).toMatchObject({ settling: true });
    clearInterval(drain);
  });

  it('reports what could not be read', async () => {
    const saleId = await makeSale(5, []);
    const away = { databaseUrl: 'postgres://x:y@127.0.0.1:1/z', redisUrl: 'redis://127.0.0.1:1', saleId };
    const settled = await settle(away);
    expect(settled).toEqual({ unreadable: expect.stringMatching(/ECONNREFUSED|closed/) });
    expect(audit([], await readStores(away, settled)).verdict).toBe('unknown');
    expect((await readStores(place(saleId + 1), settled)).postgres).toEqual({
      unreadable: `there is no sale ${saleId + 1}`,
    });
  });
});

describe('stores for trials', () => {
  const options = (changes: Partial<StoresOptions> = {}): StoresOptions => ({
    databaseUrl: inject('postgresUrl'),
    redisUrl: stores.redisUrl,
    keep: false,
    mayDelete: false,
    say: () => {},
    ...changes,
  });

  /** This file's databases: other files run the bench on the same server at the same time. */
  async function databases(): Promise<string[]> {
    const { rows } = await stores.sql.query<{ datname: string }>(
      `SELECT datname FROM pg_database WHERE datname LIKE 'stampede\\_bench\\_%\\_here'`,
    );
    return rows.map(({ datname }) => datname);
  }

  it('are created for each trial, and leave only foreign keys and databases', async () => {
    await redis.set('somebody-else', '1');
    const before = await databases();
    {
      await using bench = await openStores(options());
      await using trial = await bench.fresh('here');
      const made = (await databases()).filter((name) => !before.includes(name));
      expect(made).toEqual([new URL(trial.databaseUrl).pathname.slice(1)]);
      await redis.set('stampede:{sale:1}:state', 'x');
      // A connection that is still open does not stop the database from being dropped.
      const client = new pg.Client({ connectionString: trial.databaseUrl });
      client.on('error', () => {});
      await client.connect();
    }
    expect(await databases()).toEqual(before);
    expect(await redis.keys('*')).toEqual(['somebody-else']);
  });

  it('reject a Redis that serves a Stampede, unless its keys may be deleted', async () => {
    await redis.set('stampede:{sale:1}:state', 'x');
    await expect(openStores(options())).rejects.toThrow(/already holds keys of a Stampede .*--yes/s);
    expect(await redis.exists('stampede:{sale:1}:state')).toBe(1);
    await using bench = await openStores(options({ mayDelete: true }));
    await using _trial = await bench.fresh('here');
    expect(await redis.keys('*')).toEqual([]);
  });
});

it.runIf(process.platform === 'linux')(
  'a folder goes with the shared memory of its killed Postgres',
  async () => {
    const folder = await temporaryFolder('stampede-test-killed-');
    const server = await startPostgres({ folder });
    const segments = async () =>
      (await readFile('/proc/sysvipc/shm', 'utf8')).split('\n').map((line) => line.trim().split(/\s+/)[1]);
    const [, id] = (await readFile(path.join(folder, 'data/postmaster.pid'), 'utf8'))
      .split('\n')[6]!
      .trim()
      .split(/\s+/);
    await server.kill();
    expect(await segments()).toContain(id);
    await removeFolder(folder);
    expect(existsSync(folder)).toBe(false);
    await expect.poll(segments).not.toContain(id); // backends end a moment later
  },
);
