/** CELL_DATABASE_URLS: one service over two Postgres, whose promises hold in each, and which looks like one from outside. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { serviceUrlOf } from '../../src/local/postgres-roles.ts';
import { attempt, buy, call, cancel, createSale, patch, pay, post, users } from '../support/client.ts';
import { askRoute, makeThings, ROUTES } from '../support/every-route.ts';
import { openIssuer } from '../support/issuer.ts';
import { OwnPostgres } from '../support/servers.ts';
import { runCommand, startService } from '../support/service.ts';

/** One that names a sale. */
const newOrderId = (saleId: number) => randomUUID().slice(0, -8) + saleId.toString(16).padStart(8, '0');

let servers: readonly OwnPostgres[];
beforeAll(async () => {
  servers = await Promise.all([OwnPostgres.open(), OwnPostgres.open()]);
});
afterAll(() => Promise.all(servers.map((server) => server[Symbol.asyncDispose]())));

/** Databases for two cells, one on each server. */
async function openCells() {
  const urls = await Promise.all(servers.map((server) => server.database()));
  const pools = urls.map((connectionString) => new pg.Pool({ connectionString, max: 2 }));
  for (const pool of pools) pool.on('error', () => {}); // a test kills servers
  const [first, second] = urls.map(serviceUrlOf) as [string, string];
  return {
    pools,
    urls: [first, second] as const,
    env: { DATABASE_URL: first, CELL_DATABASE_URLS: second, TASK_WEBHOOK_URL: 'none', RETENTION_DAYS: '0' },
    sql: async (cell: number, text: string, values: unknown[] = []) =>
      (await pools[cell]!.query(text, values)).rows,
    /** The sales that each cell has. */
    sales: () =>
      Promise.all(
        pools.map(async (pool) =>
          (await pool.query('SELECT id FROM sales ORDER BY id')).rows.map(({ id }) => id),
        ),
      ),
    [Symbol.asyncDispose]: async () => void (await Promise.all(pools.map((pool) => pool.end()))),
  };
}

it('deals sales over the cells, and orders live in the cell of their sale', async () => {
  await using cells = await openCells();
  await using service = await startService(cells.env);
  const { url } = service;
  const ids: number[] = [];
  for (let n = 0; n < 4; n++) ids.push((await createSale(url, 10, { waitlist: 'hold' })).id);
  const [a, b, c, d] = ids as [number, number, number, number];
  expect(await cells.sales()).toEqual([
    [a, c],
    [b, d],
  ]);

  for (const saleId of [a, b]) {
    const order = async (userId: string) => (await buy(url, saleId, userId)).body.orderId as string;
    const [paid, refunded, cancelled, passed] = await Promise.all(['ann', 'bob', 'cid', 'dan'].map(order));
    expect(await attempt(url, saleId, 'ann')).toMatchObject({ status: 200, body: { orderId: paid } });
    expect((await pay(url, paid)).body).toMatchObject({ status: 'paid' });
    expect((await pay(url, refunded)).body).toMatchObject({ status: 'paid' });
    expect((await post(`${url}/orders/${refunded}/refund`, {})).body).toMatchObject({ status: 'refund-due' });
    expect((await cancel(url, cancelled)).body).toMatchObject({ status: 'cancelled' });
    expect((await post(`${url}/orders/${passed}/extend`, { seconds: 1_000 })).status).toBe(200);
    const to = await post(`${url}/orders/${passed}/transfer`, { toUserId: 'eve' });
    expect(to.body).toMatchObject({ orderId: passed, userId: 'eve' });
    expect((await call(`${url}/orders/${paid}`)).body).toMatchObject({
      saleId,
      userId: 'ann',
      status: 'paid',
    });
    expect((await call(`${url}/sales/${saleId}/orders?userId=eve`)).body).toMatchObject({ orderId: passed });
    expect((await call(`${url}/sales/${saleId}/orders`)).body).toHaveLength(4);
    expect((await post(`${url}/sales/${saleId}/restock`, { units: -8 })).body).toMatchObject({
      remaining: 0,
    });
    expect((await attempt(url, saleId, 'fay')).problem).toBe('sold-out');
    expect((await post(`${url}/sales/${saleId}/waitlist`, { userId: 'fay' })).body).toMatchObject({
      place: 1,
    });
    expect((await call(`${url}/sales/${saleId}/events`)).body).toMatchObject({ state: 'sold-out' });
    expect((await post(`${url}/sales/${saleId}/restock`, { units: 1 })).status).toBe(200);
    const offered = (await call(`${url}/sales/${saleId}/orders?userId=fay`)).body.orderId;
    expect((await call(`${url}/orders/${offered}`)).body).toMatchObject({ saleId, status: 'pending' });
    expect((await call(`${url}/sales/${saleId}/audit`)).body).toMatchObject({ agrees: true, saleId });
    const { body: log } = await call(`${url}/sales/${saleId}/audit-log`);
    const acts = (log as unknown as { action: string; status: number | null }[]).map(({ action }) => action);
    expect(acts).toEqual(expect.arrayContaining([`POST /sales/${saleId}/restock`, 'order.cancelled']));
  }
  expect((await patch(`${url}/sales/${d}`, { paused: true })).body).toMatchObject({ id: d, paused: true });
  expect(await cells.sql(1, 'SELECT paused FROM sales WHERE id = $1', [d])).toEqual([{ paused: true }]);
  expect((await attempt(url, 999_999, 'ann')).problem).toBe('unknown-sale');
  expect((await call(`${url}/orders/${newOrderId(999_999)}`)).problem).toBe('unknown-order');
  const run = (command: 'reconcile' | 'migrate' | 'audit', ...args: string[]) =>
    runCommand(command, cells.env, args);
  expect(await run('reconcile', '--check')).toEqual({
    code: 0,
    out: expect.stringMatching(/^Postgres agrees with itself\.\n/),
    err: '',
  });
  expect(await run('migrate')).toMatchObject({
    code: 0,
    out: expect.stringMatching(/The database is current\.\n$/),
  });
  const audit = await run('audit', 'verify');
  expect(audit).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^cell 0: .* unbroken.*\ncell 1: .* unbroken/),
  });
});

