/** The one statement that lets a pending order expire later. */
import type pg from 'pg';

export interface Extension {
  /** From now. */
  readonly seconds: number;
  /** How long after it was placed the order may stay unpaid at most. */
  readonly maxHoldS: number;
  /** For the audit log. */
  readonly actor: string;
}

// `asked` waits for what closes or pays the order at the same time, and then sees its new status.
const EXTEND = `
  WITH asked AS (
    SELECT id, clock_timestamp() + make_interval(secs => $2) AS deadline, created_at + make_interval(secs => $3) AS latest
    FROM orders WHERE id = $1 AND status = 'pending' FOR UPDATE
  ), extended AS (
    UPDATE orders SET expires_at = greatest(expires_at, deadline) FROM asked
    WHERE orders.id = asked.id AND deadline <= latest RETURNING orders.id, sale_id, user_id, expires_at
  ), audited AS (
    INSERT INTO audit_pending (actor, action, subject, details)
    SELECT $4, 'order.extended', 'order ' || id, json_build_object('saleId', sale_id, 'userId', user_id, 'expiresAt', expires_at)::text
    FROM extended
  )
  SELECT latest, EXISTS (SELECT FROM extended) AS "isExtended" FROM asked`;

/** @returns the latest deadline that the order may have, and whether it was extended; null: it is not pending @throws what Postgres throws */
export async function extendOrder(
  db: Pick<pg.PoolClient, 'query'>,
  orderId: string,
  { seconds, maxHoldS, actor }: Extension,
): Promise<{ readonly latest: Date; readonly isExtended: boolean } | null> {
  const { rows } = await db.query<{ latest: Date; isExtended: boolean }>({
    name: 'extend-order',
    text: EXTEND,
    values: [orderId, seconds, maxHoldS, actor],
  });
  return rows[0] ?? null;
}
