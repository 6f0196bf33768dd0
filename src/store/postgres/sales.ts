/** Sales, and the changes of an administrator. */
import type pg from 'pg';
import type { Sale, SaleQuery } from '../../domain/sale.ts';
import type { Sale as SaleRow } from '../../generated/prisma/client.ts';
import { classifyPostgresError } from '../failures/postgres.ts';
import { type IdempotencyKey, once } from './idempotency.ts';
import { isOpen } from './insert-orders.ts';
import { inTransaction, type PostgresStore } from './pool.ts';
import { TIMELINE } from './standby-wait.ts';

type Db = Pick<pg.PoolClient, 'query'>;

/** What has a table for itself. */
type Texts = Pick<Sale, 'description' | 'imageUrl'>;
type GivenTexts = { readonly [N in keyof Texts]?: Texts[N] | undefined };

export interface NewSale extends GivenTexts {
  readonly name: string;
  readonly stock: number;
  readonly priceCents: number;
  readonly startsAt: string | null;
  readonly endsAt: string | null;
  readonly spreadS?: number;
  readonly maxPerOrder?: number;
  readonly paymentWindowS?: number | null;
  /** With `maxPerCustomer`. */
  readonly limitGroup?: string | null;
  readonly maxPerCustomer?: number | null;
  readonly waitlist?: Sale['waitlist'];
  readonly waitlistHoldS?: number | undefined;
  /** Left out: that of the service. */
  readonly currency?: string | undefined;
}

/** What an administrator may change; what is left out stays. */
export interface SaleChanges extends Partial<Omit<NewSale, 'stock' | 'spreadS'>> {
  readonly paused?: boolean;
}

export type SaleTable = ReturnType<typeof saleTable>;

/**
 * @param currency of sales that name none
 * @param paymentWindowS of sales that have none of their own
 */
