/** What a running service counts: refusals, payments, administrative acts and its audit log. */
import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { expect, it } from 'vitest';
import { attempt, call, eventually, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const TOKEN = '0123456789abcdef';
const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

const stores = opened(openTestStores);
const service = opened(() =>
  startService({
    ...envOf(stores),
    ADMIN_TOKEN: TOKEN,
    PAYMENT_WEBHOOK_SECRETS: SECRET,
    ADDRESS_CONNECTIONS: '30',
  }),
);

/** The values of a metric, by label. */
async function read(name: string): Promise<Record<string, number>> {
  const { text } = (await call(`${service.url}/metrics`)).body;
  const lines = [...String(text).matchAll(new RegExp(`^${name}(?:\\{([^}]*)\\})? (\\S+)$`, 'gm'))];
  return Object.fromEntries(lines.map(([, labels = '', value]) => [labels, Number(value)]));
}
const json = { 'content-type': 'application/json' };
const createSale = (token: string | null) =>
  post(`${service.url}/sales`, { name: 'a', stock: 2, priceCents: 500 }, token);

/** Reports a payment. @param more differences from a notification that counts */
async function pay(orderId: unknown, more: { amountCents?: number; at?: Date; secret?: string } = {}) {
  const { amountCents = 500, at = new Date(), secret = SECRET } = more;
  const body = JSON.stringify({ notificationId: randomUUID(), orderId, amountCents });
  const headers = {
    'webhook-id': 'm',
    'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
    'webhook-signature': new Webhook(secret).sign('m', at, body),
  };
  return call(`${service.url}/payments/notifications`, {
    method: 'POST',
    headers: { ...json, ...headers },
    body,
  });
}

it('counts administrative acts and wrong tokens', async () => {
  const statuses = [];
  for (const token of [TOKEN, 'wrong-but-long-enough', 'wrong-but-long-enough', null])
    statuses.push((await createSale(token)).status);
  expect(statuses).toEqual([201, 401, 401, 401]);
  expect(await read('stampede_admin_acts_total')).toEqual({ 'route="POST /sales"': 1 });
  expect(await read('stampede_refused_requests_total')).toMatchObject({
    'reason="admin-token-wrong"': 2,
    'reason="admin-token-missing"': 1,
  });
});

it('counts payment notifications by result', async () => {
  const { id } = (await createSale(TOKEN)).body;
  const { orderId } = (await attempt(service.url, Number(id), 'ann')).body;
  const statuses = [];
  for (const [order, more] of [
    [orderId, { secret: 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' }],
    [orderId, { at: new Date(Date.now() - 3_600_000) }],
    [orderId, { amountCents: 499 }],
    [randomUUID(), {}],
    [orderId, {}],
    [orderId, {}],
  ] as const)
    statuses.push((await pay(order, more)).status);
  expect(statuses).toEqual([401, 401, 200, 200, 200, 200]);
  expect(await read('stampede_payment_notifications_total')).toEqual({
    'result="bad-signature"': 1,
    'result="stale"': 1,
    'result="amount-mismatch"': 1,
    'result="conflict"': 0,
    'result="unknown-order"': 1,
    'result="paid"': 1,
    'result="surplus"': 1,
  });
});

it('shows the length of the audit log and its pending events', async () => {
  const { sql } = stores;
  const { rows } = await eventually(
    () =>
      sql.query<{ n: number }>(
        // A refund that was sent is an event too.
        `SELECT max(id)::int AS n FROM audit_log HAVING (SELECT count(*) FROM audit_pending) = 0
           AND NOT EXISTS (SELECT FROM tasks WHERE state <> 'done')`,
      ),
    ({ rowCount }) => rowCount === 1,
  );
  expect(await read('stampede_audit_entries')).toEqual({ '': rows[0]!.n });
  expect(await read('stampede_audit_pending')).toEqual({ '': 0 });
  // While another process holds the lock to append, this one appends nothing.
  const client = await sql.connect();
  await client.query('BEGIN');
  await client.query(`SELECT pg_advisory_xact_lock(x'6175646974'::bigint)`);
  await sql.query(
    `INSERT INTO audit_pending (at, actor, action, subject, details) VALUES (now() - interval '90 s', 'a', 'b', 'c', '{}')`,
  );
  expect((await read('stampede_audit_pending'))['']).toBeGreaterThan(0);
  expect((await read('stampede_audit_lag_seconds'))['']).toBeGreaterThanOrEqual(90);
  await client.query('ROLLBACK');
  client.release();
});

it('shows how long a snapshot has kept dead rows, and how many', async () => {
  const { sql } = stores;
  const oldest = async () => (await read('stampede_postgres_oldest_snapshot_seconds'))['']!;
  await expect.poll(oldest).toBeLessThan(1);
  const client = await sql.connect();
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await client.query('SELECT FROM sales');
  for (let n = 0; n < 50; n++) await sql.query('UPDATE sales SET version = version + 1');
  await expect.poll(oldest).toBeGreaterThan(2);
  await sql.query('SELECT pg_stat_force_next_flush()');
  const deadRows = async () => (await read('stampede_postgres_dead_rows'))['table="sales"']!;
  await expect.poll(deadRows).toBeGreaterThanOrEqual(50);
  await client.query('ROLLBACK');
  client.release();
  await expect.poll(oldest).toBeLessThan(2);
});

it('shows open connections, and counts those beyond the limit of an address', async () => {
  const port = Number(new URL(service.url).port);
  const sockets = Array.from({ length: 40 }, () => connect(port, '127.0.0.1').on('error', () => {}));
  const refused = async () => (await read('stampede_refused_requests_total'))['reason="address-connections"'];
  await expect.poll(refused).toBeGreaterThanOrEqual(10);
  const open = (await read('stampede_connections'))['']!;
  expect(open).toBeGreaterThan(20);
  expect(open).toBeLessThanOrEqual(30);
  for (const socket of sockets) socket.destroy();
});