it('merges what is about all sales: lists by pages, points, tasks, metrics and pages', async () => {
  await using cells = await openCells();
  await using service = await startService(cells.env);
  const { url } = service;
  const ids = [];
  for (let n = 0; n < 5; n++) ids.push((await createSale(url, 10)).id);
  const listed: number[] = [];
  for (let next: string | null = '/sales?limit=2'; next !== null; ) {
    const { body, headers }: Awaited<ReturnType<typeof call>> = await call(url + next);
    listed.push(...(body as unknown as { id: number }[]).map(({ id }) => id));
    next = /<(.*)>/.exec(headers.get('link') ?? '')?.[1] ?? null;
  }
  expect(listed).toEqual(ids.toReversed());

  const orders = [];
  for (const saleId of ids) orders.push((await buy(url, saleId, 'ann')).body.orderId);
  const award = { sourceType: 'gift', sourceId: '1', points: 7 };
  expect((await post(`${url}/users/ann/points`, award)).status).toBe(201);
  expect((await post(`${url}/users/ann/points`, award)).status).toBe(200);
  const { balance, entries } = (await call(`${url}/users/ann/points`)).body as {
    balance: number;
    entries: { id: number; sourceId: string; createdAt: string }[];
  };
  expect(balance).toBe(5 * 5 + 7);
  expect(entries.map(({ sourceId }) => sourceId)).toEqual(['1', ...orders.toReversed()]);
  expect(new Set(entries.map(({ id }) => id)).size).toBe(6);

  // A task of the second cell, by an id that only it draws.
  const [task] = await cells.sql(
    1,
    `INSERT INTO tasks (kind, payload, state) VALUES ('ship', '{}', 'dead') RETURNING id::float8`,
  );
  const tasks = (await call(`${url}/tasks?state=dead`)).body;
  expect(tasks).toEqual([expect.objectContaining({ id: task.id })]);
  expect((await post(`${url}/tasks/${task.id}/discard`, {})).body).toMatchObject({
    id: task.id,
    state: 'done',
  });
  expect((await pay(url, newOrderId(999_999))).body).toMatchObject({ result: 'unmatched' });
  expect((await pay(url, orders[1], 'n', 1)).body).toMatchObject({
    result: 'unmatched',
    reason: 'amount-mismatch',
  });
  const unmatched = (await call(`${url}/payments/unmatched`)).body as unknown as { id: number }[];
  expect(unmatched.map(({ id }) => id)).toEqual([2 ** 44 + 1, 1]);

  const metrics = (await call(`${url}/metrics`)).body.text as string;
  const sold = (cell: number) =>
    Number(
      new RegExp(`^stampede_attempts_total\\{.*outcome="accepted".*cell="${cell}".*\\} (\\d+)`, 'm').exec(
        metrics,
      )?.[1],
    );
  expect([sold(0), sold(1)]).toEqual([3, 2]);
  expect(metrics.match(/^process_cpu_seconds_total /gm)).toHaveLength(1);
  expect((await call(`${url}/readyz`)).body).toEqual({
    status: 'ok',
    stores: { postgres: 'ok', 'postgres-1': 'ok' },
  });
  const page = await (await fetch(url, { headers: { accept: 'text/html' } })).text();
  for (const id of ids) expect(page).toContain(`/shop/${id}`);
  for (const id of ids) expect((await fetch(`${url}/shop/${id}`)).status).toBe(200);
});

