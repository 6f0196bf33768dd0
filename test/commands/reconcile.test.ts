/**
 * `npm run reconcile` finds every difference between the two stores that is planted here, repairs those that can be repaired,
 * changes nothing with --check, and is not misled by a running sale.
 */
import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { buy, call, createSale, eventually, users } from '../support/client.ts';
import { pendingWork } from '../support/judge.ts';
import { opened } from '../support/opened.ts';
import { entryOf, installService, startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const AGREES = 'Redis agrees with Postgres.\n';

interface Reconciled {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs what `npm run reconcile` runs. @param folder the installation; by default this checkout */
function reconcile(
  env: Readonly<Record<string, string>>,
  args: readonly string[] = [],
  folder?: string,
): Promise<Reconciled> {
  const options = { env: { PATH: process.env.PATH, ...env } };
  return new Promise((resolve) => {
    execFile(process.execPath, [entryOf('reconcile', folder), ...args], options, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    );
  });
}

describe('without a configuration', () => {
  it.each([
    [{}, 'DATABASE_URL must name the Postgres of the service'],
    [{ REDIS_URL: 'redis://127.0.0.1:1' }, 'DATABASE_URL must name the Postgres of the service'],
    [{ DATABASE_URL: 'postgresql://127.0.0.1:1/x' }, 'REDIS_URL must name the Redis of the service'],
    [{ STRATEGY: 'luck' }, 'STRATEGY="luck" must be one of'],
  ])('%j: says what is missing, and exits with 2', async (env, sentence) => {
    const { code, out, err } = await reconcile(env);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain(sentence);
    expect(err).not.toContain(' at '); // no stack
  });
});

describe('beside a service with local stores', () => {
  it('finds the stores while the service runs, and fails otherwise', async () => {
    await using installed = await installService();
    const check = () => reconcile({}, ['--check'], installed.folder);
    const service = installed.start({});
    try {
      const url = (await service.url)!;
      const { id } = await createSale(url, 5);
      await buy(url, id, 'ann');
      expect(await check()).toEqual({ code: 0, out: AGREES, err: '' });
    } finally {
      await service.stop();
    }
    expect(await check()).toMatchObject({ code: 2, out: '' });
  });
});

describe.each(['lua', 'segmented-lock'])('%s', { timeout: 240_000 }, (STRATEGY) => {
  const stores = opened(openTestStores);
  const start = () => startService({ ...envOf(stores), STRATEGY });
  const run = (...args: string[]) => reconcile({ ...envOf(stores), STRATEGY }, args);
  const key = (saleId: number, name: string) => `stampede:{sale:${saleId}}:${name}`;
  const sql = (text: string, values: unknown[]) => stores.sql.query(text, values);
  /** Adds units in Redis that Postgres does not have. */
  const addUnits = (saleId: number, units: number) =>
    STRATEGY === 'lua'
      ? stores.redis.hincrby(key(saleId, 'state'), 'remaining', units)
      : stores.redis.hincrby(key(saleId, 'segments'), '7', units);

  /** Sets the end of all other sales to 2020. */
  const onlySale = (saleId: number) =>
    sql(`UPDATE sales SET ends_at = CASE WHEN id = $1 THEN NULL ELSE '2020-01-01'::timestamptz END`, [
      saleId,
    ]);

  /** The data of the sales in both stores. */
  async function everything(): Promise<unknown> {
    const tables = ['sales', 'orders', 'points_entries', 'mirror_outbox', 'redis_epochs', 'tasks'];
    const rows = tables.map(async (table) => (await sql(`SELECT * FROM ${table} ORDER BY 1`, [])).rows);
    const names = (await stores.redis.keys('stampede:{sale:*')).sort();
    return [await Promise.all(rows), names, await Promise.all(names.map((name) => stores.redis.dump(name)))];
  }

  describe('no service runs', () => {
    const sales: { readonly saleId: number; readonly orderIds: readonly string[] }[] = [];
    let saleId: number;
    let orderIds: readonly string[];

    /** A sale of 10 units for each test, 4 of them sold, in which both stores agree. */
    beforeAll(async () => {
      await using service = await start();
      for (let i = 0; i < 9; i++) {
        const { id } = await createSale(service.url, 10);
        const answers = await Promise.all(users(4).map((user) => buy(service.url, id, user)));
        sales.push({ saleId: id, orderIds: answers.map(({ body }) => String(body.orderId)) });
        const left = () => pendingWork(stores.sql, stores.redis, id);
        await eventually(left, ({ length }) => length === 0);
      }
    });

    beforeEach(async () => {
      ({ saleId, orderIds } = sales.pop()!);
      await onlySale(saleId);
    });

    /** Checks, changes nothing, and reports these differences of the sale. */
    async function expectFound(...differences: RegExp[]): Promise<void> {
      const before = await everything();
      const { code, out } = await run('--check');
      expect(code, out).toBe(1);
      const lines = out.trimEnd().split('\n');
      expect(lines.pop()).toBe('1 sales differ.');
      for (const line of lines) expect(line).toMatch(new RegExp(`^sale ${saleId}: `));
      for (const difference of differences)
        expect(lines.map((line) => line.slice(line.indexOf(':') + 2))).toContainEqual(
          expect.stringMatching(difference),
        );
      expect(lines).toHaveLength(differences.length);
      expect(await everything()).toEqual(before);
    }

    /** Repairs, and then finds no difference. */
    async function expectRepaired(): Promise<void> {
      const { code, out, err } = await run();
      expect(out).toContain(AGREES);
      expect({ code, err }).toEqual({ code: 0, err: '' });
      expect(await run('--check')).toEqual({ code: 0, out: AGREES, err: '' });
      expect(await pendingWork(stores.sql, stores.redis, saleId)).toEqual([]);
    }

    it('agrees', async () => {
      expect(await run('--check')).toEqual({ code: 0, out: AGREES, err: '' });
      expect(await run()).toEqual({ code: 0, out: AGREES, err: '' });
    });

    it.each([3, -2])('Redis has %i units too many', async (units) => {
      await addUnits(saleId, units);
      await expectFound(new RegExp(`^Redis has ${6 + units} units free or reserved, Postgres 6$`));
      await expectRepaired();
    });

    it('Redis lacks a buyer', async () => {
      await stores.redis.hdel(key(saleId, 'buyers'), 'user-1');
      await expectFound(/^Redis knows buyers of 3 units, Postgres of 4$/);
      await expectRepaired();
      expect(await stores.redis.hget(key(saleId, 'buyers'), 'user-1')).toBe(`${orderIds[1]} 0`);
    });

    /** Cancels the order of user-0 in Postgres, and does not publish it. */
    async function release(): Promise<void> {
      const [orderId] = orderIds;
      await sql(`UPDATE orders SET status = 'cancelled', closed_at = now() WHERE id = $1`, [orderId]);
      await sql('UPDATE sales SET sold = sold - 1 WHERE id = $1', [saleId]);
      await sql(
        `INSERT INTO points_entries (user_id, source_type, source_id, points)
        VALUES ('user-0', 'order-reversal', $1, -5)`,
        [orderId],
      );
      await sql(
        `INSERT INTO mirror_outbox (order_id, sale_id, user_id, change)
        VALUES ($1, $2, 'user-0', 'release')`,
        [orderId, saleId],
      );
    }

    it('a released unit of a sale that is not in Redis is no difference: the next attempt loads it', async () => {
      await release();
      await stores.redis.del(await stores.redis.keys(key(saleId, '*')));
      expect(await run('--check')).toEqual({ code: 0, out: AGREES, err: '' });
      await sql('DELETE FROM mirror_outbox', []);
    });

    it('a sale that cannot be compared: the others are', async () => {
      const differing = sales.at(-1)!.saleId;
      await sql('UPDATE sales SET ends_at = NULL WHERE id = $1', [differing]);
      await addUnits(differing, 3);
      const state = key(saleId, STRATEGY === 'lua' ? 'state' : 'segments');
      await stores.redis.rename(state, `${state}-kept`);
      await stores.redis.set(state, 'of another type');
      const { code, out } = await run('--check');
      expect(code).toBe(2);
      expect(out).toContain(`could not compare sale ${saleId}: `);
      expect(out).toContain(`sale ${differing}: Redis has 9 units free or reserved, Postgres 6`);
      await addUnits(differing, -3);
      await stores.redis.del(state);
    });

    it('a released unit is not published to Redis', async () => {
      await release();
      await expectFound(
        /^1 units changed in Postgres and not in Redis yet$/,
        /^Redis has 6 units free or reserved, Postgres 7$/,
        /^Redis knows buyers of 4 units, Postgres of 3$/,
      );
      await expectRepaired();
    });

    it('an abandoned reservation: a service commits it', async () => {
      const orderId = '0198a000-0000-7000-8000-000000000001';
      const madeMs = Date.now() - 60_000;
      const reservedAt = STRATEGY === 'lua' ? `${madeMs}` : `${madeMs}:7`;
      await stores.redis.zadd(key(saleId, 'reservations'), madeMs, `dead ${orderId} ${reservedAt}`);
      await stores.redis.hset(key(saleId, 'buyers'), 'dead', `${orderId} ${reservedAt}`);
      await addUnits(saleId, -1);
      await expectFound(/^1 reservations in Redis are abandoned$/);
      const { code, out, err } = await run();
      expect([code, out.split('\n').at(-2), err]).toEqual([1, '1 sales differ.', '']);
      await using service = await start();
      await expect.poll(() => pendingWork(stores.sql, stores.redis, saleId)).toEqual([]);
      expect(await call(`${service.url}/orders/${orderId}`)).toMatchObject({ body: { userId: 'dead' } });
      expect(await run('--check')).toEqual({ code: 0, out: AGREES, err: '' });
    });

    it('Postgres contradicts itself: reported, and not repaired', async () => {
      await sql('UPDATE sales SET sold = sold + 1 WHERE id = $1', [saleId]);
      await sql(`DELETE FROM points_entries WHERE source_id = $1`, [orderIds[2]]);
      const inPostgres = [
        /^Postgres counts 5 sold, and 4 in active orders$/,
        /^1 orders have other points entries than one and its reversal$/,
      ];
      await expectFound(
        ...inPostgres,
        /^Redis has 6 units free or reserved, Postgres 5$/,
        /^Redis knows buyers of 4 units, Postgres of 5$/,
      );
      const { code, out, err } = await run();
      expect([code, out.split('\n').at(-2), err]).toEqual([1, '1 sales differ.', '']);
    });
  });

  it('reports no difference of a running sale', async () => {
    await using service = await start();
    const { id } = await createSale(service.url, 1_000_000);
    await onlySale(id);
    let running = true;
    const crowd = users(6).map((name) => trade(service, id, name, () => running));
    const reports: Reconciled[] = [];
    for (let i = 0; i < 5; i++) {
      reports.push(await run('--check'));
      await sleep(100);
    }
    running = false;
    const orders = (await Promise.all(crowd)).reduce((sum, n) => sum + n);
    expect(orders).toBeGreaterThan(50);
    expect(reports).toEqual(reports.map(() => ({ code: 0, out: AGREES, err: '' })));
  });
});

/** Buys repeatedly under new names, and cancels every other order. @returns the number of orders */
async function trade(service: TestService, saleId: number, name: string, goesOn: () => boolean) {
  let orders = 0;
  while (goesOn()) {
    const { body } = await buy(service.url, saleId, `${name}-${orders}`);
    if (orders++ % 2 === 0) await call(`${service.url}/orders/${body.orderId}/cancel`, { method: 'POST' });
    await sleep(20);
  }
  return orders;
}
