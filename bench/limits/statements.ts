/**
 * The statements of an attempt with `for-update`, for pgbench or a process of bare pg. They are not written down a second
 * time: the strategy makes one attempt on a connection that notes what it is asked, and what stands for the sale, the
 * customer and the order is found again in the values.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { limits } from '../../src/config/limits.ts';
import { strategies } from '../../src/strategies/registry.ts';
import type { StrategyContext } from '../../src/strategies/strategy.ts';

/** What a value of a statement stands for; any other value is the same in every attempt. */
export type Value =
  | { readonly is: 'sale' | 'customer' | 'order' }
  | { readonly is: 'fixed'; readonly text: string };

export interface Statement {
  readonly text: string;
  readonly values: readonly Value[];
}

/** As many connections as one process of the service has. */
export const connections: number = limits.postgresPoolSize;

/** Has the strategy make an attempt on the sale, which must be open, and notes its statements. */
export async function statementsOf(databaseUrl: string, saleId: number): Promise<readonly Statement[]> {
  const noted: { text: string; values: readonly unknown[] }[] = [];
  class NotingClient extends pg.Client {
    // biome-ignore lint/suspicious/noExplicitAny: pg has a dozen ways to call it, and all of them pass through here.
    override query(...args: any[]): any {
      const [first, second] = args as [string | { text?: string; values?: unknown[] }, unknown];
      const text = typeof first === 'string' ? first : (first.text ?? '');
      const values = typeof first === 'string' ? second : (first.values ?? second);
      noted.push({ text, values: Array.isArray(values) ? values : [] });
      // biome-ignore lint/suspicious/noExplicitAny: see above.
      return (super.query as any)(...args);
    }
  }
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1, Client: NotingClient });
  pool.on('error', () => {}); // the statement that is under way fails as well
  const attempt = { saleId, userId: 'the-first', orderId: randomUUID() };
  try {
    const strategy = strategies.get('for-update')!.create(contextWith(pool));
    const outcome = await strategy.reserve(attempt);
    if (outcome.kind !== 'accepted') throw new Error(`the first attempt ended as ${outcome.kind}`);
  } finally {
    await pool.end();
  }
  const known = new Map<unknown, Value>([
    [attempt.saleId, { is: 'sale' }],
    [attempt.userId, { is: 'customer' }],
    [attempt.orderId, { is: 'order' }],
  ]);
  return noted.map(({ text, values }) => ({
    text,
    values: values.map((value) => known.get(value) ?? { is: 'fixed', text: String(value) }),
  }));
}

/** What a strategy that decides in Postgres uses of its context. */
function contextWith(pool: pg.Pool): StrategyContext {
  const used = { postgres: { pool }, paymentWindowS: 900, onError: () => {} };
  return used as unknown as StrategyContext;
}

/** pgbench's script: each value is a variable, so that it is sent as one, not written into the statement. Pure. */
export function pgbenchScript(statements: readonly Statement[], saleId: number, newOrder: string): string {
  const fixed = new Map<string, string>();
  const variable = (value: Value): string => {
    if (value.is === 'order') return newOrder;
    if (value.is !== 'fixed') return `:${value.is}`;
    const name = fixed.get(value.text) ?? `fixed${fixed.size + 1}`;
    fixed.set(value.text, name);
    return `:${name}`;
  };
  const lines = statements.map(({ text, values }) => {
    const filled = text.replaceAll(/\$(\d+)/g, (_, index: string) => {
      const value = values[Number(index) - 1];
      if (value === undefined) throw new Error(`a statement has no value $${index}: ${text}`);
      return variable(value);
    });
    return `${filled.replaceAll(/\s+/g, ' ').trim().replace(/;$/, '')};`;
  });
  const sets = [...fixed].map(([text, name]) => {
    if (!/^-?\d+(\.\d+)?$/.test(text)) throw new Error(`pgbench cannot be given the value ${text}`);
    return `\\set ${name} ${text}`;
  });
  const customer = '\\set customer random(1000000000000, 9000000000000000)';
  return `${[`\\set sale ${saleId}`, ...sets, customer, ...lines].join('\n')}\n`;
}
