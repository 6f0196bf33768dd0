import fc from 'fast-check';
import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { plainArray, textArray } from '../../src/store/array-literal.ts';

let client: pg.Client;
beforeAll(async () => {
  client = new pg.Client(inject('postgresUrl'));
  await client.connect();
});
afterAll(() => client.end());

it('Postgres reads texts as they are, whatever is in them', async () => {
  const text = fc.string({ unit: 'binary' }).filter((some) => !some.includes('\0'));
  const odd = fc.constantFrom('NULL', 'null', '', '"', '\\', '{}', ',', ' a ', "'", '\\"', '\n');
  await fc.assert(
    fc.asyncProperty(fc.array(fc.oneof(text, odd), { maxLength: 8 }), async (values) => {
      const { rows } = await client.query('SELECT $1::text[] AS read', [textArray(values)]);
      expect(rows[0].read).toEqual(values);
    }),
    { numRuns: 300 },
  );
});

it('Postgres reads ids and numbers', async () => {
  const ids = [crypto.randomUUID(), crypto.randomUUID()];
  const { rows } = await client.query('SELECT $1::uuid[] AS ids, $2::int[] AS numbers, $3::int[] AS none', [
    plainArray(ids),
    plainArray([1, -2, 2_147_483_647]),
    plainArray([]),
  ]);
  expect(rows).toEqual([{ ids, numbers: [1, -2, 2_147_483_647], none: [] }]);
});
