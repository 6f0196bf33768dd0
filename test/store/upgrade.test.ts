/** A database of commit f10e1bd, recorded row by row from its service, is migrated and goes on selling. Both stores are real. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { beforeAll, expect, it } from 'vitest';
import { SERVICE_ROLE } from '../../src/local/postgres-roles.ts';
import { verifyAuditLog } from '../../src/store/postgres/audit-log.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { attempt, call, pay } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

/** Released migrations with their SHA-256. They never change: a new one is added to the folder, and here. */
const RELEASED = {
  '20261122000000_init': '7315be64b85aca871cf6da22d8b8531a1a54a370c2a02242c9a54ca5bd861690',
  '20261124000000_public': 'cff1498dc8effff75698ae9456b7f0df22ca45a6139e10d7aa941fbec90a9a14',
  '20261124200000_retention': 'a50b0d73e4f0f0acbe45e57ffd4fd5d1645b8c4f2bafe6c75d3d6d8c4ffcda01',
  '20261125000000_turns': '0057009009d83cc08cd6a94f6ef829a945ed48a8c8967c6557b2671b4b995111',
  '20261125120000_payments': '9593d8d64704a540f3ac2cb1a55b451f8234104610dee4320ba7fbf58fb2496d',
  '20261125200000_mirror_epoch': '013fee59cf5914aba4e8e1b742991479bc774d545cb86b2748e3eba2aa199cb5',
  '20261125210000_late_lottery': 'dd0f287155838d1e5407cdff32c41df09f68f96d37924f31a1a177212d211efb',
  '20261125220000_cancelled_deadlines': '048e7daa0c8385bffb326833de5d27763876cf1afa70bab7b5c4068835dfd3bb',
  '20261125230000_audit_order': 'b483eed3d543d14f68c0dafab2eaea7cf3cb6081774cb5cb9809823f6878ae5d',
  '20261126000000_quantities': '4860415f369958b21c9e91fa8555709ebdbff34bd1de79363e1795172f9e2134',
  '20261126120000_idempotency': '646740f17d6c480c9d189dc8764297bcefa3f1661aec098542ba09ae2af32c27',
  '20261126130000_refunds': '9a5145371fb82d8a66d40b46ad4a59c6e464d3460101ba579f084c95560e40e5',
  '20261126140000_events': '04d675e97ae12f1258eb2312a7f323d6213f47638497be6f9b8e176461ef0439',
  '20261126150000_terms': '082dd3b6ca5b992052f0911eb3f23cebfd6c743330a5bcc2e6a9483b48545620',
  '20261127150000_unmatched_provider': 'c7026a53b9cc57303b2536e3ab2e7b854d5a754937528679336ef9f10612ca14',
  '20261127200000_waitlist_names': '7905c2714eac961b9083826d8e2ce54a860a0209ed6b6ef5583d541a29185de6',
  '20261127210000_vacuum_units': 'c8561a5abfb9eb6baf9d5d96897ba86f31abe3292186e6e1b4c8f493a616d49b',
  '20261127220000_turn_ends_with_window': '88676622be170852d06f2d605e5d78a1c0739dba21869fe5c00b32ebdd6302b3',
  '20261127230000_retired_epochs': '47508d9d35f9a55bbf1cebe3327cd464e915774d1e6f3af5021c7317ba52b27c',
  '20261127240000_waitlist_leaves': '61bcdc1834410f6103c60c94ee570ce9986e92631af621307c524f574cf3567b',
  '20261127250000_notifications_with_orders':
    '8277d788be318f158f848e657ee4160355bf86fc797c049f8a20fae6922c739d',
  '20261128100000_turn_follows_start': 'd5fdd72cd820e817360e397f9b50d8d8a37d4a53c3b3c05ebe647133edad7957',
  '20261128110000_waitlist_retention': 'eff10bc386179f0062231d9d3ad8f129d7a3d235788736fb139e33e408ff2f76',
  '20261129115000_orders_of_sale': '5b5941fcbc361cab6dd309be469e4c4a004d1dad0caa402bb84b04fb2432337e',
  '20261129115001_waitlist_turns': '611895f6535a92b3165ebd2892604f4bba9f4083a7d2675424c6bd8df7ab47ad',
  '20261130010000_order_extended': '22ab21c918e5cccc011d8d112d33bd2a51a4ff3c653b1d0486a743c31963c9bf',
  '20261130020000_waitlist_quantity': '29b89b934937b5bf3852a41d061bc0d08bb1d1daee1b67188af6f36fc7a0d722',
  '20261130030000_turns_in_batches': '31f268bc7b55a6fc26a0766a6efb308d7cfc89d84047d2bb1c0c16dc59a1849d',
  '20261130030001_capacities': '13b768ef7867c1c2eeef56dde801f4ce2dadea4c96753619b0f6808af206dd7f',
  '20261130040000_sale_texts': '3be16d8988490f867cfbdbb7e5ed6a2f5491626be78e34f3ff1d11467e8f262c',
  '20261130050000_customer_limits': '4139f9a1189d19be0df85a9b8b82106af6c45750a9e2104db2b662a8aced709e',
  '20261130051000_sale_groups': '663caca46b1c69570e5093223dd592b142b1c49a4143b6026f5bab1e380f428c',
  '20261130060000_transfer': '4f43139191f392f01944690f239dc935a551416984c0043b0e76dcb5d7a2018e',
  '20261130061000_waitlist_hold': '76402a6eae2dfcf2766ed313cbf45d931f243b2d38c8d05498acbad0f1e221ff',
  '20261130070000_code_retention': 'a9eec12625adea956a9a119675dc306e4c4c1593570850357cb1f26c04be9bad',
  '20261130090000_waitlist_left_once': '340ad66102e4b12bf00ff189cd6316af9a8a33285f59b480992101bb523b4ae8',
  '20261130100000_cells': '107053a349488b5b001c06b08b956e8c6bb7ba3d203b1cf4c844fcefae3323a3',
  '20261130110000_waitlist_first': '7cc210863906ba77b5f226726219e72f7a63df7b4b6089b22e8e6b98a10e883c',
};

