/** Sales that exist before a load: inserted into Postgres before the service starts and loads them. */
import { withPostgres } from '../../lab/servers/stores.ts';

export interface Sales {
  /** Numbered from 1. */
  readonly sales: number;
  /** Earlier buyers of each sale; no load has the same customers. */
  readonly buyers: number;
  /** Units of each sale, sold ones included. */
  readonly stock: number;
}

const SALES = `
  INSERT INTO sales (name, price_cents, stock, sold)
  SELECT 'bench', 1000, $2::int, $3::int FROM generate_series(1, $1::int)`;
const BUYERS = `
  WITH placed AS (
    INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
    SELECT gen_random_uuid(), sales.id, 'earlier-' || n, 'pending', price_cents, now() + interval '7 days'
    FROM sales, generate_series(1, $1::int) AS n
    RETURNING id, user_id, price_cents
  )
  INSERT INTO points_entries (user_id, source_type, source_id, points)
  SELECT user_id, 'order', id::text, points_earned(price_cents) FROM placed`;

/** Requires a migrated database without sales. */
export async function insertSales(databaseUrl: string, { sales, buyers, stock }: Sales): Promise<void> {
  await withPostgres(databaseUrl, async (client) => {
    await client.query(SALES, [sales, stock, buyers]);
    if (buyers === 0) return;
    await client.query(BUYERS, [buyers]);
    // Otherwise autovacuum does this during the load. Empty tables are skipped, as autovacuum skips them: the planner
    // would assume that they stay empty, and a prepared statement keeps its plan.
    await client.query('VACUUM ANALYZE orders, points_entries');
  });
}
