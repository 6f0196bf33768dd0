/**
 * Customers waiting for units of a sold-out sale.
 *
 *   waiting ──a unit is free──▶ named in an event ──joins again──▶ waiting, at the end
 *
 * The trigger `sale_units_changed` names as many as units return. When those who were named have not bought within
 * `limits.waitlist.turnMs`, by Postgres's clock, `nameNext` names the next ones for the units that are still free. Of a sale that is paused,
 * has not begun or has ended, it names none.
 */

import type { LoopHealth } from '../../concurrency/loop-health.ts';
import { limits } from '../../config/limits.ts';
import type { PostgresStore } from './pool.ts';

export interface WaitlistEntry {
  readonly saleId: number;
  readonly userId: string;
  readonly joinedAt: string;
}

export interface Waitlist {
  /**
   * Adds a customer at its end; a waiting one keeps the place.
   * @returns `units-left`: the sale is not sold out; `ended`: it sells no more; null: no such sale
   */
  join(
    saleId: number,
    userId: string,
  ): Promise<
    { readonly kind: 'joined' | 'waits'; readonly entry: WaitlistEntry } | 'units-left' | 'ended' | null
  >;
  /**
   * Names the next customers of each sale with units for them. Several processes may do so at once: they name each customer once.
   * @param health of the loop that calls it, which reports each sale that fails
   * @throws what Postgres throws when the sales cannot be read
   */
  nameNext(health: LoopHealth): Promise<void>;
}

interface Row {
  readonly joinedAt: Date;
  readonly isNew: boolean;
}

// The lock of the sale's row: units that become free meanwhile are seen, or name this customer.
const JOIN = `
  WITH sale AS (
    SELECT id FROM sales WHERE id = $1 AND sold + oversold >= stock AND (ends_at IS NULL OR ends_at > clock_timestamp()) FOR SHARE
  ), joined AS (
    INSERT INTO waitlist AS w (sale_id, user_id) SELECT id, $2 FROM sale
    ON CONFLICT (sale_id, user_id) DO UPDATE SET id = excluded.id, joined_at = excluded.joined_at, named_at = NULL
    WHERE w.named_at IS NOT NULL RETURNING joined_at
  )
  SELECT joined_at AS "joinedAt", true AS "isNew" FROM joined
  UNION ALL SELECT joined_at, false FROM waitlist JOIN sale ON sale_id = sale.id
  WHERE user_id = $2 AND named_at IS NULL AND NOT EXISTS (SELECT FROM joined)`;

/** Sales with customers who are to be named. CASE: the function is called only for sales with a waitlist. */
const DUE = `
  SELECT id FROM sales AS s WHERE sold + oversold < stock
    AND CASE WHEN EXISTS (SELECT FROM waitlist WHERE sale_id = s.id AND named_at IS NULL)
      THEN units_to_offer(s, $1 * interval '1 millisecond') > 0 END`;
const NAME = `SELECT name_next_waiting($1, $2 * interval '1 millisecond')`;

export function createWaitlist({ pool }: Pick<PostgresStore, 'pool'>): Waitlist {
  return {
    async join(saleId, userId) {
      const join = async () => (await pool.query<Row>(JOIN, [saleId, userId])).rows[0];
      const row = (await join()) ?? (await join()); // the first may have waited for a request of the same customer, and not seen its row
      if (row !== undefined) {
        const entry = { saleId, userId, joinedAt: row.joinedAt.toISOString() };
        return { kind: row.isNew ? 'joined' : 'waits', entry };
      }
      const { rows } = await pool.query<{ ended: boolean | null }>(
        'SELECT ends_at <= clock_timestamp() AS ended FROM sales WHERE id = $1',
        [saleId],
      );
      return rows[0] === undefined ? null : rows[0].ended ? 'ended' : 'units-left';
    },
    async nameNext(health) {
      const { turnMs } = limits.waitlist;
      const { rows } = await pool.query<{ id: number }>(DUE, [turnMs]);
      for (const { id } of rows) await health.step(`sale ${id}`, () => pool.query(NAME, [id, turnMs]));
    },
  };
}