it('answers every route for a sale of another cell as for one of the only Postgres', async () => {
  await using cells = await openCells();
  await using only = await openCells();
  await using over = await startService(cells.env);
  await using alone = await startService({ ...only.env, CELL_DATABASE_URLS: '' });
  for (const { url } of [over, alone]) await createSale(url, 1); // in cell 0, so that the next is in cell 1
  const things = [await makeThings(over.url, cells.pools[1]!), await makeThings(alone.url, only.pools[0]!)];
  expect((await cells.sales())[1]).toEqual([things[0]!.saleId]);
  const different: string[] = [];
  for (const route of Object.keys(ROUTES)) {
    const answers = await Promise.all(things.map((one) => askRoute(route, one)));
    const [found, expected] = answers.map(({ status, problem, body }) =>
      JSON.stringify([status, problem, Object.keys(body).length]),
    );
    if (found !== expected) different.push(`${route}: ${found}, and not ${expected}`);
  }
  expect(different).toEqual([]);
});

it('sells to holders of tickets in every cell', async () => {
  await using cells = await openCells();
  await using issuer = await openIssuer();
  const env = { ...cells.env, ...issuer.env, TICKET_SECRETS: Buffer.alloc(32, 'k').toString('base64') };
  await using one = await startService(env);
  await using two = await startService(env);
  const token = { authorization: `Bearer ${await issuer.token('ann')}` };
  for (const { id } of [await createSale(one.url, 1), await createSale(one.url, 1)]) {
    const drawn = await call(`${one.url}/sales/${id}/tickets`, { method: 'POST', headers: token });
    expect(drawn.status).toBe(201);
    const headers = { authorization: `Bearer ${drawn.body.ticket}` };
    const use = () => call(`${two.url}/sales/${id}/orders`, { method: 'POST', headers });
    await expect
      .poll(use, { interval: 1_000, timeout: 60_000 })
      .toMatchObject({ body: { saleId: id, replayed: false } }); // cells may have other clocks
  }
  const own = await call(`${two.url}/users/me/points`, { headers: token });
  expect(own.body).toMatchObject({ balance: 10 });
});

it('draws ids once, and keeps the sales of a limitGroup together, whoever creates them at once', async () => {
  await using cells = await openCells();
  await using one = await startService(cells.env);
  await using two = await startService(cells.env);
  const grouped = { limitGroup: 'drop', maxPerCustomer: 2 };
  const created = await Promise.all(
    users(24).map((_, n) => createSale([one, two][n % 2]!.url, 10, n % 3 === 0 ? grouped : {})),
  );
  const ids = created.map(({ id }) => id);
  expect(new Set(ids).size).toBe(24);
  const placed = await cells.sales();
  expect(placed.flat().sort((a, b) => a - b)).toEqual(ids.toSorted((a, b) => a - b));
  const group = created.filter(({ limitGroup }) => limitGroup === 'drop').map(({ id }) => id);
  const home = placed[0]!.includes(group[0]!) ? 0 : 1;
  expect(placed[home]).toEqual(expect.arrayContaining(group));
  expect(placed[1 - home]!.length).toBeGreaterThan(5);

  // The limit is that of all of them. A process that did not create a sale finds it in the directory.
  expect((await buy(one.url, group[0]!, 'ann')).status).toBe(201);
  expect((await buy(two.url, group[1]!, 'ann')).status).toBe(201);
  expect((await attempt(two.url, group[2]!, 'ann')).problem).toBe('customer-limit');
  const other = placed[1 - home]![0]!;
  expect(await patch(`${one.url}/sales/${other}`, grouped)).toMatchObject({ problem: 'not-supported' });
  const mate = placed[home]!.find((id) => !group.includes(id))!;
  expect(await patch(`${one.url}/sales/${mate}`, grouped)).toMatchObject({ status: 200 });
  expect(await patch(`${one.url}/sales/${other}`, { ...grouped, limitGroup: 'new' })).toMatchObject({
    status: 200,
  });
  const later = await createSale(two.url, 1, { ...grouped, limitGroup: 'new' });
  expect((await cells.sales())[1 - home]).toContain(later.id);
});

