/**
 * Customers waiting for units of a sold-out sale.
 *
 *   waiting ──as many units are free──▶ named ──joins again──▶ waiting, at the end
 *                                         └─ of a sale that holds: with an order, placed in the transaction that returned the units
 *
 * Where EVENTS has `sale.units-returned`, the trigger `sale_units_changed` names customers with the event. `nameNext` names the next ones for
 * units that are free still: no one was named for them, or those who were have not bought within `limits.waitlist.turnMs`, by Postgres's
 * clock. Of a sale that is paused, has not begun or has ended, it names none. Where Redis decides, a sale that holds names, too.
 */

import type { LoopHealth } from '../../concurrency/loop-health.ts';
import { limits } from '../../config/limits.ts';
import { ACTIVE } from './orders.ts';
import type { PostgresStore } from './pool.ts';
import { fromRow } from './rows.ts';
import { MIRRORED } from './sales.ts';

export interface WaitlistEntry {
  readonly saleId: number;
  readonly userId: string;
  /** Units that the customer waits for, all or none. */
  readonly quantity: number;
  readonly joinedAt: string;
  /** 1 is the first; 1,001: after the first thousand; null: the customer was named. */
  readonly place: number | null;
  readonly namedAt: string | null;
  /** The customer's active order. */
  readonly orderId: string | null;
}

export type Joined =
  /** `waits`: the customer waited already, and keeps the place. */
  | { readonly kind: 'joined' | 'waits'; readonly entry: WaitlistEntry }
  /** So many are free; `not-started`, `paused`: of a sale that does not sell now. */
  | 'units-left'
  | 'not-started'
  | 'paused'
  | 'ended'
  | { readonly kind: 'over-limit'; readonly maxPerOrder: number }
  /** There is no such sale. */
  | null;

export interface Waitlist {
  /** Adds a customer at its end; a waiting one keeps the place, and waits for `quantity` units from now on. */
  join(saleId: number, userId: string, quantity: number): Promise<Joined>;
  /** Null: the customer is not on the list. */
  find(saleId: number, userId: string): Promise<WaitlistEntry | null>;
  /** The entries of a sale, in the order in which customers joined. */
  list(saleId: number, limit: number): Promise<readonly WaitlistEntry[]>;
  /** Removes a customer, if on the list. */
  leave(saleId: number, userId: string): Promise<void>;
  /**
   * Names the next customers of each sale with units for them. Several processes may do so at once: they name each customer once.
   * @param health of the loop that calls it, which reports each sale that fails
   * @throws what Postgres throws when the sales cannot be read
   */
  nameNext(health: LoopHealth): Promise<void>;
}

// The lock of the sale's row: units that become free meanwhile are seen, or name this customer.
const JOIN = `
  WITH sale AS (
    SELECT id FROM sales WHERE id = $1 AND stock - sold - oversold < $3 AND $3 <= max_per_order
      AND (ends_at IS NULL OR ends_at > clock_timestamp()) FOR SHARE
  ), joined AS (
    INSERT INTO waitlist AS w (sale_id, user_id, quantity) SELECT id, $2, $3 FROM sale
    ON CONFLICT (sale_id, user_id) DO UPDATE
      SET id = excluded.id, joined_at = excluded.joined_at, quantity = excluded.quantity, named_at = NULL
    WHERE w.named_at IS NOT NULL RETURNING true AS "isNew"
  ), kept AS (
    UPDATE waitlist SET quantity = $3 FROM sale WHERE sale_id = sale.id AND user_id = $2 AND named_at IS NULL RETURNING false
  )
  SELECT "isNew" FROM joined UNION ALL SELECT * FROM kept`;

const ORDER = `(SELECT o.id FROM orders AS o WHERE o.sale_id = w.sale_id AND o.user_id = w.user_id AND o.${ACTIVE} LIMIT 1) AS "orderId"`;
const FIND = `
  SELECT quantity, joined_at AS "joinedAt", named_at AS "namedAt", CASE WHEN named_at IS NULL THEN (
    SELECT count(*)::int FROM (
      SELECT FROM waitlist AS b WHERE b.sale_id = w.sale_id AND b.named_at IS NULL AND b.id <= w.id LIMIT ${limits.waitlist.counted + 1}
    ) AS first
  ) END AS place, ${ORDER} FROM waitlist AS w WHERE sale_id = $1 AND user_id = $2`;

