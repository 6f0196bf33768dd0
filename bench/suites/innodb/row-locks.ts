/**
 * Which rows FOR UPDATE locks, and two deadlocks of inserts: each shown by sessions that wait.
 *
 *   holder: BEGIN, SELECT … FOR UPDATE ─▶ another session: one statement ─▶ holder: ROLLBACK, HOLD_MS later
 *
 * A statement that waits takes as long as the holder holds; one that does not takes a few milliseconds.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Rejection, rejectionOf, type Sql } from './sql.ts';

/** The table has the rows 10, 20, … 1000: the number is in the key, in a column with an index, and in one without. */
export const ROWS = 100;
const [FOUND, OTHER, MISSING] = [300, 500, 305];
const HOLD_MS = 300;
/** The time between two steps of a deadlock: the first one waits before the second begins. */
const STEP_MS = 100;

/** How the row is found. */
export const searches = {
  'primary key': { of: (n: number) => `id = ${n}`, searched: FOUND },
  'secondary index': { of: (n: number) => `code = ${n}`, searched: FOUND },
  'no index': { of: (n: number) => `label = ${n}`, searched: FOUND },
  'range of the primary key': { of: (n: number) => `id BETWEEN ${n} AND ${n + 100}`, searched: FOUND },
  'primary key, no such row': { of: (n: number) => `id = ${n}`, searched: MISSING },
} as const;
export type Search = keyof typeof searches;

type Probe = (search: (typeof searches)[Search]) => string;

/** What another session tries meanwhile. */
export const probes = {
  [`update of row ${FOUND}`]: () => `UPDATE items SET counter = counter + 1 WHERE id = ${FOUND}`,
  [`update of row ${OTHER}`]: () => `UPDATE items SET counter = counter + 1 WHERE id = ${OTHER}`,
  [`insert of row ${MISSING}`]: () =>
    `INSERT INTO items (id, code, label) VALUES (${MISSING}, ${MISSING}, ${MISSING})`,
  [`the same search for row ${OTHER}`]: ({ of }) => `SELECT id FROM items WHERE ${of(OTHER)} FOR UPDATE`,
} as const satisfies Record<string, Probe>;

/** By search: how many of the `ROWS` rows another session could not lock, and how long each probe took, in ms. */
export type RowLocks = Readonly<
  Record<Search, { readonly locked: number; readonly tookMs: Readonly<Record<string, number>> }>
>;

export async function makeItems(sql: Sql): Promise<void> {
  await sql.run(
    'CREATE TABLE items (id INT PRIMARY KEY, code INT NOT NULL, label INT NOT NULL, counter INT NOT NULL DEFAULT 0)',
  );
  await sql.run('CREATE INDEX items_code ON items (code)');
  const rows = Array.from({ length: ROWS }, (_, n) => `(${[10, 10, 10].map((step) => step * (n + 1))})`);
  await sql.run(`INSERT INTO items (id, code, label) VALUES ${rows}`);
}

async function rollbackAfter(sql: Sql, ms: number): Promise<void> {
  await sleep(ms);
  await sql.run('ROLLBACK');
}

/** Times the statement alone; its effect is undone. */
async function timed(sql: Sql, text: string): Promise<number> {
  await sql.run('BEGIN');
  const startMs = performance.now();
  await sql.run(text);
  const tookMs = performance.now() - startMs;
  await sql.run('ROLLBACK');
  return tookMs;
}

/** @param holder a session of the same server as `other` */
export async function measureRowLocks(holder: Sql, other: Sql): Promise<RowLocks> {
  const names = Object.keys(searches) as Search[];
  const measured: [Search, RowLocks[Search]][] = [];
  for (const name of names) {
    const search = searches[name];
    const hold = async () => {
      await holder.run('BEGIN');
      await holder.run(`SELECT id FROM items WHERE ${search.of(search.searched)} FOR UPDATE`);
    };
    await hold();
    await other.run('BEGIN');
    const free = await other.run('SELECT id FROM items FOR UPDATE SKIP LOCKED');
    await other.run('ROLLBACK');
    await holder.run('ROLLBACK');
    const tookMs: Record<string, number> = {};
    for (const [probe, textOf] of Object.entries(probes)) {
      await hold();
      const [ms] = await Promise.all([timed(other, textOf(search)), rollbackAfter(holder, HOLD_MS)]);
      tookMs[probe] = ms;
    }
    measured.push([name, { locked: ROWS - free.rows.length, tookMs }]);
  }
  return Object.fromEntries(measured) as RowLocks;
}

/** How an insert ended, and after how long, in ms. */
interface Ending {
  readonly outcome: Rejection | 'inserted';
  readonly tookMs: number;
}
type Deadlock = 'two sessions find no row, then insert it' | 'three insert one key, the first rolls back';
export type Deadlocks = Readonly<Record<Deadlock, readonly Ending[]>>;

const INSERT = `INSERT INTO items (id, code, label) VALUES (${MISSING}, ${MISSING}, ${MISSING})`;

/** Inserts, and commits after a pause; rolls back when the insert is rejected. */
async function insert(sql: Sql): Promise<Ending> {
  const startMs = performance.now();
  const outcome = await sql.run(INSERT).then(() => 'inserted' as const, rejectionOf);
  const tookMs = performance.now() - startMs;
  if (outcome === 'inserted') await sleep(STEP_MS);
  await sql.run(outcome === 'inserted' ? 'COMMIT' : 'ROLLBACK');
  return { outcome, tookMs };
}

/** Starts each insert while the one before still waits or holds. */
async function insertAll(sessions: readonly Sql[]): Promise<Ending[]> {
  const endings: Promise<Ending>[] = [];
  for (const session of sessions) {
    endings.push(insert(session));
    await sleep(STEP_MS / 2);
  }
  return Promise.all(endings);
}

export async function measureDeadlocks(sessions: readonly [Sql, Sql, Sql]): Promise<Deadlocks> {
  const [first, second, third] = sessions;
  const forget = () => first.run(`DELETE FROM items WHERE id = ${MISSING}`);
  const pair = [first, second];
  for (const session of pair) {
    await session.run('BEGIN');
    await session.run(`SELECT id FROM items WHERE id = ${MISSING} FOR UPDATE`);
  }
  const afterSearch = await insertAll(pair);
  await forget();
  for (const session of sessions) await session.run('BEGIN');
  await first.run(INSERT);
  const [afterRollback] = await Promise.all([insertAll([second, third]), rollbackAfter(first, 2 * STEP_MS)]);
  await forget();
  return {
    'two sessions find no row, then insert it': afterSearch,
    'three insert one key, the first rolls back': afterRollback,
  };
}
