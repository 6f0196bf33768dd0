/** The audit log: what is recorded, and that a changed, removed or cut log is found. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import {
  addAuditEvent,
  appendPending,
  auditHead,
  verifyAuditLog,
} from '../../src/store/postgres/audit-log.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { buy, cancel, createSale, eventually, pay, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const service = opened(() => startService(envOf(stores)));

const rows = async () =>
  (
    await stores.sql.query<{ actor: string; action: string; subject: string }>(
      'SELECT * FROM audit_log ORDER BY id',
    )
  ).rows;

it('has administrative acts, payments and cancellations, each with its actor', async () => {
  const { id } = await createSale(service.url, 5);
  const [ann, ben] = [await buy(service.url, id, 'ann'), await buy(service.url, id, 'ben')];
  await cancel(service.url, ann.body.orderId);
  await pay(service.url, ben.body.orderId);
  await post(`${service.url}/sales/${id}/restock`, { units: -99 });
  const log = await eventually(rows, (all) => all.filter(({ action }) => action === 'answered').length === 2);
  expect(log.map(({ actor, action }) => `${actor} ${action}`)).toEqual(
    expect.arrayContaining([
      'admin:loopback POST /sales',
      'caller order.cancelled',
      'admin:loopback payment.paid',
      `admin:loopback POST /sales/${id}/restock`,
    ]),
  );
  expect(await verifyAuditLog(postgres)).toMatchObject({ rows: log.length, broken: null });
});

it('has a refund that is due, and one that was sent', async () => {
  const { id } = await createSale(service.url, 1);
  const { orderId } = (await buy(service.url, id, 'late')).body;
  await stores.sql.query('UPDATE orders SET expires_at = now() WHERE id = $1', [orderId]);
  const next = () => buy(service.url, id, 'next');
  await eventually(next, ({ status }) => status < 300);
  expect((await pay(service.url, orderId)).body).toMatchObject({ status: 'refund-due' });
  const log = await eventually(rows, (all) => all.some(({ action }) => action === 'refund.sent'));
  const refunds = log.filter(({ subject }) => subject === `order ${orderId}`);
  expect(refunds).toMatchObject([
    { actor: 'admin:loopback', action: 'payment.refund-due' },
    { actor: 'service', action: 'refund.sent', details: expect.stringContaining('"amountCents": 500') },
  ]);
  expect((await verifyAuditLog(postgres)).broken).toBeNull();
});

it('has the answer to an act whose client left before it was recorded', async () => {
  const { id } = await createSale(service.url, 5);
  await stores.sql.query('BEGIN; LOCK TABLE audit_pending');
  const client = connect(Number(new URL(service.url).port), '127.0.0.1').resume();
  const headers = ['Host: localhost', 'Content-Type: application/json', 'Content-Length: 11'].join('\r\n');
  client.write(`POST /sales/${id}/restock HTTP/1.1\r\n${headers}\r\n\r\n{"units":7}`);
  const blocked = () =>
    stores.sql.query(`SELECT FROM pg_locks WHERE NOT granted AND relation = 'audit_pending'::regclass`);
  await eventually(blocked, ({ rowCount }) => rowCount! > 0);
  client.end();
  await once(client, 'close'); // the service has read the end, and ended its side
  await stores.sql.query('COMMIT');
  const ofAct = (all: Awaited<ReturnType<typeof rows>>) => {
    const subject = all.find(({ action }) => action === `POST /sales/${id}/restock`)?.subject;
    return all.filter((row) => row.subject === subject).map(({ action }) => action);
  };
  await eventually(rows, (all) => ofAct(all).includes('answered'));
});

it('is appended by several processes at once without a gap', async () => {
  const event = { actor: 'admin:test', action: 'test', subject: 'none', details: {} };
  await Promise.all(Array.from({ length: 50 }, () => addAuditEvent(postgres.pool, event)));
  const append = () => Promise.all(Array.from({ length: 4 }, () => appendPending(postgres)));
  await eventually(append, (appended) => appended.every((n) => n === 0));
  await eventually(rows, (all) => all.filter(({ action }) => action === 'test').length === 50);
  expect((await verifyAuditLog(postgres)).broken).toBeNull();
});

it('refuses changes, and shows those of someone who can switch that off', async () => {
  const { sql } = stores;
  for (const change of ['UPDATE audit_log SET actor = $$x$$', 'DELETE FROM audit_log', 'TRUNCATE audit_log'])
    await expect(sql.query(change)).rejects.toThrow('append-only');
  const last = `INSERT INTO audit_log SELECT 9223372036854775807, at, actor, action, subject, details, hash, hash FROM audit_log LIMIT 1`;
  await expect(sql.query(last)).rejects.toThrow('without a gap'); // there would be no next id
  const head = await auditHead(postgres);
  const noted = await verifyAuditLog(postgres, head);
  expect(noted.broken).toBeNull();

  await service.stop();
  await sql.query('ALTER TABLE audit_log DISABLE TRIGGER audit_log_append_only');
  await sql.query('DELETE FROM audit_log WHERE id = $1', [head.id]);
  expect((await verifyAuditLog(postgres)).broken).toBeNull();
  expect((await verifyAuditLog(postgres, head)).broken).toMatchObject({ id: head.id });
  await sql.query(`UPDATE audit_log SET actor = 'admin:other' WHERE id = 3`);
  expect((await verifyAuditLog(postgres)).broken).toEqual({ id: '3', why: 'the row was changed' });
  await sql.query('DELETE FROM audit_log WHERE id = 2');
  expect((await verifyAuditLog(postgres)).broken).toEqual({ id: '3', why: 'a row before it is missing' });
});
