/**
 * Several Postgres for the sales of one service. Each has whole sales, with their orders, points, tasks and audit log, and is a cell; the
 * first one, cell 0, also has the directory, which says where a sale is.
 *
 *   a new sale ──▶ the directory draws its id, and names a cell: that of its limitGroup, or the one that was named longest ago
 *                    └──committed──▶ the cell inserts the sale    (a crash between both: an id without a sale, unknown like any other)
 *   a sale     ──▶ in the memory of the process ──no──▶ in the directory ──no──▶ a sale of cell 0 that is older than the directory, or unknown
 *                    └── for ever: a sale never moves
 *
 * Ids of sales are unique, because cell 0 draws them all, and an order's id names its sale. A start checks that each Postgres is the cell
 * for which it is named, because one in another's place would have other orders of the same customers:
 *
 *   every cell locked ──no identity, and no sales──▶ it becomes a cell      ──the identity of this place──▶ checked
 *                     └──anything else──▶ refused, and nothing is written
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { coalesce } from '../../concurrency/coalesce.ts';
import { StartError } from '../../config/errors.ts';
import { limits } from '../../config/limits.ts';
import { serversOf } from '../../config/urls/hosts.ts';
import { type IdempotencyKey, once } from './idempotency.ts';
import { inTransaction, type PostgresStore, serverOf } from './pool.ts';

/** Where a new sale goes. */
export interface Place {
  readonly saleId: number;
  readonly cell: number;
}

export interface CellDirectory {
  /** The cell of a sale, if this process knows it. */
  known(saleId: number): number | undefined;
  /** The cell of a sale; of one that does not exist, 0. @throws what Postgres throws */
  cellOf(saleId: number): Promise<number>;
  /**
   * Draws the id of a sale. @param key of a request that has one: a repeat gets the same place
   * @throws KeyReusedError; what Postgres throws
   */
  place(limitGroup: string | null, key: IdempotencyKey | null): Promise<Place>;
  /** Whether all sales of a group are in this cell; one without sales is, from now on. @throws what Postgres throws */
  claim(limitGroup: string, cell: number): Promise<boolean>;
}

/** "cells" in ASCII, as the key of advisory locks: of the directory in cell 0, and of a start in each. */
const LOCK = 0x63_65_6c_6c_73;

const FIND = `SELECT coalesce((SELECT cell FROM sale_cells WHERE sale_id = $1), (SELECT 0 FROM sales WHERE id = $1)) AS cell`;
/** A group whose first sale is older than the directory is in cell 0. */
const OF_GROUP = `
  SELECT coalesce((SELECT cell FROM group_cells WHERE limit_group = $1), (SELECT 0 FROM sales WHERE limit_group = $1 LIMIT 1)) AS cell`;
const NEXT = `
  SELECT n AS cell FROM generate_series(0, $1::int - 1) AS n
  ORDER BY (SELECT max(sale_id) FROM sale_cells WHERE cell = n) NULLS FIRST, n LIMIT 1`;

/** @param postgres cell 0 @param cells how many there are */
export function cellDirectory(postgres: PostgresStore, cells: number): CellDirectory {
  const places = new Map<number, number>();
  const find = coalesce(async (saleId: number) => {
    const { rows } = await postgres.pool.query<{ cell: number | null }>({
      name: 'find-cell',
      text: FIND,
      values: [saleId],
    });
    const { cell } = rows[0]!;
    if (cell !== null) places.set(saleId, cell);
    return cell ?? 0;
  });

  /** One after the other, so that two first sales of a group get the same cell. */
  async function choose(client: pg.PoolClient, limitGroup: string | null, otherwise?: number) {
    await client.query('SELECT pg_advisory_xact_lock($1)', [LOCK]);
    const ofGroup = limitGroup && (await client.query<{ cell: number | null }>(OF_GROUP, [limitGroup]));
    const cell = (ofGroup && ofGroup.rows[0]!.cell) ?? otherwise ?? (await next(client));
    if (limitGroup !== null)
      await client.query('INSERT INTO group_cells VALUES ($1, $2) ON CONFLICT DO NOTHING', [
        limitGroup,
        cell,
      ]);
    return cell;
  }

  const next = async (client: pg.PoolClient) =>
    (await client.query<{ cell: number }>(NEXT, [cells])).rows[0]!.cell;

  return {
    known: (saleId) => places.get(saleId),
    cellOf: async (saleId) => places.get(saleId) ?? (saleId <= limits.maxSaleId ? find(saleId) : 0),
    // The cell has the key, too, with the sale itself.
    place: (limitGroup, key) =>
      once(postgres, key && { ...key, id: `place ${key.id}` }, async (client) => {
        const { rows } = await client.query<Place>(
          `INSERT INTO sale_cells VALUES (nextval(pg_get_serial_sequence('sales', 'id')), $1)
           RETURNING sale_id AS "saleId", cell`,
          [await choose(client, limitGroup)],
        );
        return { commit: true, value: rows[0]! };
      }),
    claim: (limitGroup, cell) =>
      inTransaction(postgres.pool, async (client) => {
        const isHere = (await choose(client, limitGroup, cell)) === cell;
        return { commit: isHere, value: isHere };
      }),
  };
}

interface Identity {
  readonly directory: string;
  readonly cell: number;
  readonly cells: number;
}

