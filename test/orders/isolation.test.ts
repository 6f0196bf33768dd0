/**
 * Background work that fails for one sale or one order: all others continue, /readyz and the metrics report it, and
 * it recovers. A real service on real stores; a trigger refuses, or a key of Redis has another type.
 */
import { expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { call, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));

/** Refuses every change of the rows that meet a condition. @returns the undo function */
async function refuse(table: 'sales' | 'orders', which: string, raise: string) {
  await stores.sql.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${raise} RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON ${table} FOR EACH ROW WHEN (OLD.${which}) EXECUTE FUNCTION refuse()`);
  return async () => {
    await stores.sql.query(`DROP TRIGGER refuse ON ${table}; DROP FUNCTION refuse()`);
  };
}

/** Creates a sale with orders `seconds` overdue. @returns its id */
async function saleWithDue(orders: number, seconds: number): Promise<number> {
  const { id } = await createSale(service.url, orders);
  await stores.sql.query(
    `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
     SELECT gen_random_uuid(), $1, 'user-' || n, 'paid', 500, now() - make_interval(secs => $3)
     FROM generate_series(1, $2::int) AS n`,
    [id, orders, seconds],
  );
  await stores.sql.query('UPDATE sales SET sold = $2 WHERE id = $1', [id, orders]);
  return id;
}

/** Makes these sales' orders pending, and so due. */
const begin = (...saleIds: number[]) =>
  stores.sql.query(`UPDATE orders SET status = 'pending' WHERE sale_id = ANY($1) AND status = 'paid'`, [
    saleIds,
  ]);

async function pending(saleId: number): Promise<number> {
  const { rows } = await stores.sql.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM orders WHERE sale_id = $1 AND status = 'pending'`,
    [saleId],
  );
  return rows[0]!.n;
}
const untilPending = (saleId: number, count: number) => expect.poll(() => pending(saleId)).toBe(count);

async function metric(name: string, loop: string): Promise<number> {
  const { text } = (await call(`${service.url}/metrics`)).body;
  return Number(
    new RegExp(`^stampede_background_${name}\\{loop="${loop}"\\} (\\d+)$`, 'm').exec(String(text))?.[1],
  );
}

let logFrom = 0;
/** Log lines since the last test. */
const logged = (message: string, loop: string) =>
  service.log
    .slice(logFrom)
    .filter((line) => line.includes(`"msg":"${message}`) && line.includes(`"loop":"${loop}"`));

/** Waits for several failures of the loop; the metric, /readyz and the log must report them. */
async function expectDegraded(loop: string, detail: RegExp): Promise<void> {
  await expect.poll(() => metric('failures_total', loop)).toBeGreaterThanOrEqual(3);
  const { status, body } = await call(`${service.url}/readyz`);
  expect([status, body.status, body.stores]).toEqual([200, 'degraded', { postgres: 'ok', redis: 'ok' }]);
  expect(body.degraded).toContainEqual({ what: loop, detail: expect.stringMatching(detail) });
  expect(await metric('failing', loop)).toBe(1);
  await expect.poll(() => logged('Background work failed', loop)).toHaveLength(1);
}

async function expectHealed(loop: string): Promise<void> {
  await expect.poll(() => call(`${service.url}/readyz`)).toMatchObject({ body: { status: 'ok' } });
  expect(await metric('failing', loop)).toBe(0);
  // The log comes through a pipe.
  await expect.poll(() => logged('Background work recovered', loop)).toHaveLength(1);
  logFrom = service.log.length;
}

it('a sale whose orders cannot expire: the orders of others do', async () => {
  const failing = await saleWithDue(limits.expiryBatch + 1, 100); // more than one pass takes, and due for longer
  const other = await saleWithDue(3, 1);
  const heal = await refuse(
    'sales',
    `id = ${failing}`,
    `RAISE EXCEPTION 'not this sale' USING ERRCODE = '08001';`,
  );
  await begin(failing, other);
  await untilPending(other, 0);
  await expectDegraded('expiry', new RegExp(`^1 failing; sale ${failing}: not this sale$`));
  expect(await pending(failing)).toBe(limits.expiryBatch + 1);
  await heal();
  await untilPending(failing, 0);
  await expectHealed('expiry');
});

it('an order that cannot expire: the others of its sale do', async () => {
  const saleId = await saleWithDue(20, 1);
  const { rows } = await stores.sql.query<{ id: string }>(
    'SELECT id FROM orders WHERE sale_id = $1 LIMIT 1',
    [saleId],
  );
  const { id } = rows[0]!;
  // An error that no statement of the service can expect.
  const heal = await refuse(
    'orders',
    `id = '${id}'`,
    `IF NEW.status = 'expired' THEN PERFORM 1 / 0; END IF;`,
  );
  await begin(saleId);
  await untilPending(saleId, 1);
  await expectDegraded('expiry', new RegExp(`^1 failing; order ${id}: division by zero$`));
  await heal();
  await untilPending(saleId, 0);
  await expectHealed('expiry');
});

it('more orders that cannot expire than a pass takes: later ones of their sale do', async () => {
  const saleId = await saleWithDue(limits.expiryBatch + 20, 1);
  await stores.sql.query(
    `UPDATE orders SET price_cents = 501, expires_at = expires_at - interval '1 minute'
     WHERE sale_id = $1 AND substr(user_id, 6)::int <= $2`,
    [saleId, limits.expiryBatch],
  );
  const heal = await refuse('orders', 'price_cents = 501', `PERFORM 1 / (NEW.status <> 'expired')::int;`);
  await begin(saleId);
  await untilPending(saleId, limits.expiryBatch);
  await heal();
  await untilPending(saleId, 0);
  await expect.poll(() => call(`${service.url}/readyz`)).toMatchObject({ body: { status: 'ok' } });
  logFrom = service.log.length;
});

it.each([
  [
    'releases',
    'buyers',
    `INSERT INTO mirror_outbox (order_id, sale_id, user_id, change)
     SELECT gen_random_uuid(), $1, 'user', 'release' FROM generate_series(1, $2::int)`,
  ],
  [
    'restocks',
    'restocks',
    `INSERT INTO mirror_outbox (sale_id, change) SELECT $1, 'restock' FROM generate_series(1, $2::int)`,
  ],
])('a sale whose key has another type (%s): the changes of others reach Redis', async (_, key, insert) => {
  const broken = await createSale(service.url, 5);
  const other = await createSale(service.url, 5);
  await stores.redis.set(`stampede:{sale:${broken.id}}:${key}`, 'another type');
  await stores.sql.query(insert, [broken.id, limits.outboxBatch + 1]);
  await stores.sql.query(insert, [other.id, 1]);
  const waiting = async (id: number) =>
    (await stores.sql.query('SELECT FROM mirror_outbox WHERE sale_id = $1', [id])).rowCount;
  await expect.poll(() => waiting(other.id)).toBe(0);
  await expectDegraded('mirror-outbox', new RegExp(`^1 failing; sale ${broken.id}: WRONGTYPE`));
  expect(await waiting(broken.id)).toBe(limits.outboxBatch + 1);
  await stores.redis.del(`stampede:{sale:${broken.id}}:${key}`);
  await expect.poll(() => waiting(broken.id)).toBe(0);
  await expectHealed('mirror-outbox');
});
