/** One strategy that decides in Postgres, on a cloned database, without a service. */
import pg from 'pg';
import { beforeAll, expect, vi } from 'vitest';
import type { Attempt } from '../../src/domain/order.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { TIMEOUTS } from '../../src/store/postgres/settings.ts';
import type { Strategy, StrategyContext } from '../../src/strategies/strategy.ts';
import { judge } from './judge.ts';
import { opened } from './opened.ts';
import { openTestStores } from './stores.ts';

export interface StrategyBench {
  readonly postgres: PostgresStore;
  /** The same database, by connections whose statements and transactions wait for a minute. */
  readonly patient: PostgresStore;
  /** Connections that bypass the strategy. */
  readonly sql: pg.Pool;
  readonly redisUrl: string;
  /** Creates a strategy as another process would. @param store `patient` where what holds a lock waits for what waits for the lock */
  start(entry: { create(context: StrategyContext): Strategy }, store?: PostgresStore): Strategy;
  /** Inserts a sale. @returns its id */
  sale(stock: number): Promise<number>;
  /** The audit finds nothing wrong. @returns how many units are sold */
  sold(saleId: number): Promise<number>;
  /** Runs the work while another transaction holds what `hold` locks, until `end` ends it. */
  during<T>(
    hold: (client: pg.PoolClient) => Promise<unknown>,
    work: (end: (how: 'COMMIT' | 'ROLLBACK') => Promise<void>) => Promise<T>,
  ): Promise<T>;
  /** How many connections wait for a lock. */
  waiting(): Promise<number>;
  /** Waits until `count` connections do. */
  waiters(count: number): Promise<void>;
}

const PATIENT_MS = 60_000;

/** The bounds of the product would end a wait while the machine holds the test up. */
async function openPatient(databaseUrl: string): Promise<PostgresStore> {
  const store = openPostgres(databaseUrl, () => {});
  const timeouts = [...Object.keys(TIMEOUTS), 'query_timeout', 'connectionTimeoutMillis'];
  Object.assign(store.pool.options, Object.fromEntries(timeouts.map((name) => [name, PATIENT_MS])));
  const prisma = new Proxy(await store.prisma(), {
    get(client, name) {
      if (name !== '$transaction') return Reflect.get(client, name);
      const patient = { maxWait: PATIENT_MS, timeout: PATIENT_MS };
      return (work: never, options: object) => client.$transaction(work, { ...options, ...patient });
    },
  });
  return { ...store, prisma: async () => prisma };
}

/**
 * Called by a test file: opens before its tests, closes after them.
 * @param options.withCheck false: without the CHECK that rejects overselling, so that it is seen
 */
export function strategyBench({ withCheck = true } = {}): StrategyBench {
  const stores = opened(openTestStores);
  const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
  const patient = opened(() => openPatient(stores.databaseUrl));
  beforeAll(async () => {
    if (!withCheck) await stores.sql.query('ALTER TABLE sales DROP CONSTRAINT sales_sold_within_stock');
  });

  return {
    postgres,
    patient,
    get sql() {
      return stores.sql;
    },
    get redisUrl() {
      return stores.redisUrl;
    },
    start(entry, store = postgres) {
      const sales = saleTable(store, 'USD');
      const used = { postgres: store, sales, orders: orderTable(store), paymentWindowS: 900 };
      const onError = (doing: string, error: unknown) => {
        throw new Error(doing, { cause: error });
      };
      return entry.create({ ...used, onError, onBatch: () => {} });
    },
    async sale(stock) {
      const { rows } = await stores.sql.query<{ id: number }>(
        `INSERT INTO sales (name, stock, price_cents) VALUES ('test', $1, 500) RETURNING id`,
        [stock],
      );
      return rows[0]!.id;
    },
    async sold(saleId) {
      const { sold, findings } = await judge(stores.sql, null, saleId);
      expect(findings).toEqual([]);
      return sold;
    },
    async during(hold, work) {
      const client = await stores.sql.connect();
      let open = true;
      const end = async (how: 'COMMIT' | 'ROLLBACK') => {
        open = false;
        await client.query(how);
      };
      try {
        await client.query('BEGIN');
        await hold(client);
        return await work(end);
      } finally {
        if (open) await end('ROLLBACK');
        client.release();
      }
    },
    async waiting() {
      const { rows } = await stores.sql.query<{ n: number }>(
        `SELECT count(*)::int AS n FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      return rows[0]!.n;
    },
    async waiters(count) {
      await expect.poll(() => this.waiting(), { interval: 20 }).toBe(count);
    },
  };
}

/** How many attempts ended in each way. */
export function tally(outcomes: readonly { readonly kind: string }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of outcomes) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** Inserts and counts an order, as another process; it commits when `client` does. */
export async function sellPast(client: pg.PoolClient | pg.Pool, { orderId, saleId, userId }: Attempt) {
  await client.query(
    `INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
     VALUES ($1, $2, $3, 'pending', 500, now() + interval '1 hour')`,
    [orderId, saleId, userId],
  );
  await client.query(
    `INSERT INTO points_entries (user_id, source_type, source_id, points) VALUES ($1, 'order', $2, 5)`,
    [userId, orderId],
  );
  await client.query('UPDATE sales SET sold = sold + 1, version = version + 1 WHERE id = $1', [saleId]);
}

/** Ends an order as a cancellation does: the unit returns, with its row if it has one, which is locked before the sale. */
export async function closePast(client: pg.PoolClient | pg.Pool, { orderId, saleId }: Attempt) {
  await client.query(
    `WITH closed AS (UPDATE orders SET status = 'cancelled' WHERE id = $1 RETURNING id, user_id, price_cents),
          reversed AS (INSERT INTO points_entries (user_id, source_type, source_id, points)
            SELECT user_id, 'order-reversal', id::text, -points_earned(price_cents) FROM closed),
          freed AS (UPDATE stock_units SET order_id = NULL WHERE order_id = $1 RETURNING 1)
     UPDATE sales SET sold = sold - 1, version = version + 1 WHERE id = $2 AND (SELECT count(*) FROM freed) < 2`,
    [orderId, saleId],
  );
}

/** The statements that the work sends, by name or first words; those sent without waiting for an answer are one entry. */
export async function statementsOf(work: () => Promise<unknown>): Promise<readonly string[]> {
  const sent: string[] = [];
  const unanswered = new Map<unknown, number>();
  const { query } = pg.Client.prototype as unknown as { query(...args: unknown[]): unknown };
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
    this: unknown,
    ...args: unknown[]
  ) {
    const { name, text } = args[0] as pg.QueryConfig;
    const statement = typeof args[0] === 'string' ? args[0] : (name ?? text);
    if (/clock_timestamp\(\)\) \* 1000/.test(statement)) return query.apply(this, args); // read in the background
    const before = unanswered.get(this) ?? 0;
    sent.push(before > 0 ? `${sent.pop()}, ${statement}` : statement);
    unanswered.set(this, before + 1);
    const answered = () => unanswered.set(this, unanswered.get(this)! - 1);
    const callback = args.at(-1);
    if (typeof callback !== 'function') {
      const result = query.apply(this, args);
      Promise.resolve(result).then(answered, answered);
      return result;
    }
    const done = (...results: unknown[]) => {
      answered();
      callback(...results);
    };
    return query.apply(this, [...args.slice(0, -1), done]);
  } as never);
  try {
    await work();
    return sent;
  } finally {
    spy.mockRestore();
  }
}
