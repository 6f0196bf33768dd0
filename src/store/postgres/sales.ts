/** Sales in Postgres: read and changed by people, so through Prisma where its own words suffice. */
import type { Sale } from '../../domain/sale.ts';
import { Prisma, type Sale as SaleRow } from '../../generated/prisma/client.ts';
import type { PostgresStore } from './pool.ts';

export interface NewSale {
  readonly name: string;
  readonly stock: number;
  readonly priceCents: number;
  readonly startsAt: string | null;
  readonly endsAt: string | null;
}

export interface SaleTable {
  create(sale: NewSale): Promise<Sale>;
  get(saleId: number): Promise<Sale | null>;
  /** Newest first. */
  list(most: number): Promise<readonly Sale[]>;
  /** Sales that have not ended, or not long ago: all that can have something under way. */
  recent(): Promise<readonly Sale[]>;
  /**
   * Adds units to the stock, or cuts it, never below what is sold.
   * @param tellRedis writes, with what it adds, that Redis has to hear of it: see restock-moves.ts
   * @returns null when there is no such sale, `below-sold` when the cut is too deep.
   */
  restock(saleId: number, units: number, tellRedis?: boolean): Promise<Sale | 'below-sold' | null>;
}

/** A sale that ended longer ago has nothing under way, whatever clocks and outages there were. */
const RECENT_MS = 7 * 24 * 3600 * 1000;

export function saleTable({ prisma }: PostgresStore): SaleTable {
  return {
    async create({ name, stock, priceCents, startsAt, endsAt }) {
      return toSale(await prisma.sale.create({ data: { name, stock, priceCents, startsAt, endsAt } }));
    },
    async get(saleId) {
      const row = await prisma.sale.findUnique({ where: { id: saleId } });
      return row === null ? null : toSale(row);
    },
    async list(most) {
      const rows = await prisma.sale.findMany({ orderBy: { id: 'desc' }, take: most });
      return rows.map(toSale);
    },
    async recent() {
      // The clock may be off by hours here: it only decides how far back one looks.
      const since = new Date(Date.now() - RECENT_MS);
      const rows = await prisma.sale.findMany({
        where: { OR: [{ endsAt: null }, { endsAt: { gt: since } }] },
      });
      return rows.map(toSale);
    },
    async restock(saleId, units, tellRedis = false) {
      // Units that were sold beyond the stock come out of the new ones: only the rest is free.
      const rows = await prisma.$queryRaw<SaleColumns[]>(Prisma.sql`
        WITH sale AS (
          SELECT id, least(oversold, greatest(${units}::int, 0)) AS covered FROM sales
          WHERE id = ${saleId} AND stock::bigint + ${units}::int BETWEEN sold AND 2147483647 FOR NO KEY UPDATE
        ), changed AS (
          UPDATE sales SET stock = stock + ${units}::int, sold = sold + covered, oversold = oversold - covered,
            version = version + 1
          FROM sale WHERE sales.id = sale.id RETURNING sales.*, ${units}::int - covered AS free
        ), told AS (
          INSERT INTO restock_moves (sale_id, units) SELECT id, free FROM changed WHERE ${tellRedis} AND free > 0
        )
        SELECT id, name, price_cents AS "priceCents", stock, sold, oversold, starts_at AS "startsAt", ends_at AS "endsAt"
        FROM changed`);
      if (rows[0] !== undefined) return toSale(rows[0]);
      return (await this.get(saleId)) === null ? null : 'below-sold';
    },
  };
}

type SaleColumns = Omit<SaleRow, 'version' | 'createdAt'>;

function toSale(row: SaleColumns): Sale {
  return {
    id: row.id,
    name: row.name,
    priceCents: row.priceCents,
    stock: row.stock,
    sold: row.sold + row.oversold,
    remaining: row.stock - row.sold - row.oversold,
    startsAt: row.startsAt?.toISOString() ?? null,
    endsAt: row.endsAt?.toISOString() ?? null,
  };
}
