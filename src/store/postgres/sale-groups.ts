/**
 * Groups of customers who may buy before a sale starts for all. By Postgres's clock, a group may buy from its `opensAt` on.
 *
 *   a customer presents a code ──theirs already──▶ it opens the sale to them
 *        │                        └─ a use is left ──▶ taken, in the same statement ──▶ the same
 *        └─ unknown, or every use is another customer's ──▶ refused; nothing is changed
 *
 * Once the sale has started for all, no use is taken, and a code that is not theirs is ignored.
 * A use is taken by the first presentation, also before `opensAt`, and stays the customer's: repeats, and those after a lost answer, find it.
 */
import type pg from 'pg';
import { classifyPostgresError } from '../failures/postgres.ts';
import { type IdempotencyKey, once } from './idempotency.ts';
import type { PostgresStore } from './pool.ts';
import { fromRow } from './rows.ts';

export interface SaleGroup {
  readonly saleId: number;
  readonly name: string;
  /** ISO 8601 UTC. */
  readonly opensAt: string;
  /** Null: a group without codes, for tokens that name it. */
  readonly codes: { readonly count: number; readonly uses: number; readonly taken: number } | null;
}

export interface NewGroup extends Pick<SaleGroup, 'name' | 'opensAt'> {
  readonly codes?: readonly { readonly code: string; readonly uses: number }[] | undefined;
}

export type Presented =
  /** Milliseconds since 1970, by Postgres's clock. */
  | { readonly kind: 'opens'; readonly opensMs: number; readonly nowMs: number }
  /** The sale has started for all, or does not exist: the code is ignored. */
  | { readonly kind: 'ignored' }
  | { readonly kind: 'invalid-code'; readonly reason: 'unknown' | 'used-up' };

export type SaleGroups = ReturnType<typeof saleGroups>;

const GROUPS = `
  SELECT g.sale_id AS "saleId", g.name, g.opens_at AS "opensAt", CASE WHEN has_codes THEN json_build_object(
    'count', count(c.code), 'uses', coalesce(sum(c.uses), 0), 'taken', coalesce(sum(c.taken), 0)) END AS codes
  FROM sale_groups AS g LEFT JOIN sale_codes AS c ON c.sale_id = g.sale_id AND c.group_name = g.name
  WHERE g.sale_id = $1 AND ($2::text IS NULL OR g.name = $2) GROUP BY g.sale_id, g.name ORDER BY g.opens_at, g.name`;

const MS = (at: string) => `floor(extract(epoch FROM ${at}) * 1000)::float8`;

// A presentation of the same customer that is in progress fails it by the key, or takes the last use: then it is tried again.
const PRESENT = `
  WITH early AS MATERIALIZED (
    SELECT FROM sales WHERE id = $1 AND starts_at > clock_timestamp()
  ), known AS (
    SELECT FROM sale_code_uses WHERE sale_id = $1 AND code = $2 AND user_id = $3
  ), taken AS (
    UPDATE sale_codes SET taken = taken + 1
    WHERE sale_id = $1 AND code = $2 AND taken < uses AND NOT EXISTS (SELECT FROM known) AND EXISTS (SELECT FROM early)
    RETURNING sale_id, code
  ), used AS (
    INSERT INTO sale_code_uses (sale_id, code, user_id) SELECT sale_id, code, $3 FROM taken RETURNING 1
  )
  SELECT ${MS('g.opens_at')} AS "opensMs", ${MS('clock_timestamp()')} AS "nowMs", EXISTS (SELECT FROM early) AS "isEarly",
    EXISTS (SELECT FROM known) OR EXISTS (SELECT FROM used) AS "isTheirs"
  FROM (VALUES (1)) AS one LEFT JOIN (sale_codes AS c JOIN sale_groups AS g ON g.sale_id = c.sale_id AND g.name = c.group_name)
    ON c.sale_id = $1 AND c.code = $2`;
const PRESENT_TRIES = 3;

interface PresentedRow {
  /** Null: no group has the code. */
  readonly opensMs: number | null;
  readonly nowMs: number;
  readonly isEarly: boolean;
  readonly isTheirs: boolean;
}

