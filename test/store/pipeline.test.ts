/**
 * Statements that share a connection without waiting for each other, while statements fail, are cancelled or time out, and connections
 * are cut: each answer belongs to its own statement, and only what was answered with success or not at all may be in the table.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { type Random, seededRandom } from '../../lab/kit/random.ts';
import { classifyPostgresError } from '../../src/store/failures/postgres.ts';
import { inTransaction, openPostgres } from '../../src/store/postgres/pool.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';
import { tier } from '../support/tier.ts';

const ROUNDS = tier === 'quick' ? 60 : 1_500;
const CONNECTIONS = 4;
const DEPTH = 12;
const PREPARED = 5;

const stores = opened(openTestStores);
const postgres = opened(() => {
  const store = openPostgres(stores.ownerUrl, () => {}, { connections: CONNECTIONS });
  Object.assign(store.pool.options, { connectionTimeoutMillis: 60_000 }); // it connects hundreds of times
  return store;
});
beforeAll(async () => {
  await stores.sql.query('CREATE TABLE written (id int PRIMARY KEY)');
});

/** What may be expected of a statement that is not disturbed. */
type Kind = 'writes' | 'fails' | 'fails-late' | 'slow' | 'too-slow';
const TEXTS: Readonly<Record<Kind, string>> = {
  writes: 'INSERT INTO written VALUES ($1::int) RETURNING id',
  fails: 'INSERT INTO written SELECT $1::int / 0 RETURNING id',
  'fails-late': 'INSERT INTO written VALUES ($1::int), ($1::int) RETURNING id',
  slow: 'WITH w AS (INSERT INTO written VALUES ($1::int) RETURNING id) SELECT id, pg_sleep(0.002) FROM w',
  'too-slow': 'WITH w AS (INSERT INTO written VALUES ($1::int) RETURNING id) SELECT id, pg_sleep(0.5) FROM w',
};
const CODES: Readonly<Partial<Record<Kind, string>>> = { fails: '22012', 'fails-late': '23505' };
const CANCELLED = '57014';
/** The statement that would have prepared it was cancelled before it could. */
const NOT_PREPARED = '26000';

type Answer = 'written' | 'not written' | 'unknown';

let lastId = 0;
/** Sends one statement. @returns what its answer says; an answer of another statement fails the test */
async function send(client: pg.PoolClient, random: Random): Promise<[id: number, answer: Answer]> {
  const id = ++lastId;
  const draw = random();
  const kind: Kind =
    draw < 0.7
      ? 'writes'
      : draw < 0.8
        ? 'fails'
        : draw < 0.9
          ? 'fails-late'
          : draw < 0.995
            ? 'slow'
            : 'too-slow';
  const isNamed = random() < 0.8;
  const query = {
    ...(isNamed && { name: `${kind} ${Math.floor(random() * PREPARED)}` }),
    ...(kind === 'too-slow' && { query_timeout: 50 }),
    ...{ text: TEXTS[kind], values: [id] },
  };
  try {
    const { rows } = await client.query<{ id: number }>(query);
    expect(
      rows.map((row) => row.id),
      `${kind} ${id}`,
    ).toEqual([id]);
    return [id, 'written'];
  } catch (error) {
    const { code } = error as { code?: string };
    const { kind: failure } = classifyPostgresError(error);
    if (failure === 'unknown') return [id, 'unknown'];
    expect([CODES[kind], CANCELLED, NOT_PREPARED], `${kind} ${id}: ${error}`).toContain(code);
    return [id, 'not written'];
  }
}

/** Disturbs one of the connections; most of the time none. */
async function disturb(random: Random, pids: readonly number[]): Promise<void> {
  const draw = random();
  if (draw > 0.3) return;
  await sleep(random() * 5);
  const pid = pids[Math.floor(random() * pids.length)]!;
  await stores.sql.query(`SELECT ${draw < 0.2 ? 'pg_cancel_backend' : 'pg_terminate_backend'}($1)`, [pid]);
}

it('each statement gets its own answer, whatever fails beside it', { timeout: 600_000 }, async () => {
  const random = seededRandom(4711);
  const answers = new Map<number, Answer>();
  for (let round = 0; round < ROUNDS; round++) {
    const clients = await Promise.all(Array.from({ length: CONNECTIONS }, () => postgres.pool.connect()));
    const pids = clients.map((client) => (client as unknown as { processID: number }).processID);
    const disturbance = disturb(random, pids);
    await Promise.all(
      clients.map(async (client) => {
        const sent: Promise<[number, Answer]>[] = [];
        for (let n = Math.ceil(random() * DEPTH); n > 0; n--) {
          sent.push(send(client, random));
          if (random() < 0.3) await Promise.race(sent);
        }
        const own = await Promise.all(sent);
        for (const [id, answer] of own) answers.set(id, answer);
        client.release(own.some(([, answer]) => answer === 'unknown'));
      }),
    );
    await disturbance;
  }
  // What has no answer may still be running.
  const running = `SELECT FROM pg_stat_activity WHERE query LIKE '%written%' AND pid <> pg_backend_pid() AND state = 'active'
    AND datname = current_database()`;
  await expect.poll(async () => (await stores.sql.query(running)).rowCount).toBe(0);
  const { rows } = await stores.sql.query<{ id: number }>('SELECT id FROM written');
  const written = new Set(rows.map(({ id }) => id));
  const wrong = [...answers].filter(
    ([id, answer]) => answer !== 'unknown' && written.has(id) !== (answer === 'written'),
  );
  expect(wrong).toEqual([]);
  const count = (wanted: Answer) => [...answers.values()].filter((answer) => answer === wanted).length;
  expect(count('written')).toBeGreaterThan(ROUNDS);
  expect(count('unknown')).toBeGreaterThan(0);
});

it('each statement of those sent together may take its whole time', async () => {
  const store = openPostgres(stores.databaseUrl, () => {});
  onTestFinished(() => store.close());
  Object.assign(store.pool.options, { query_timeout: 3_000 });
  const slow = (client: pg.PoolClient) => client.query({ name: 'slow', text: 'SELECT pg_sleep(1.2)' });
  const read = await inTransaction<number, readonly unknown[]>(
    store.pool,
    (_, rows) => ({ commit: true, value: rows.length }),
    (client) => Promise.all([slow(client), slow(client), slow(client)]),
  );
  expect(read).toBe(3);
});
