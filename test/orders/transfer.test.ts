/** A transfer where Redis decides: what it shows between the commit and the change in Redis, and what follows an order to its new customer. */
import { expect, it } from 'vitest';
import { redisNow } from '../../lab/audit/reader.ts';
import { closeOrders } from '../../src/store/postgres/close-orders.ts';
import { attempt, buy, call, createSale, eventually, pay, post } from '../support/client.ts';
import { judge } from '../support/judge.ts';
import { openScene } from '../support/scene.ts';
import { published } from '../support/stores.ts';

const bench = openScene();
const { start } = bench;
const transfer = (url: string, orderId: unknown, toUserId: string) =>
  post(`${url}/orders/${orderId}/transfer`, { toUserId });
const sql = (text: string, values: unknown[] = []) => bench.stores.sql.query(text, values);
const expectSound = (saleId: number) =>
  expect.poll(() => judge(bench.stores.sql, bench.stores.redis, saleId)).toMatchObject({ findings: [] });

it('until Redis shows it, neither customer gets a unit by it, and none is lost', async () => {
  const { url } = await start({ STRATEGY: 'lua' });
  const sale = await createSale(url, 5, { maxPerOrder: 2 });
  const { orderId } = (await buy(url, sale.id, 'giver', 2)).body;
  await bench.untilReserved(sale.id, 0);
  // As if Redis did not have the sale.
  await sql(`
    CREATE FUNCTION withhold() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN NEW.sale_id := -NEW.sale_id; RETURN NEW; END $$;
    CREATE TRIGGER withhold BEFORE INSERT ON mirror_outbox FOR EACH ROW EXECUTE FUNCTION withhold();`);
  expect(await transfer(url, orderId, 'taker')).toMatchObject({ status: 200, body: { userId: 'taker' } });
  const giver = () => attempt(url, sale.id, 'giver');
  expect(await giver()).toMatchObject({ status: 503, body: { reason: 'order-just-closed' } });
  const taken = await buy(url, sale.id, 'taker');
  expect(taken).toMatchObject({ status: 200, body: { orderId, quantity: 2, replayed: true } });
  await bench.untilReserved(sale.id, 0);
  expect(await redisNow(bench.stores.redis, sale.id)).toMatchObject({ remaining: 3, held: 4 });
  await sql('DROP TRIGGER withhold ON mirror_outbox');
  await sql('UPDATE mirror_outbox SET sale_id = -sale_id');
  await published(bench.stores);
  expect(await redisNow(bench.stores.redis, sale.id)).toMatchObject({ remaining: 3, held: 2 });
  expect(await eventually(giver, ({ status }) => status < 300)).toMatchObject({ status: 201 });
  await expectSound(sale.id);
});

it('is not undone by a cancellation of the customer who had the order, which was checked before and executed after', async () => {
  const { url } = await start({ STRATEGY: 'group-commit' });
  const { orderId } = (await buy(url, (await createSale(url, 1)).id, 'giver')).body;
  const client = await bench.stores.sql.connect();
  await client.query('BEGIN');
  await client.query(`UPDATE orders SET user_id = 'taker', transferred_from = 'giver' WHERE id = $1`, [
    orderId,
  ]);
  const closing = { from: ['pending'], to: 'cancelled', returnUnits: true, isMirrored: false } as const;
  const cancelled = closeOrders(bench.stores.sql, [String(orderId)], {
    ...closing,
    actor: 'giver',
    owner: 'giver',
  });
  const waiting = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%WITH due%' AND datname = current_database()`;
  await expect.poll(async () => (await sql(waiting)).rowCount).toBe(1);
  await client.query('COMMIT');
  client.release();
  expect(await cancelled).toEqual([]);
  expect((await call(`${url}/orders/${orderId}`)).body).toMatchObject({ status: 'pending', userId: 'taker' });
});

it('moves tasks that no receiver got, and is followed by the late payment of the new customer', async () => {
  const { url } = await start({
    STRATEGY: 'lua',
    EVENTS: 'order.transferred',
    EVENT_WEBHOOK_URL: 'http://127.0.0.1:9',
  });
  const sale = await createSale(url, 2);
  const [paid, late] = await Promise.all(['paid', 'late'].map((user) => buy(url, sale.id, user)));
  const [paidId, lateId] = [paid!.body.orderId, late!.body.orderId];
  await pay(url, paidId);
  await sql(`UPDATE tasks SET attempts = 1 WHERE key = $1`, [`award:${paidId}`]);
  for (const [id, to] of [
    [paidId, 'new-1'],
    [lateId, 'new-2'],
  ] as const)
    expect((await transfer(url, id, to)).status).toBe(200);
  const { rows } = await sql(
    `SELECT kind, payload->>'userId' AS user FROM tasks WHERE key LIKE $1 ORDER BY 1`,
    [`%:${paidId}`],
  );
  expect(rows).toEqual([
    { kind: 'award', user: 'paid' }, // a repeat must not differ from what was sent
    { kind: 'ship', user: 'new-1' },
  ]);
  const events = await sql(`SELECT payload->'data' AS data FROM tasks WHERE kind = 'event' ORDER BY id`);
  expect(events.rows.map(({ data }) => [data.orderId, data.fromUserId, data.userId, data.status])).toEqual([
    [paidId, 'paid', 'new-1', 'paid'],
    [lateId, 'late', 'new-2', 'pending'],
  ]);
  await sql(`UPDATE orders SET expires_at = clock_timestamp() WHERE id = $1`, [lateId]);
  const statusOf = async () => (await sql('SELECT status FROM orders WHERE id = $1', [lateId])).rows[0];
  await expect.poll(statusOf).toEqual({ status: 'expired' });
  expect((await pay(url, lateId)).body).toMatchObject({ userId: 'new-2', status: 'paid' });
  await expectSound(sale.id);
});

it('is refused with CONFIRM=accepted where Redis decides: the other customer may have a 202', async () => {
  const { url } = await start({ STRATEGY: 'lua', CONFIRM: 'accepted' });
  const sale = await createSale(url, 2);
  const { orderId } = (await buy(url, sale.id, 'giver')).body;
  expect(await transfer(url, orderId, 'taker')).toMatchObject({ status: 409, problem: 'not-supported' });
  const postgres = await start({ STRATEGY: 'group-commit', CONFIRM: 'accepted' });
  await bench.untilReserved(sale.id, 0);
  expect(await transfer(postgres.url, orderId, 'taker')).toMatchObject({ status: 200 });
});