export function saleTable(postgres: PostgresStore, currency: string, paymentWindowS = 900) {
  const { pool } = postgres;
  const toSale = saleIn(currency);
  const read = async (rest: string, values: unknown[]) =>
    (await pool.query<SaleColumns>(`SELECT ${COLUMNS} FROM sales ${rest}`, values)).rows.map(toSale);
  return {
    /**
     * @param key of a request that has one: it happens once, and a repeat gets the same sale
     * @param id that the directory has drawn; null: the next one of this Postgres
     * @throws KeyReusedError
     */
    create(given: NewSale, key: IdempotencyKey | null = null, id: number | null = null) {
      const { name, stock, priceCents, startsAt, endsAt } = given;
      const {
        spreadS = 0,
        maxPerOrder = 1,
        waitlist = 'notify',
        limitGroup = null,
        maxPerCustomer = null,
      } = given;
      const windowS = given.paymentWindowS ?? null;
      const holdS = given.waitlistHoldS ?? (waitlist === 'hold' ? (windowS ?? paymentWindowS) : null);
      const terms = [
        name,
        stock,
        priceCents,
        startsAt,
        endsAt,
        spreadS,
        maxPerOrder,
        windowS,
        waitlist,
        holdS,
      ];
      return once(postgres, key, async (client) => {
        const { rows } = await client.query<SaleColumns>(
          `INSERT INTO sales (name, stock, price_cents, starts_at, ends_at, spread_s, max_per_order, payment_window_s,
             waitlist, waitlist_hold_s, currency, limit_group, max_per_customer, id)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
             coalesce($14, nextval(pg_get_serial_sequence('sales', 'id')))) RETURNING ${COLUMNS}`,
          [...terms, given.currency ?? currency, limitGroup, maxPerCustomer, id],
        );
        const sale = toSale(rows[0]!);
        return { commit: true, value: { ...sale, ...(await writeTexts(client, sale.id, given)) } };
      });
    },
    /**
     * Changes a sale, at once for every statement that locks its row afterwards.
     * @param isMirrored whether Redis decides: units of a sale that goes on are then for all
     * @returns null when it does not exist; what `BOUNDS` says, and nothing was changed
     */
    async change(saleId: number, changes: SaleChanges, isMirrored = false) {
      const names = (Object.keys(CHANGEABLE) as (keyof typeof CHANGEABLE)[]).filter(
        (name) => changes[name] !== undefined,
      );
      const values: unknown[] = [saleId, ...names.map((name) => changes[name])];
      let set = names.map((name, n) => `, ${CHANGEABLE[name]} = $${n + 2}`).join('');
      if (changes.waitlist === 'hold' && changes.waitlistHoldS === undefined) {
        const [given, usual] = [values.push(changes.paymentWindowS ?? null), values.push(paymentWindowS)];
        set += `, waitlist_hold_s = coalesce(waitlist_hold_s, $${given}, payment_window_s, $${usual})`;
      }
      try {
        return await inTransaction(pool, async (client) => {
          // The version: `optimistic` compares it.
          const { rows } = await client.query<SaleColumns>(
            `UPDATE sales SET version = version + 1${set} WHERE id = $1${isMirrored ? ` AND ${MIRRORED}` : ''} RETURNING ${COLUMNS}`,
            values,
          );
          if (rows[0] === undefined) return { commit: false, value: null };
          const texts = await writeTexts(client, saleId, changes);
          return { commit: true, value: { ...toSale(await afterOffers(client, rows[0])), ...texts } };
        });
      } catch (error) {
        const failure = classifyPostgresError(error);
        const bound = failure.kind === 'rejected' ? BOUNDS[failure.constraint ?? ''] : undefined;
        if (bound !== undefined) return bound;
        throw error;
      }
    },
    /** A sale with a limit of customers that has not ended; null: there is none. */
    async limited() {
      const rows = await read(
        'WHERE limit_group IS NOT NULL AND (ends_at IS NULL OR ends_at > now()) LIMIT 1',
        [],
      );
      return rows[0] ?? null;
    },
    async get(saleId: number) {
      return (await read('WHERE id = $1', [saleId]))[0] ?? null;
    },
    /** A sale, the secret seed of its lottery, and the clock of Postgres, milliseconds since 1970. */
    async getWithSeed(saleId: number) {
      const { rows } = await pool.query<SaleColumns & { seed: string; nowMs: number }>(
        `SELECT ${COLUMNS}, lottery_seed AS seed, ${NOW_MS} FROM sales WHERE id = $1`,
        [saleId],
      );
      if (rows[0] === undefined) return null;
      const { seed, nowMs } = rows[0];
      return { sale: toSale(rows[0]), seed, nowMs };
    },
    /** Reads those of the sales that exist, in one statement, and the clock of Postgres, milliseconds since 1970. */
    async watch(saleIds: readonly number[]) {
      const { rows } = await pool.query<SaleColumns & { nowMs: number }>(
        `SELECT ${COLUMNS}, ${NOW_MS} FROM sales WHERE id = ANY($1::int[])`,
        [saleIds],
      );
      return { sales: rows.map(toSale), nowMs: rows[0]?.nowMs ?? Date.now() };
    },
    /** Newest first. */
    async list({ limit, before, search, state }: SaleQuery) {
      return read(
        `WHERE ($1::int IS NULL OR id < $1) AND ($2::text IS NULL OR strpos(lower(name), lower($2)) > 0)
           AND ($3::text IS NULL OR ${STATE} = $3) ORDER BY id DESC LIMIT $4`,
        [before, search, state, limit],
      );
    },
    /** Sales that have not ended, or ended less than a week ago: all that can have reservations. By id, in pages, each read when it is used. */
    async *recent(pageSize: number): AsyncGenerator<readonly Sale[]> {
      for (let last: Sale | undefined, isLast = false; !isLast; ) {
        const page = await read(
          `WHERE id > $1 AND (ends_at IS NULL OR ends_at > now() - interval '7 days') ORDER BY id LIMIT $2`,
          [last?.id ?? 0, pageSize],
        );
        if (page.length > 0) yield page;
        last = page.at(-1);
        isLast = page.length < pageSize;
      }
    },
    /**
     * For each sale, its version and how long it sells, if it is open and no unit is free; else null. The version grows with every change of its
     * units and customers; a promoted standby may have been at an earlier one, so the timeline is part of it.
     */
    async soldOut(
      saleIds: readonly number[],
    ): Promise<({ readonly generation: string; readonly sellsForMs: number } | null)[]> {
      const { rows } = await pool.query<{ id: number; generation: string; sellsForMs: number }>({
        name: 'sold-out',
        text: `SELECT id, version || ' ' || ${TIMELINE} AS generation,
            coalesce(extract(epoch FROM ends_at - clock_timestamp()) * 1000, 'infinity')::float8 AS "sellsForMs"
          FROM sales WHERE id = ANY($1::int[]) AND sold >= stock AND ${isOpen()}`,
        values: [saleIds],
      });
      const found = new Map(rows.map(({ id, ...state }) => [id, state]));
      return saleIds.map((id) => found.get(id) ?? null);
    },
    /**
     * Adds units to the stock or cuts it, but never below the number sold.
     * @param isMirrored also adds the restock to the outbox towards Redis
     * @param db the connection whose transaction it belongs to; without one, it commits by itself
     * @returns null when the sale does not exist, `below-sold` when the cut is too deep
     */
    async restock(saleId: number, units: number, isMirrored = false, db: Db = pool) {
      // New units first cover those sold beyond the stock; only the rest is free.
      const { rows } = await db.query<SaleColumns>(
        `WITH sale AS (
           SELECT id, least(oversold, greatest($2::int, 0)) AS covered FROM sales
           WHERE id = $1 AND stock::bigint + $2::int BETWEEN sold AND 2147483647 FOR NO KEY UPDATE
         ), changed AS (
           UPDATE sales SET stock = stock + $2::int, sold = sold + covered, oversold = oversold - covered,
             version = version + 1
           FROM sale WHERE sales.id = sale.id RETURNING sales.*, $2::int - covered AS free
         ), outbox AS (
           INSERT INTO mirror_outbox (sale_id, change, units) SELECT id, 'restock', free FROM changed
           WHERE CASE WHEN $3::boolean THEN ${MIRRORED} END AND free > 0
         )
         SELECT ${COLUMNS} FROM changed`,
        [saleId, units, isMirrored],
      );
      if (rows[0] !== undefined) return toSale(await afterOffers(db, rows[0]));
      const known = await db.query('SELECT FROM sales WHERE id = $1', [saleId]);
      return known.rowCount === 0 ? null : 'below-sold';
    },
  };
}