it('repeats a creation in its cell by the Idempotency-Key, also after a crash between directory and cell', async () => {
  await using cells = await openCells();
  await using service = await startService(cells.env);
  const { url } = service;
  await createSale(url, 1); // in cell 0, so that the next is in cell 1
  const create = (key: string, name = 'keyed') =>
    call(`${url}/sales`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': key },
      body: JSON.stringify({ name, stock: 5, priceCents: 500 }),
    });
  await cells.sql(1, `ALTER TABLE sales ADD CONSTRAINT none CHECK (false) NOT VALID`);
  expect((await create('k1')).status).toBe(500);
  const [{ id }] = await cells.sql(0, 'SELECT sale_id AS id FROM sale_cells WHERE cell = 1');
  expect((await call(`${url}/sales/${id}`)).problem).toBe('unknown-sale');
  expect((await attempt(url, id, 'ann')).problem).toBe('unknown-sale');
  await cells.sql(1, 'ALTER TABLE sales DROP CONSTRAINT none');
  const made = await create('k1');
  expect(made).toMatchObject({ status: 201, body: { id } });
  expect(await create('k1')).toMatchObject({ status: 201, body: { id } });
  expect((await create('k1', 'other')).problem).toBe('key-reused');
  expect((await buy(url, id, 'ann')).status).toBe(201);
  expect((await cells.sales()).map((ids) => ids.length)).toEqual([1, 1]);
});

it('sells in one cell while the other is down, and in both when it is back', async () => {
  await using cells = await openCells();
  await using service = await startService(cells.env);
  const { url } = service;
  const [a, b, unmet] = [await createSale(url, 50), await createSale(url, 50), await createSale(url, 50)];
  for (const { id } of [a, b]) expect((await buy(url, id, 'first')).status).toBe(201);
  await using stranger = await startService(cells.env); // it has met no sale
  const isBusy = { status: 503, problem: 'busy' };

  await servers[1]!.kill();
  expect((await buy(url, a.id, 'ann')).status).toBe(201);
  expect(await attempt(url, b.id, 'ann')).toMatchObject(isBusy);
  expect(await call(`${url}/sales/${b.id}`)).toMatchObject({ status: 503 });
  expect((await call(`${url}/sales/${a.id}`)).status).toBe(200);
  expect(await call(`${url}/sales`)).toMatchObject({ status: 503 });
  const ready = await call(`${url}/readyz`);
  expect(ready).toMatchObject({ status: 200, body: { status: 'degraded', stores: { postgres: 'ok' } } });
  expect((ready.body.stores as Record<string, string>)['postgres-1']).not.toBe('ok');
  await servers[1]!.start();
  expect((await buy(url, b.id, 'ann')).status).toBe(201);
  await expect
    .poll(async () => (await call(`${url}/readyz`)).body, { timeout: 60_000 })
    .toMatchObject({ status: 'ok' });

  // Without the directory: sales that a process knows sell on.
  await servers[0]!.kill();
  expect((await buy(url, b.id, 'bob')).status).toBe(201);
  expect(await attempt(url, a.id, 'bob')).toMatchObject(isBusy);
  expect(await attempt(stranger.url, b.id, 'bob')).toMatchObject(isBusy);
  expect(await post(`${url}/sales`, { name: 'new', stock: 1, priceCents: 1 })).toMatchObject({ status: 503 });
  expect((await call(`${url}/readyz`)).body).toMatchObject({
    status: 'degraded',
    stores: { 'postgres-1': 'ok' },
  });
  await servers[0]!.start();
  for (const { id } of [a, b, unmet]) expect((await buy(stranger.url, id, 'cid')).status).toBe(201);
  for (const { id } of [a, b])
    expect((await call(`${url}/sales/${id}/audit`)).body).toMatchObject({ agrees: true });
});

