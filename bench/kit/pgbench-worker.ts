/** Stands in for pgbench where it is not installed: sends an attempt's statements from pg, prepared, on each connection. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import type { StatementsOrder } from './pgbench.ts';
import type { Value } from './statements.ts';

process.on('disconnect', () => process.exit(0));
process.once('message', (order: StatementsOrder) => {
  for (let connection = 0; connection < order.connections; connection++) void repeat(order, connection);
});

async function repeat(
  { databaseUrl, saleId, statements }: StatementsOrder,
  connection: number,
): Promise<never> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // the statement in flight fails as well
  await client.connect();
  let version: unknown = null;
  for (let attempt = 1; ; attempt++) {
    const own = { sale: saleId, customer: `c${connection}-${attempt}`, order: randomUUID() };
    const filled = (value: Value): unknown => {
      if (value.is === 'fixed') return value.text;
      if (value.is === 'list') return value.of.map(filled);
      return value.is === 'version' ? version : own[value.is];
    };
    for (const [index, { text, values }] of statements.entries()) {
      const named = { name: `statement-${index}`, text, values: values.map(filled) };
      const { rows } = await (values.length === 0 ? client.query(text) : client.query(named));
      version = (rows[0] as { version?: unknown } | undefined)?.version ?? version;
    }
  }
}
