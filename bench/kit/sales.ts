/** Sales that exist before a load: inserted into Postgres before the service starts and loads them. */
import pg from 'pg';

export interface Sales {
  /** Numbered from 1. */
  readonly sales: number;
  /** Buyers that each of them has. */
  readonly buyers: number;
  /** Units that each of them offers, sold ones included. */
  readonly stock: number;
}

/** Customers that no load has. */
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

/** Into a database that is migrated and has no sale. */
export async function insertSales(databaseUrl: string, { sales, buyers, stock }: Sales): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // the statement in flight fails as well
  try {
    await client.connect();
    await client.query(SALES, [sales, stock, buyers]);
    if (buyers === 0) return;
    await client.query(BUYERS, [buyers]);
    // Or else autovacuum does it in the middle of the load. Tables that are empty are left alone, as autovacuum leaves
    // them: of those, the planner would then believe that they stay empty, and a prepared statement keeps its plan.
    await client.query('VACUUM ANALYZE orders, points_entries');
  } finally {
    await client.end();
  }
}