const LIST = `
  SELECT sale_id AS "saleId", user_id AS "userId", quantity, joined_at AS "joinedAt", named_at AS "namedAt",
    CASE WHEN named_at IS NULL THEN (count(*) FILTER (WHERE named_at IS NULL) OVER (ORDER BY id))::int END AS place, ${ORDER}
  FROM waitlist AS w WHERE sale_id = $1 ORDER BY id LIMIT $2`;

/** Sales with customers who are to be named. CASE: the function is called only for sales with a waitlist. */
const DUE = `
  SELECT id FROM sales AS s WHERE sold + oversold < stock
    AND CASE WHEN EXISTS (SELECT FROM waitlist WHERE sale_id = s.id AND named_at IS NULL)
      THEN units_to_offer(s, CASE waitlist WHEN 'hold' THEN 0 ELSE $1 END * interval '1 millisecond') > 0 END`;
/** Some hundreds at a time. @returns how many */
const NAME = `SELECT name_next_waiting($1, $2 * interval '1 millisecond') AS named WHERE CASE WHEN $3 THEN ${MIRRORED} ELSE true END`;

/** @param isMirrored whether Redis decides */
export function createWaitlist({ pool }: Pick<PostgresStore, 'pool'>, isMirrored = false): Waitlist {
  async function find(saleId: number, userId: string): Promise<WaitlistEntry | null> {
    const { rows } = await pool.query(FIND, [saleId, userId]);
    return rows[0] === undefined
      ? null
      : { saleId, userId, ...fromRow<Omit<WaitlistEntry, 'saleId' | 'userId'>>(rows[0]) };
  }

  async function refusal(
    saleId: number,
    quantity: number,
  ): Promise<Exclude<Joined, { readonly entry: unknown }>> {
    const { rows } = await pool.query<{
      state: 'ended' | 'not-started' | 'paused' | null;
      maxPerOrder: number;
    }>(
      `SELECT CASE WHEN ends_at <= clock_timestamp() THEN 'ended' WHEN starts_at > clock_timestamp() THEN 'not-started'
         WHEN paused THEN 'paused' END AS state, max_per_order AS "maxPerOrder" FROM sales WHERE id = $1`,
      [saleId],
    );
    if (rows[0] === undefined) return null;
    const { state, maxPerOrder } = rows[0];
    if (state === 'ended') return state;
    return quantity > maxPerOrder ? { kind: 'over-limit', maxPerOrder } : (state ?? 'units-left');
  }

  return {
    async join(saleId, userId, quantity) {
      const values = [saleId, userId, quantity];
      const join = async () => (await pool.query<{ isNew: boolean }>(JOIN, values)).rows[0];
      const row = (await join()) ?? (await join()); // the first may have waited for a request of the same customer, and not seen its row
      const entry = row === undefined ? null : await find(saleId, userId); // null: the customer has left since
      return entry === null ? refusal(saleId, quantity) : { kind: row!.isNew ? 'joined' : 'waits', entry };
    },
    find,
    async list(saleId, limit) {
      const { rows } = await pool.query(LIST, [saleId, limit]);
      return rows.map(fromRow<WaitlistEntry>);
    },
    async leave(saleId, userId) {
      await pool.query('DELETE FROM waitlist WHERE sale_id = $1 AND user_id = $2', [saleId, userId]);
    },
    async nameNext(health) {
      const { turnMs } = limits.waitlist;
      const { rows } = await pool.query<{ id: number }>(DUE, [turnMs]);
      const name = async (id: number) =>
        (await pool.query<{ named: number }>(NAME, [id, turnMs, isMirrored])).rows[0]!.named;
      for (const { id } of rows)
        await health.step(`sale ${id}`, async () => {
          while ((await name(id)) > 0);
        });
    },
  };
}