export function saleGroups(postgres: PostgresStore) {
  const { pool } = postgres;
  const list = async (db: Pick<pg.PoolClient, 'query'>, saleId: number, name: string | null = null) =>
    (await db.query(GROUPS, [saleId, name])).rows.map(fromRow<SaleGroup>);
  return {
    /**
     * Adds a group, or codes to a group that has some. What exists already and is the same is kept.
     * @returns null: no such sale; `late`: it would not open before the sale; `differs`: the group, or a code, exists and is another one
     * @throws KeyReusedError; what Postgres throws
     */
    add(saleId: number, { name, opensAt, codes }: NewGroup, key: IdempotencyKey | null = null) {
      const refused = (value: null | 'late' | 'differs') => ({ commit: false, value });
      return once<SaleGroup | null | 'late' | 'differs'>(postgres, key, async (client) => {
        const sale = await client.query<{ isEarly: boolean }>(
          'SELECT $2::timestamptz < starts_at IS TRUE AS "isEarly" FROM sales WHERE id = $1',
          [saleId, opensAt],
        );
        if (sale.rows[0] === undefined) return refused(null);
        if (!sale.rows[0].isEarly) return refused('late');
        await client.query(
          'INSERT INTO sale_groups (sale_id, name, opens_at, has_codes) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING',
          [saleId, name, opensAt, codes !== undefined],
        );
        const given = [codes?.map(({ code }) => code) ?? [], codes?.map(({ uses }) => uses) ?? []];
        await client.query(
          `INSERT INTO sale_codes (sale_id, code, group_name, uses) SELECT $1, code, $2, uses
           FROM unnest($3::text[], $4::int[]) AS given (code, uses) ORDER BY code ON CONFLICT DO NOTHING`,
          [saleId, name, ...given],
        );
        const same = await client.query(
          `SELECT FROM sale_groups WHERE sale_id = $1 AND name = $2 AND opens_at = $5 AND has_codes = $6 AND NOT EXISTS (
             SELECT FROM unnest($3::text[], $4::int[]) AS given (code, uses)
             JOIN sale_codes AS c ON c.sale_id = $1 AND c.code = given.code WHERE (c.group_name, c.uses) <> ($2, given.uses))`,
          [saleId, name, ...given, opensAt, codes !== undefined],
        );
        if (same.rowCount === 0) return refused('differs');
        return { commit: true, value: (await list(client, saleId, name))[0]! };
      });
    },
    /** By `opensAt`. */
    list: (saleId: number) => list(pool, saleId),
    /** Presents a code: see above. @throws what Postgres throws; a use may be taken then, and a repeat finds it */
    async present(saleId: number, userId: string, code: string): Promise<Presented> {
      for (let tries = 1; ; tries++) {
        try {
          const { rows } = await pool.query<PresentedRow>({
            name: 'present-code',
            text: PRESENT,
            values: [saleId, code, userId],
          });
          const { opensMs, nowMs, isEarly, isTheirs } = rows[0]!;
          if (opensMs !== null && isTheirs) return { kind: 'opens', opensMs, nowMs };
          if (!isEarly) return { kind: 'ignored' };
          if (opensMs === null) return { kind: 'invalid-code', reason: 'unknown' };
          if (tries > 1) return { kind: 'invalid-code', reason: 'used-up' };
        } catch (error) {
          const failure = classifyPostgresError(error);
          const isInProgress = failure.kind === 'rejected' && failure.constraint === 'sale_code_uses_pkey';
          if (!isInProgress || tries === PRESENT_TRIES) throw error;
        }
      }
    },
    /** From when on codes open a sale, ISO 8601; null: it has none. */
    async codesFrom(saleId: number): Promise<string | null> {
      const text = 'SELECT min(opens_at) AS "opensAt" FROM sale_groups WHERE sale_id = $1 AND has_codes';
      const { rows } = await pool.query<{ opensAt: Date | null }>(text, [saleId]);
      return rows[0]!.opensAt?.toISOString() ?? null;
    },
    /** When a sale opens for customers whose token names these groups, milliseconds since 1970; null: not before it does for all. */
    async opensFor(saleId: number, names: readonly string[]): Promise<number | null> {
      if (names.length === 0) return null;
      const { rows } = await pool.query<{ opensMs: number | null }>(
        `SELECT ${MS('min(opens_at)')} AS "opensMs" FROM sale_groups WHERE sale_id = $1 AND name = ANY($2::text[]) AND NOT has_codes`,
        [saleId, names],
      );
      return rows[0]!.opensMs;
    },
  };
}
