/**
 * The statements of an attempt with a strategy that decides in Postgres, as a script for pgbench. They are not duplicated:
 * the strategy makes an attempt on connections whose queries are recorded, and the script replaces the sale, the customer,
 * the order and the deadline among the values.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { strategies } from '../../src/strategies/registry.ts';

interface Recorded {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** A version that equals no other value. */
const markedVersion = 987_654_321;
/** Deadlines are absolute: this one never comes. */
const noDeadline = '2099-01-01T00:00:00Z';
/** Unique and ascending per client like UUIDv7, which pgbench cannot make; all statements of an order get the same id. */
const newOrder = `('01900000-0000-7000-' || lpad(to_hex(:client_id::bigint), 4, '8') || '-' || lpad(to_hex(:n::bigint), 12, '0'))::uuid`;

/** Lets the strategy make two attempts on the sale. @returns a script of the second one; it needs `-D n=0` */
export async function pgbenchScript(name: string, databaseUrl: string, saleId: number): Promise<string> {
  const recorded: Recorded[] = [];
  const second = await attemptTwice(name, databaseUrl, saleId, recorded);
  const variables = new Map<unknown, string>([
    [saleId, ':sale'],
    [markedVersion, ':version'],
    [second.userId, ':customer'],
    [second.orderId, newOrder],
  ]);
  const sql = (value: unknown): string => {
    if (value === null) return 'NULL';
    if (Array.isArray(value)) return `ARRAY[${value.map(sql).join(', ')}]`;
    if (value instanceof Date) return `'${noDeadline}'`;
    return variables.get(value) ?? `'${String(value).replaceAll("'", "''")}'`; // its type is inferred, as a parameter's is
  };
  const needsVersion = recorded.some(({ values }) => values.includes(markedVersion));
  const lines = recorded.map(({ text, values }) => {
    const filled = text.replaceAll(/\$(\d+)/g, (_, index: string) => sql(values[Number(index) - 1]));
    const line = filled.replaceAll(/\s+/g, ' ').trim().replace(/;$/, '');
    return needsVersion && line.startsWith('SELECT') ? `${line} \\gset` : `${line};`;
  });
  const customer = '\\set customer random(1000000000000, 9000000000000000)';
  return `${[`\\set sale ${saleId}`, '\\set n :n + 1', customer, ...lines].join('\n')}\n`;
}

/** The first attempt opens connections; the queries of the second are recorded. */
async function attemptTwice(name: string, databaseUrl: string, saleId: number, recorded: Recorded[]) {
  const postgres = openPostgres(databaseUrl, () => {});
  const client = pg.Client.prototype as { query: (...args: unknown[]) => unknown };
  const { query } = client;
  try {
    const sales = saleTable(postgres, 'USD');
    const used = { postgres, sales, orders: orderTable(postgres), paymentWindowS: 900 };
    const strategy = strategies.get(name)!.create({ ...used, onBatch: () => {}, onError: () => {} }, null);
    await strategy.load?.((await sales.get(saleId))!);
    const attempt = async (userId: string) => {
      const own = { saleId, userId, orderId: randomUUID(), quantity: 1 };
      const { kind } = await strategy.decide(own);
      if (kind !== 'accepted') throw new Error(`an attempt ended as ${kind}`);
      return own;
    };
    await attempt('the-first');
    await postgres.pool.query('UPDATE sales SET version = $1 WHERE id = $2', [markedVersion, saleId]);
    client.query = function (this: unknown, ...args) {
      const [first, second] = args as [string | { text?: string; values?: unknown[] }, unknown];
      const text = typeof first === 'string' ? first : (first.text ?? '');
      const values = typeof first === 'string' ? second : (first.values ?? second);
      recorded.push({ text, values: Array.isArray(values) ? values : [] });
      return query.apply(this, args);
    };
    return await attempt('the-second');
  } finally {
    client.query = query;
    await postgres.close();
  }
}
