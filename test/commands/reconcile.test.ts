/**
 * `npm run reconcile` finds every difference between the two stores that is planted here, repairs those that can be repaired,
 * changes nothing with --check, and is not misled by a running sale.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { buy, call, createSale, eventually, users } from '../support/client.ts';
import { pendingWork } from '../support/judge.ts';
import { opened } from '../support/opened.ts';
import { installService, runCommand, startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const AGREES = 'Redis agrees with Postgres.\n';

describe('beside a service with local stores', () => {
  it('finds the stores while the service runs, and fails otherwise', async () => {
    await using installed = await installService();
    const check = () => runCommand('reconcile', {}, ['--check'], installed.folder);
    const service = installed.start({ STRATEGY: 'lua' });
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

/** What differs between the copies of sales is tested in process: test/store/reload.test.ts. */
const STRATEGY = 'segmented-lock';

describe(STRATEGY, () => {
  const stores = opened(openTestStores);
  const start = () => startService({ ...envOf(stores), STRATEGY });
  const run = (...args: string[]) => runCommand('reconcile', { ...envOf(stores), STRATEGY }, args);
  const key = (saleId: number, name: string) => `stampede:{sale:${saleId}}:${name}`;
  const sql = (text: string, values: unknown[]) => stores.sql.query(text, values);
  /** Adds units in Redis that Postgres does not have. */
  const addUnits = (saleId: number, units: number) =>
    stores.redis.hincrby(key(saleId, 'segments'), '7', units);

  /** The data of the sales in both stores. */
  async function everything(): Promise<unknown> {
    const tables = ['sales', 'orders', 'points_entries', 'mirror_outbox', 'redis_epochs', 'tasks'];
    const rows = tables.map(async (table) => (await sql(`SELECT * FROM ${table} ORDER BY 1`, [])).rows);
    const names = (await stores.redis.keys('stampede:{sale:*')).sort();
    return [await Promise.all(rows), names, await Promise.all(names.map((name) => stores.redis.dump(name)))];
  }

  /** Sales of 10 units, 4 of them sold, which differ in what a test plants. */
  const sales: { readonly saleId: number; readonly orderIds: readonly string[] }[] = [];
  const idOf = (n: number) => sales[n]!.saleId;
  const keyOf = (n: number, name: string) => key(idOf(n), name);
  const ABANDONED = '0198a000-0000-7000-8000-000000000001';
  /** What is found of each sale that differs. */
  const DIFFERENCES: Readonly<Record<number, readonly string[]>> = {
    0: ['Redis has 9 units free or reserved, Postgres 6'],
    1: ['Redis has 4 units free or reserved, Postgres 6'],
    2: ['Redis knows buyers of 3 units, Postgres of 4'],
    3: [
      '1 units changed in Postgres and not in Redis yet',
      'Redis has 6 units free or reserved, Postgres 7',
      'Redis knows buyers of 4 units, Postgres of 3',
    ],
    4: ['1 reservations in Redis are abandoned'],
    5: [
      'Postgres counts 5 sold, and 4 in active orders',
      '1 orders have other points entries than one and its reversal',
      'Redis has 6 units free or reserved, Postgres 5',
      'Redis knows buyers of 4 units, Postgres of 5',
    ],
  };
  const UNCOMMITTED = '1 reservations in Redis are not committed yet.';
  const linesOf = (...numbers: number[]) =>
    numbers.flatMap((n) => DIFFERENCES[n]!.map((difference) => `sale ${idOf(n)}: ${difference}`));

  /** Cancels the order of user-0 in Postgres, and does not publish it. */
  async function release({ saleId, orderIds: [orderId] }: (typeof sales)[number]): Promise<void> {
    await sql(`UPDATE orders SET status = 'cancelled', closed_at = now() WHERE id = $1`, [orderId]);
    await sql('UPDATE sales SET sold = sold - 1 WHERE id = $1', [saleId]);
    await sql(
      `INSERT INTO points_entries (user_id, source_type, source_id, points)
       VALUES ('user-0', 'order-reversal', $1, -5)`,
      [orderId],
    );
    await sql(
      `INSERT INTO mirror_outbox (order_id, sale_id, user_id, change) VALUES ($1, $2, 'user-0', 'release')`,
      [orderId, saleId],
    );
  }

  beforeAll(async () => {
    await using service = await start();
    for (let i = 0; i < 8; i++) {
      const { id } = await createSale(service.url, 10);
      const answers = await Promise.all(users(4).map((user) => buy(service.url, id, user)));
      sales.push({ saleId: id, orderIds: answers.map(({ body }) => String(body.orderId)) });
      const left = () => pendingWork(stores.sql, stores.redis, id);
      await eventually(left, ({ length }) => length === 0);
    }
    await service.stop();
    await addUnits(idOf(0), 3);
    await addUnits(idOf(1), -2);
    await stores.redis.hdel(keyOf(2, 'buyers'), 'user-1');
    await release(sales[3]!);

    const madeMs = Date.now() - 60_000;
    const reservedAt = `${madeMs}:7`;
    await stores.redis.zadd(keyOf(4, 'reservations'), madeMs, `dead ${ABANDONED} ${reservedAt}`);
    await stores.redis.hset(keyOf(4, 'buyers'), 'dead', `${ABANDONED} ${reservedAt}`);
    await addUnits(idOf(4), -1);

    await sql('UPDATE sales SET sold = sold + 1 WHERE id = $1', [idOf(5)]);
    await sql(`DELETE FROM points_entries WHERE source_id = $1`, [sales[5]!.orderIds[2]]);
    // The next attempt loads this one: it does not differ.
    await release(sales[6]!);
    await stores.redis.del(await stores.redis.keys(keyOf(6, '*')));
  });

  it('finds every difference of units, buyers, unpublished changes, reservations and points, and changes nothing', async () => {
    const before = await everything();
    const { code, out } = await run('--check');
    expect(code, out).toBe(1);
    const expected = [...linesOf(0, 1, 2, 3, 4, 5), UNCOMMITTED, '6 sales differ.'];
    expect(out.trimEnd().split('\n').sort()).toEqual(expected.sort());
    expect(await everything()).toEqual(before);
  });

  it('says that Redis was not compared, without its URL or with a strategy that decides in Postgres', async () => {
    const ofPostgres = DIFFERENCES[5]!.slice(0, 2).map((difference) => `sale ${idOf(5)}: ${difference}\n`);
    for (const [env, why] of [
      [{ REDIS_URL: '' }, 'REDIS_URL names none'],
      [{ STRATEGY: 'group-commit' }, 'STRATEGY=group-commit decides in Postgres'],
    ] as const) {
      const { code, out } = await runCommand('reconcile', { ...envOf(stores), ...env }, ['--check']);
      expect(code, out).toBe(1);
      expect(out).toBe(`${ofPostgres.join('')}1 sales differ.\nRedis was not compared: ${why}.\n`);
    }
  });

  it('repairs what Redis has wrong, and reports where Postgres contradicts itself', async () => {
    const { code, out, err } = await run();
    expect({ code, err }).toEqual({ code: 1, err: '' });
    // The changes of all sales were published with the first.
    const repaired = [0, 1, 2].map((n) => `sale ${idOf(n)}: repaired`);
    const lines = out.trimEnd().split('\n');
    expect(lines.filter((line) => / repaired$| differ\.$/.test(line))).toEqual([
      ...repaired,
      '2 sales differ.',
    ]);
    for (const n of [0, 1, 2, 3]) expect(await pendingWork(stores.sql, stores.redis, idOf(n))).toEqual([]);
    expect(await stores.redis.hget(keyOf(2, 'buyers'), 'user-1')).toBe(`${sales[2]!.orderIds[1]} 0`);
  });

  it('an abandoned reservation: a service commits it', async () => {
    await using service = await start();
    await expect.poll(() => pendingWork(stores.sql, stores.redis, idOf(4))).toEqual([]);
    expect(await call(`${service.url}/orders/${ABANDONED}`)).toMatchObject({ body: { userId: 'dead' } });
  });

  it('a sale that cannot be compared: the others are', async () => {
    const state = keyOf(7, 'segments');
    await stores.redis.rename(state, `${state}-kept`);
    await stores.redis.set(state, 'of another type');
    const { code, out } = await run('--check');
    expect(code).toBe(2);
    expect(out).toContain(`could not compare sale ${idOf(7)}: `);
    expect(out).toContain(linesOf(5)[0]);
    expect(out).not.toContain(`sale ${idOf(0)}`);
  });

  it('reports no difference of a running sale', async () => {
    await using service = await start();
    const { id } = await createSale(service.url, 1_000_000);
    await sql(`UPDATE sales SET ends_at = '2020-01-01' WHERE id <> $1`, [id]);
    let running = true;
    const crowd = users(6).map((name) => trade(service, id, name, () => running));
    const reports: Awaited<ReturnType<typeof run>>[] = [];
    for (let i = 0; i < 3; i++) {
      const { out, ...rest } = await run('--check');
      reports.push({ ...rest, out: out.replace(/^\d+ reservations in Redis are not committed yet\.\n/, '') });
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