it('finds sales and orders that are older than the cells in the first Postgres', async () => {
  await using cells = await openCells();
  const alone = { ...cells.env, CELL_DATABASE_URLS: '' };
  const before = await startService(alone);
  const old = await createSale(before.url, 10, { limitGroup: 'drop', maxPerCustomer: 2 });
  const { orderId } = (await buy(before.url, old.id, 'ann')).body;
  await before.stop();

  await using service = await startService(cells.env);
  const { url } = service;
  await createSale(url, 10);
  const inSecond = await createSale(url, 10);
  expect((await cells.sales())[1]).toEqual([inSecond.id]);
  expect((await buy(url, old.id, 'bob')).status).toBe(201);
  expect((await call(`${url}/orders/${orderId}`)).body).toMatchObject({ userId: 'ann' });
  // The random id of an earlier version may name the sale of another cell by chance.
  const named = newOrderId(inSecond.id);
  await cells.sql(0, 'UPDATE points_entries SET source_id = $2 WHERE source_id = $1', [orderId, named]);
  await cells.sql(0, 'UPDATE orders SET id = $2 WHERE id = $1', [orderId, named]);
  expect((await call(`${url}/orders/${named}`)).body).toMatchObject({ saleId: old.id, userId: 'ann' });
  expect((await pay(url, named)).body).toMatchObject({ status: 'paid' });
  const mate = await createSale(url, 10, { limitGroup: 'drop', maxPerCustomer: 2 });
  expect((await cells.sales())[0]).toContain(mate.id);
});

it('enters sales into a directory that was restored from before they were created', async () => {
  await using cells = await openCells();
  const before = await startService(cells.env);
  await createSale(before.url, 10);
  const { id } = await createSale(before.url, 10, { limitGroup: 'drop', maxPerCustomer: 2 });
  await before.stop();
  for (const table of ['sale_cells', 'group_cells']) await cells.sql(0, `DELETE FROM ${table}`);
  await using service = await startService(cells.env);
  expect((await buy(service.url, id, 'ann')).status).toBe(201);
  const mate = await createSale(service.url, 10, { limitGroup: 'drop', maxPerCustomer: 2 });
  expect((await cells.sales())[1]).toEqual([id, mate.id]);
});

it('refuses a Postgres that is not the cell for which it is named, and writes nothing', async () => {
  await using cells = await openCells();
  await using others = await openCells();
  const [first, second] = cells.urls;
  const [foreign, empty] = others.urls;
  const start = async (databaseUrl: string, more: readonly string[], env = {}) => {
    const named = { DATABASE_URL: databaseUrl, CELL_DATABASE_URLS: more.join(',') };
    await (await startService({ ...cells.env, ...named, ...env })).stop();
  };
  const identities = () =>
    Promise.all(
      [cells, others].flatMap((one) =>
        [0, 1].map((n) => one.sql(n, 'SELECT cell, cells FROM cell_identity')),
      ),
    );
  const isOnes = (cell: number, count = 1) => [{ cell, cells: count }];

  await expect(start(first, [first])).rejects.toThrow(/named twice/);
  await expect(start(first, [second], { MIGRATE: 'never' })).rejects.toThrow(
    /is no cell yet, and MIGRATE=never/,
  );
  const sold = await startService({ ...cells.env, DATABASE_URL: foreign, CELL_DATABASE_URLS: '' });
  await createSale(sold.url, 1);
  await sold.stop();
  await expect(start(first, [foreign])).rejects.toThrow(/has sales already/);
  expect(await identities()).toEqual([[], [], [], []]);

  await Promise.all([start(first, [second]), start(first, [second])]); // two processes at once
  expect(await identities()).toEqual([isOnes(0, 2), isOnes(1), [], []]);
  await expect(start(first, [])).rejects.toThrow(
    /is the first of 2 cells: CELL_DATABASE_URLS must name the other 1/,
  );
  await expect(start(second, [])).rejects.toThrow(/is cell 1: DATABASE_URL names cell 0/);
  await expect(start(second, [first])).rejects.toThrow(/is cell 1: DATABASE_URL names cell 0/);
  await expect(start(first, [second, second])).rejects.toThrow(/named twice/);
  await expect(start(first, [empty])).rejects.toThrow(/is not cell 1, which has sales/);
  await expect(start(first, [empty, second])).rejects.toThrow(/is not cell 1, which has sales/);
  await expect(start(foreign, [second])).rejects.toThrow(/is a cell of another directory/);
  expect(await identities()).toEqual([isOnes(0, 2), isOnes(1), [], []]);
  await start(first, [second, empty]);
  expect(await identities()).toEqual([isOnes(0, 3), isOnes(1), [], isOnes(2)]);
  await expect(start(first, [empty, second])).rejects.toThrow(/is cell 2: name the cells in their order/);
});
