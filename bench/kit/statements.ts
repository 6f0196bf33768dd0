/**
 * The statements of an attempt with a strategy that decides in Postgres, for pgbench or a process of bare pg. They are not
 * written down a second time: the strategy makes an attempt on connections whose queries are recorded, and the sale, the
 * customer, the order and the deadline are found again among the values.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { limits } from '../../src/config/limits.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { strategies } from '../../src/strategies/registry.ts';
import type { StrategyContext } from '../../src/strategies/strategy.ts';

/** What a value stands for; any other value is the same in every attempt. */
export type Value =
  | { readonly is: 'sale' | 'customer' | 'order' }
  /** The sale's version as the SELECT before it read it. */
  | { readonly is: 'version' }
  | { readonly is: 'list'; readonly of: readonly Value[] }
  | { readonly is: 'fixed'; readonly text: string };

export interface Statement {
  readonly text: string;
  readonly values: readonly Value[];
}

/** As many connections as one process of the service has. */
export const poolSize: number = limits.postgresPoolSize;

/** A version that no other value is equal to. */
const markedVersion = 987_654_321;
/** Deadlines are absolute: this one does not come. */
const noDeadline = '2099-01-01T00:00:00Z';

/** Has the strategy make attempts on the sale, and records the statements of the second one. */
export async function statementsOf(
  strategyName: string,
  databaseUrl: string,
  saleId: number,
): Promise<readonly Statement[]> {
  const postgres = openPostgres(databaseUrl, () => {});
  const recorded: { text: string; values: readonly unknown[] }[] = [];
  const client = pg.Client.prototype as { query: (...args: unknown[]) => unknown };
  const { query } = client;
  try {
    const sales = saleTable(postgres);
    const used = {
      postgres,
      sales,
      orders: orderTable(postgres),
      paymentWindowS: 900,
      onBatch: () => {},
      onError: () => {},
    };
    // What is left out is for strategies that decide in Redis.
    const strategy = strategies.get(strategyName)!.create(used as unknown as StrategyContext);
    const sale = await sales.get(saleId);
    if (sale === null) throw new Error(`there is no sale ${saleId}`);
    await strategy.load?.(sale);
    const attempt = async (userId: string) => {
      const own = { saleId, userId, orderId: randomUUID() };
      const { kind } = await strategy.reserve(own);
      if (kind !== 'accepted') throw new Error(`an attempt ended as ${kind}`);
      return own;
    };
    await attempt('the-first'); // opens connections
    await postgres.pool.query('UPDATE sales SET version = $1 WHERE id = $2', [markedVersion, saleId]);
    client.query = function (this: unknown, ...args) {
      const [first, second] = args as [string | { text?: string; values?: unknown[] }, unknown];
      const text = typeof first === 'string' ? first : (first.text ?? '');
      const values = typeof first === 'string' ? second : (first.values ?? second);
      recorded.push({ text, values: Array.isArray(values) ? values : [] });
      return query.apply(this, args);
    };
    const { userId, orderId } = await attempt('the-second');
    const known = new Map<unknown, Value>([
      [saleId, { is: 'sale' }],
      [markedVersion, { is: 'version' }],
      [userId, { is: 'customer' }],
      [orderId, { is: 'order' }],
    ]);
    const meaning = (value: unknown): Value => {
      if (Array.isArray(value)) return { is: 'list', of: value.map(meaning) };
      if (value instanceof Date) return { is: 'fixed', text: noDeadline };
      return known.get(value) ?? { is: 'fixed', text: String(value) };
    };
    return recorded.map(({ text, values }) => ({ text, values: values.map(meaning) }));
  } finally {
    client.query = query;
    await postgres.close();
  }
}

/** Unique, and ascending for each client, as UUIDv7 are. pgbench makes no UUIDs, and one order has the same id in every statement. */
const newOrder = `('01900000-0000-7000-' || lpad(to_hex(:client_id::bigint), 4, '8') || '-' || lpad(to_hex(:n::bigint), 12, '0'))::uuid`;

/** pgbench's script; it needs `-D n=0`. Numbers are variables, sent as values; texts stand in the statement. Pure. */
export function pgbenchScript(statements: readonly Statement[], saleId: number): string {
  const fixed = new Map<string, string>();
  const sql = (value: Value): string => {
    if (value.is === 'order') return newOrder;
    if (value.is === 'list') return `ARRAY[${value.of.map(sql).join(', ')}]`;
    if (value.is !== 'fixed') return `:${value.is}`;
    if (!/^-?\d+(\.\d+)?$/.test(value.text)) return `'${value.text.replaceAll("'", "''")}'`;
    const name = fixed.get(value.text) ?? `fixed${fixed.size + 1}`;
    fixed.set(value.text, name);
    return `:${name}`;
  };
  const needsVersion = statements.some(({ values }) => values.some(({ is }) => is === 'version'));
  const lines = statements.map(({ text, values }) => {
    const filled = text.replaceAll(/\$(\d+)/g, (_, index: string) => {
      const value = values[Number(index) - 1];
      if (value === undefined) throw new Error(`a statement has no value $${index}: ${text}`);
      return sql(value);
    });
    const line = filled.replaceAll(/\s+/g, ' ').trim().replace(/;$/, '');
    return needsVersion && line.startsWith('SELECT') ? `${line} \\gset` : `${line};`;
  });
  const sets = [...fixed].map(([text, name]) => `\\set ${name} ${text}`);
  const customer = '\\set customer random(1000000000000, 9000000000000000)';
  return `${[`\\set sale ${saleId}`, '\\set n :n + 1', ...sets, customer, ...lines].join('\n')}\n`;
}
