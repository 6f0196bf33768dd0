import pg from 'pg';
import { describe, expect, inject, it } from 'vitest';
import { withPostgres } from '../../lab/servers/stores.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { opened } from '../support/opened.ts';
import { launch } from '../support/service.ts';
import { openDatabase } from '../support/stores.ts';

const database = opened(() => openDatabase(''));

describe('migrations', () => {
  it('are applied once when four processes start together', async () => {
    const results = await Promise.all([1, 2, 3, 4].map(() => migrate(database.url)));
    expect(results.filter(({ applied }) => applied.length > 0)).toHaveLength(1);
    expect(await migrate(database.url)).toEqual({ applied: [], newer: [] });
  });

  it('create the constraints that Prisma cannot express', async () => {
    const sale = `INSERT INTO sales (name, price_cents, stock) VALUES ('s', 100, 1) RETURNING id`;
    await withPostgres(database.url, async (client) => {
      const { id } = (await client.query<{ id: number }>(sale)).rows[0]!;
      const order = (status: string) =>
        `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
         VALUES (gen_random_uuid(), ${id}, 'u', '${status}', 100, now())`;
      const points = `INSERT INTO points_entries (user_id, source_type, source_id, points) VALUES ('u', 't', '1', 5)`;
      for (const accepted of [order('cancelled'), order('pending'), points]) await client.query(accepted);
      for (const [constraint, refused] of [
        ['orders_one_active_per_customer', order('paid')],
        ['points_entries_one_per_source', points],
        ['sales_sold_within_stock', 'sold = 2'],
        ['sales_price_not_negative', 'price_cents = -1'],
        ['sales_window_in_order', 'starts_at = now(), ends_at = now()'],
        ['sales_spread_bounded', 'spread_s = 3601'],
        ['sales_max_per_order_bounded', 'max_per_order = 101'],
        ['sales_max_per_order_bounded', 'max_per_order = 0'],
        ['sales_payment_window_positive', 'payment_window_s = 0'],
        ['sales_amount_bounded', 'price_cents = 1073741824, max_per_order = 2'],
      ] as const) {
        const statement = refused.startsWith('INSERT')
          ? refused
          : `UPDATE sales SET ${refused} WHERE id = ${id}`;
        await expect(client.query(statement), refused).rejects.toMatchObject({ constraint });
      }
    });
  });

  it('are rolled back when the process is killed half-way', async () => {
    const half = await openDatabase('');
    const client = new pg.Client({ connectionString: half.url });
    await client.connect();
    // The migration has written something when it comes to this table, and waits for the end of this transaction.
    await client.query('BEGIN; CREATE TABLE tasks ()');
    const starting = launch({ DATABASE_URL: half.url, REDIS_URL: inject('redisUrl') });
    const waiting = `SELECT FROM pg_stat_activity
      WHERE datname = $1 AND backend_xid IS NOT NULL AND wait_event_type = 'Lock'`;
    const look = () => withPostgres(database.url, (other) => other.query(waiting, [half.name]));
    await expect.poll(look).toMatchObject({ rowCount: 1 });
    await starting.kill();
    await client.query('ROLLBACK');
    const tables = () => client.query(`SELECT tablename FROM pg_tables WHERE schemaname = 'public'`);
    expect(starting.process.signalCode).toBe('SIGKILL');
    expect((await tables()).rowCount).toBe(0);
    expect((await migrate(half.url)).applied.length).toBeGreaterThan(0);
    expect((await tables()).rowCount).toBeGreaterThan(4);
    await client.end();
    await half.close();
  });
});

describe('a database that these migrations cannot follow', () => {
  const record = (name: string, finished = 'now()') =>
    `INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at) VALUES (gen_random_uuid(), '', '${name}', ${finished})`;

  it.each([
    [
      'of another branch',
      record('20261122000001_fork'),
      /another history.*20261122000001_fork are not in prisma/,
    ],
    [
      'whose migration failed',
      record('99990101000000_next', 'NULL'),
      /99990101000000_next was begun and not finished/,
    ],
    [
      'without a record',
      'DROP TABLE _prisma_migrations',
      /tables \(audit_log, .*, …\), but no table _prisma_migrations/,
    ],
    [
      'whose migration fails',
      "DELETE FROM _prisma_migrations WHERE migration_name LIKE '%_init'",
      /^A migration failed, and the database is as it was before: relation "sales" already exists$/,
    ],
  ])('%s is refused, and stays as it is', async (_kind, change, message) => {
    await withCopy(change, async (copy, history) => {
      const before = await history();
      await expect(migrate(copy)).rejects.toMatchObject({
        code: 'ERR_STAMPEDE_START',
        message: expect.stringMatching(message),
      });
      expect(await history()).toEqual(before);
    });
  });

  it('names what a newer version has applied, and changes nothing', async () => {
    await withCopy(record('99990101000000_next'), async (copy) => {
      expect(await migrate(copy)).toEqual({ applied: [], newer: ['99990101000000_next'] });
    });
  });

  it('wait for a transaction that sells, and it for them, without a deadlock', async () => {
    // Postgres ends no deadlock here.
    const pending = `DELETE FROM _prisma_migrations WHERE migration_name = '20261129115000_orders_of_sale';
      DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''1h''', current_database()); END $$`;
    await withCopy(pending, (copy) =>
      withPostgres(copy, async (selling) => {
        await selling.query('BEGIN; LOCK TABLE sales IN ROW EXCLUSIVE MODE');
        const migrating = migrate(copy);
        const waiting = `SELECT FROM pg_locks WHERE relation = 'sales'::regclass AND NOT granted`;
        await expect.poll(() => selling.query(waiting)).toMatchObject({ rowCount: 1 });
        await selling.query('LOCK TABLE orders IN ROW EXCLUSIVE MODE');
        await selling.query('COMMIT');
        expect(await migrating).toEqual({ applied: ['20261129115000_orders_of_sale'], newer: [] });
      }),
    );
  });

  async function withCopy(
    change: string,
    use: (url: string, history: () => Promise<unknown>) => Promise<void>,
  ): Promise<void> {
    const copy = await openDatabase();
    const client = new pg.Client({ connectionString: copy.url });
    await client.connect();
    try {
      await client.query(change);
      await use(copy.url, async () => (await client.query('TABLE pg_class')).rows.length);
    } finally {
      await client.end();
      await copy.close();
    }
  }
});