interface Recorded {
  readonly table: string;
  readonly row: Readonly<Record<string, unknown>>;
}
/**
 * Rows recorded with Redis just killed, and no receiver of tasks: the outbox, the tasks and the audit log have work left. The sales
 * use the strategies lua, skip-locked and segmented-lock, the last with LOCK=postgres-row.
 */
const recorded = readFileSync(new URL('recorded/f10e1bd.jsonl', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Recorded);
const rowsOf = (table: string) => recorded.filter((one) => one.table === table).map(({ row }) => row);
const orderOf = (userId: string) => rowsOf('orders').find((row) => row.user_id === userId)!;

const migrations = new URL('../../prisma/migrations/', import.meta.url);
const scriptOf = (name: string) => readFileSync(new URL(`${name}/migration.sql`, migrations), 'utf8');
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

const CREATE_HISTORY = `CREATE TABLE _prisma_migrations (id varchar(36) PRIMARY KEY, checksum varchar(64) NOT NULL,
  finished_at timestamptz, migration_name varchar(255) NOT NULL, logs text, rolled_back_at timestamptz,
  started_at timestamptz NOT NULL DEFAULT now(), applied_steps_count integer NOT NULL DEFAULT 0)`;

const stores = opened(openTestStores);
beforeAll(async () => {
  await stores.sql.query('DROP SCHEMA public CASCADE; CREATE SCHEMA public');
  await stores.sql.query(CREATE_HISTORY);
  for (const { migration_name } of rowsOf('_prisma_migrations'))
    await stores.sql.query(scriptOf(migration_name as string));
  for (const { table, row } of recorded)
    await stores.sql.query(
      `INSERT INTO "${table}" SELECT * FROM jsonb_populate_record(NULL::"${table}", $1)`,
      [row],
    );
  for (const { sequence, table } of (
    await stores.sql.query<{ sequence: string; table: string }>(
      `SELECT pg_get_serial_sequence(table_name, column_name) AS sequence, table_name AS table
       FROM information_schema.columns WHERE column_default LIKE 'nextval%'`,
    )
  ).rows)
    await stores.sql.query(`SELECT setval($1, (SELECT max(id) FROM "${table}"))`, [sequence]);
});

it('released migrations never change', () => {
  const folders = readdirSync(migrations).filter((name) => !name.includes('.'));
  expect(Object.fromEntries(folders.map((name) => [name, sha256(scriptOf(name))]))).toEqual(RELEASED);
  for (const { migration_name, checksum } of rowsOf('_prisma_migrations'))
    expect(RELEASED).toHaveProperty([migration_name as string], checksum);
});

it('a database of f10e1bd is migrated, and keeps every row', async () => {
  const { applied } = await migrate(stores.ownerUrl, SERVICE_ROLE);
  expect(applied).toEqual(Object.keys(RELEASED).slice(rowsOf('_prisma_migrations').length));
  for (const { table, row } of recorded) {
    const kept = await stores.sql.query(`SELECT FROM "${table}" t WHERE to_jsonb(t) @> $1`, [row]);
    expect(kept.rowCount, JSON.stringify(row)).toBe(1);
  }
  const statuses = new Set(rowsOf('orders').map(({ status }) => status));
  expect([...statuses].sort()).toEqual(['cancelled', 'expired', 'paid', 'pending', 'refund-due']);
  for (const table of ['mirror_outbox', 'audit_pending', 'points_entries', 'stock_units', 'lock_rows'])
    expect(rowsOf(table), table).not.toEqual([]);
});

it('a service of today goes on with it: repeats, late payments, the outbox, tasks and the audit log', async () => {
  await stores.sql.query(`UPDATE orders SET expires_at = now() + interval '1 hour' WHERE status = 'pending'`);
  await using service = await startService({ ...envOf(stores), RETENTION_DAYS: '0' });
  for (const { id, sale_id, user_id, status } of rowsOf('orders'))
    if (status === 'paid' || status === 'pending')
      expect(await attempt(service.url, sale_id as number, user_id as string)).toMatchObject({
        status: 200,
        body: { orderId: id, status, replayed: true },
      });
  expect((await pay(service.url, orderOf('expired').id)).body).toMatchObject({ status: 'paid' });
  const late = orderOf('late-cancel');
  expect((await attempt(service.url, late.sale_id as number, 'late-cancel')).status).toBe(201);

  const count = (rows: string) => async () => (await stores.sql.query(`SELECT FROM ${rows}`)).rowCount;
  await expect.poll(count('mirror_outbox')).toBe(0);
  await expect.poll(count(`tasks WHERE state <> 'done'`)).toBe(0);
  await expect.poll(count('audit_pending')).toBe(0);
  const { rows } = await stores.sql.query(
    `SELECT FROM sales WHERE sold <> (SELECT count(*) FROM orders WHERE sale_id = sales.id AND status IN ('pending', 'paid'))`,
  );
  expect(rows).toEqual([]);
  const points = rowsOf('points_entries').filter(({ user_id }) => user_id === 'paid');
  const balance = points.reduce((sum, row) => sum + (row.points as number), 0);
  expect((await call(`${service.url}/users/paid/points`)).body).toMatchObject({ balance });

  const postgres = openPostgres(stores.databaseUrl, () => {});
  const { id, hash } = rowsOf('audit_log').at(-1)!;
  const head = { id: String(id), hash: Buffer.from((hash as string).slice(2), 'hex') };
  expect(await verifyAuditLog(postgres, head)).toMatchObject({ broken: null });
  await postgres.close();
});
