/** Customers waiting for units of a sold-out sale. The trigger `sale_units_changed` names the next ones in an event. */
import type { PostgresStore } from './pool.ts';

export interface WaitlistEntry {
  readonly saleId: number;
  readonly userId: string;
  readonly joinedAt: string;
}

export interface Waitlist {
  /**
   * Adds a customer at its end; a waiting one keeps the place.
   * @returns `units-left`: the sale is not sold out; null: no such sale
   */
  join(
    saleId: number,
    userId: string,
  ): Promise<{ readonly kind: 'joined' | 'waits'; readonly entry: WaitlistEntry } | 'units-left' | null>;
}

interface Row {
  readonly joinedAt: Date;
  readonly isNew: boolean;
}

// The lock of the sale's row: units that become free meanwhile are seen, or name this customer.
const JOIN = `
  WITH sale AS (
    SELECT id FROM sales WHERE id = $1 AND sold + oversold >= stock FOR SHARE
  ), joined AS (
    INSERT INTO waitlist AS w (sale_id, user_id) SELECT id, $2 FROM sale
    ON CONFLICT (sale_id, user_id) DO UPDATE SET id = excluded.id, joined_at = excluded.joined_at, named_at = NULL
    WHERE w.named_at IS NOT NULL RETURNING joined_at
  )
  SELECT joined_at AS "joinedAt", true AS "isNew" FROM joined
  UNION ALL SELECT joined_at, false FROM waitlist JOIN sale ON sale_id = sale.id
  WHERE user_id = $2 AND named_at IS NULL AND NOT EXISTS (SELECT FROM joined)`;

export function createWaitlist({ pool }: Pick<PostgresStore, 'pool'>): Waitlist {
  return {
    async join(saleId, userId) {
      const join = async () => (await pool.query<Row>(JOIN, [saleId, userId])).rows[0];
      const row = (await join()) ?? (await join()); // the first may have waited for a request of the same customer, and not seen its row
      if (row !== undefined) {
        const entry = { saleId, userId, joinedAt: row.joinedAt.toISOString() };
        return { kind: row.isNew ? 'joined' : 'waits', entry };
      }
      const sale = await pool.query('SELECT FROM sales WHERE id = $1', [saleId]);
      return sale.rowCount === 0 ? null : 'units-left';
    },
  };
}
