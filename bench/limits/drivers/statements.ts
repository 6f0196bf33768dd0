/** A process that sends the statements of an attempt from pg, prepared, on each connection as often as Postgres answers. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import type { StatementsOrder } from '../postgres.ts';
import type { Statement, Value } from '../statements.ts';

process.on('disconnect', () => process.exit(0));
process.once('message', (order: StatementsOrder) => {
  for (let connection = 0; connection < order.connections; connection++) void attemptOn(order, connection);
});

async function attemptOn(
  { databaseUrl, saleId, statements }: StatementsOrder,
  connection: number,
): Promise<never> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // the statement that is under way fails as well
  await client.connect();
  for (let attempt = 1; ; attempt++) {
    const own: Record<string, unknown> = {
      sale: saleId,
      customer: `c${connection}-${attempt}`,
      order: randomUUID(),
    };
    const valueFor = (value: Value): unknown => (value.is === 'fixed' ? value.text : own[value.is]);
    for (const [index, statement] of statements.entries()) await send(client, statement, index, valueFor);
  }
}

async function send(
  client: pg.Client,
  { text, values }: Statement,
  index: number,
  valueFor: (value: Value) => unknown,
): Promise<void> {
  if (values.length === 0) await client.query(text);
  else await client.query({ name: `statement-${index}`, text, values: values.map(valueFor) });
}