/** Says to the trigger `sale_units_changed` that Redis decides; true. */
export const MIRRORED = `set_config('stampede.mirrored', 'on', true) = 'on'`;

/** The columns of what may be changed. */
const CHANGEABLE: Readonly<Record<Exclude<keyof SaleChanges, keyof Texts>, string>> = {
  name: 'name',
  priceCents: 'price_cents',
  startsAt: 'starts_at',
  endsAt: 'ends_at',
  maxPerOrder: 'max_per_order',
  paymentWindowS: 'payment_window_s',
  currency: 'currency',
  waitlist: 'waitlist',
  waitlistHoldS: 'waitlist_hold_s',
  paused: 'paused',
  limitGroup: 'limit_group',
  maxPerCustomer: 'max_per_customer',
};

const TEXTS = { description: 'description', imageUrl: 'image_url' } as const;

/** Stores those texts that are given. @returns all of them; nothing: none is given */
async function writeTexts(db: Db, saleId: number, given: GivenTexts): Promise<Partial<Texts>> {
  const names = (['description', 'imageUrl'] as const).filter((name) => given[name] !== undefined);
  if (names.length === 0) return {};
  const set = names.map((name) => `${TEXTS[name]} = excluded.${TEXTS[name]}`).join(', ');
  const { rows } = await db.query<Texts>(
    `INSERT INTO sale_texts (sale_id, description, image_url) VALUES ($1, $2, $3)
     ON CONFLICT (sale_id) DO UPDATE SET ${set} RETURNING description, image_url AS "imageUrl"`,
    [saleId, given.description, given.imageUrl],
  );
  return rows[0]!;
}

/** Constraints of `sales`, and the change that each refuses. */
const BOUNDS: Readonly<Record<string, RefusedChange>> = {
  sales_window_in_order: 'ends-before-start',
  sales_amount_bounded: 'too-dear',
  sales_limit_complete: 'half-limit',
  sales_group_fixed: 'group-fixed',
  sales_currency_fixed: 'currency-fixed',
};

export type RefusedChange =
  | 'ends-before-start'
  /** An order of `maxPerOrder` units. */
  | 'too-dear'
  /** One of the group and its limit. */
  | 'half-limit'
  /** It has active orders, which are counted in its group. */
  | 'group-fixed'
  /** It has orders. */
  | 'currency-fixed';

/** `stateOf` in SQL. */
const STATE = `CASE WHEN ends_at <= now() THEN 'ended' WHEN paused THEN 'paused' WHEN starts_at > now() THEN 'scheduled'
  WHEN sold < stock THEN 'open' ELSE 'sold-out' END`;

const COLUMNS = `id, name, price_cents AS "priceCents", stock, sold, oversold, starts_at AS "startsAt",
  ends_at AS "endsAt", spread_s AS "spreadS", max_per_order AS "maxPerOrder", paused, payment_window_s AS "paymentWindowS", currency,
  limit_group AS "limitGroup", max_per_customer AS "maxPerCustomer",
  waitlist, waitlist_hold_s AS "waitlistHoldS",
  (SELECT description FROM sale_texts WHERE sale_id = id), (SELECT image_url FROM sale_texts WHERE sale_id = id) AS "imageUrl"`;

/** A sale that was changed: what it returned does not have the orders that returned units became. */
const afterOffers = async (db: Db, row: SaleColumns): Promise<SaleColumns> =>
  row.waitlist !== 'hold'
    ? row
    : (await db.query<SaleColumns>(`SELECT ${COLUMNS} FROM sales WHERE id = $1`, [row.id])).rows[0]!;

const NOW_MS = `floor(extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "nowMs"`;

type SaleColumns = Omit<SaleRow, 'version' | 'createdAt' | 'lotterySeed' | 'mirrorEpoch'> & Texts;

const saleIn =
  (currency: string) =>
  (row: SaleColumns): Sale => ({
    id: row.id,
    name: row.name,
    priceCents: row.priceCents,
    stock: row.stock,
    sold: row.sold + row.oversold,
    remaining: row.stock - row.sold - row.oversold,
    maxPerOrder: row.maxPerOrder,
    paused: row.paused,
    paymentWindowS: row.paymentWindowS,
    startsAt: row.startsAt?.toISOString() ?? null,
    endsAt: row.endsAt?.toISOString() ?? null,
    description: row.description,
    imageUrl: row.imageUrl,
    currency: row.currency ?? currency,
    waitlist: row.waitlist as Sale['waitlist'],
    waitlistHoldS: row.waitlistHoldS,
    ...(row.spreadS > 0 && { spreadS: row.spreadS }),
    ...(row.limitGroup !== null && { limitGroup: row.limitGroup, maxPerCustomer: row.maxPerCustomer! }),
  });