/**
 * Checks which cell each Postgres is, and makes cells of new ones.
 * @param urls of cell 0, and of the others in their order; one alone must not be one of several
 * @param writes false: no cell is made
 * @throws StartError when one is another cell, or is no cell and cannot become one, and then nothing is written; what Postgres throws
 */
export async function checkCells(urls: readonly string[], writes: boolean): Promise<void> {
  // One connection each, never closed while idle: it has the transaction.
  const pools = urls.map((url) => {
    const connectionTimeoutMillis = limits.postgresConnectMs;
    return new pg.Pool({ ...serverOf(url), max: 1, idleTimeoutMillis: 0, connectionTimeoutMillis });
  });
  const [first, ...others] = pools as [pg.Pool, ...pg.Pool[]];
  const all = async (statement: string) => {
    for (const pool of others) await pool.query(statement);
    await first.query(statement);
  };
  try {
    for (const pool of pools) pool.on('error', () => {}); // a lost connection also fails the query in progress
    await all('BEGIN');
    const { directory, made } = await check(pools, urls, writes);
    if (made[0] === 0) {
      // By itself first: cells of a directory that was not committed would be foreign ones for ever.
      for (const pool of others) await pool.query('ROLLBACK');
      await first.query('SELECT become_cell($1, 0)', [directory]);
      await first.query('COMMIT');
    } else {
      for (const n of made) await pools[n]!.query('SELECT become_cell($1, $2)', [directory, n]);
      if (writes) await first.query('UPDATE cell_identity SET cells = $1 WHERE cells < $1', [urls.length]);
      for (const [n, pool] of others.entries()) if (writes) await enterSales(first, pool, n + 1);
      await all('COMMIT');
      return;
    }
  } finally {
    await Promise.all(pools.map((pool) => pool.end()));
  }
  await checkCells(urls, writes);
}

/** A cell 0 that was restored from a dump lacks the sales that other cells have since. */
async function enterSales(first: pg.Pool, pool: pg.Pool, cell: number): Promise<void> {
  const known = await first.query<{ last: number }>(
    'SELECT coalesce(max(sale_id), 0) AS last FROM sale_cells WHERE cell = $1',
    [cell],
  );
  const { rows } = await pool.query<{ id: number; limitGroup: string | null }>(
    'SELECT id, limit_group AS "limitGroup" FROM sales WHERE id > $1',
    [known.rows[0]!.last],
  );
  const groups = new Set(rows.flatMap(({ limitGroup }) => limitGroup ?? []));
  await first.query('INSERT INTO sale_cells SELECT unnest($1::int[]), $2', [rows.map(({ id }) => id), cell]);
  await first.query('INSERT INTO group_cells SELECT unnest($1::text[]), $2 ON CONFLICT DO NOTHING', [
    [...groups],
    cell,
  ]);
}

/** @returns which of them are new @throws StartError, see `checkCells` */
async function check(pools: readonly pg.Pool[], urls: readonly string[], writes: boolean) {
  const refuse = (n: number, why: string) =>
    new StartError(
      `${nameOf(n)}, at ${serversOf(urls[n]!)}, ${why} See docs/explanation/scaling.md, "Cells".`,
    );
  await pools[0]!.query('SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0');
  await pools[0]!.query('SELECT pg_advisory_xact_lock($1)', [LOCK]); // other starts wait
  const first = await identityOf(pools[0]!);
  const { directory = randomUUID(), cell = 0, cells = 0 } = first ?? {};
  if (cell !== 0) throw refuse(0, `is cell ${cell}: DATABASE_URL names cell 0.`);
  if (urls.length < cells)
    throw refuse(0, `is the first of ${cells} cells: CELL_DATABASE_URLS must name the other ${cells - 1}.`);
  if (urls.length === 1) return { directory, made: [] };
  const made: number[] = [];
  for (const [n, pool] of pools.entries()) {
    if (n > 0 && !(await isLocked(pool)))
      throw refuse(n, 'is named twice, or a service of another directory starts on it.');
    const identity = await identityOf(pool);
    if (identity === null) {
      if (n < cells) throw refuse(n, `is not cell ${n}, which has sales: name its server, or restore it.`);
      if (n > 0 && (await hasSales(pool)))
        throw refuse(n, 'has sales already: only an empty database becomes a cell.');
      if (!writes)
        throw refuse(n, 'is no cell yet, and MIGRATE=never writes nothing: npm run migrate makes it one.');
      made.push(n);
    } else if (identity.directory !== directory) throw refuse(n, 'is a cell of another directory.');
    else if (identity.cell !== n) throw refuse(n, `is cell ${identity.cell}: name the cells in their order.`);
  }
  return { directory, made };
}

const nameOf = (n: number): string => (n === 0 ? 'DATABASE_URL' : `Number ${n} of CELL_DATABASE_URLS`);

async function identityOf(pool: pg.Pool): Promise<Identity | null> {
  const { rows } = await pool.query<Identity>('SELECT directory::text, cell, cells FROM cell_identity');
  return rows[0] ?? null;
}

const isLocked = async (pool: pg.Pool): Promise<boolean> =>
  (await pool.query<{ ours: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS ours', [LOCK])).rows[0]!.ours;

const hasSales = async (pool: pg.Pool): Promise<boolean> =>
  (await pool.query('SELECT FROM sales LIMIT 1')).rowCount === 1;
