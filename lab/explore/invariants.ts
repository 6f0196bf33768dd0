/** What must hold after every statement, in a world with extras: see extras.ts. Nothing that it reads is part of the schedule. */
import type pg from 'pg';
import { MAX_HOLD_S } from './extras.ts';
import { type Answered, placeOf } from './operations.ts';
import type { Receiver } from './receiver.ts';

/** Each finds what is wrong, in words. `early`, as it is seen first: an order may be inserted before the sale opens, and its unit taken afterwards. */
const COMPARED = `
  WITH active AS (
    SELECT sale_id, user_id, limit_group, sum(quantity) AS units, count(*) AS orders FROM orders
    WHERE status IN ('pending', 'paid') GROUP BY sale_id, user_id, limit_group
  ), in_sales AS (SELECT sale_id, sum(units) AS units FROM active GROUP BY sale_id),
  in_groups AS (SELECT limit_group, user_id, sum(units) AS units FROM active WHERE limit_group IS NOT NULL GROUP BY limit_group, user_id),
  used AS (SELECT sale_id, code, count(*) AS uses FROM sale_code_uses GROUP BY sale_id, code)
  SELECT 'wrong' AS kind, format('sale %s counts %s units, its active orders have %s', id, sold + oversold, coalesce(units, 0)) AS key, 0::float8 AS value
    FROM sales LEFT JOIN in_sales ON sale_id = id WHERE sold + oversold <> coalesce(units, 0)
  UNION ALL SELECT 'wrong', format('sale %s has %s units, and sells %s', id, stock, units), 0 FROM sales JOIN in_sales ON sale_id = id WHERE units > stock
  UNION ALL SELECT 'wrong', format('%s has %s active orders of sale %s', user_id, orders, sale_id), 0 FROM active WHERE orders > 1
  UNION ALL SELECT 'wrong', format('%s of %s has %s units, and %s are counted', user_id, limit_group, coalesce(a.units, 0), coalesce(c.units, 0)), 0
    FROM in_groups AS a FULL JOIN customer_units AS c USING (limit_group, user_id) WHERE a.units IS DISTINCT FROM c.units
  UNION ALL SELECT 'wrong', format('%s has %s units of %s, and %s are allowed', user_id, units, limit_group, most), 0 FROM in_groups
    JOIN (SELECT limit_group, min(max_per_customer) AS most FROM sales GROUP BY limit_group) AS limits USING (limit_group) WHERE units > most
  UNION ALL SELECT 'wrong', format('a code of sale %s has %s uses, %s are counted, %s are there', sale_id, c.uses, taken, coalesce(used.uses, 0)), 0
    FROM sale_codes AS c LEFT JOIN used USING (sale_id, code) WHERE taken <> coalesce(used.uses, 0) OR taken > c.uses
  UNION ALL SELECT 'wrong', format('order %s expired before its deadline', id), 0 FROM orders WHERE status = 'expired' AND closed_at < expires_at
  UNION ALL SELECT 'wrong', format('order %s may stay unpaid for too long', id), 0 FROM orders
    WHERE status = 'pending' AND expires_at > created_at + make_interval(secs => ${MAX_HOLD_S} + 0.002)
  UNION ALL SELECT 'wrong', format('%s was transferred %s times', subject, count(*)), 0 FROM audit_pending WHERE action = 'order.transferred'
    GROUP BY subject HAVING count(*) > 1
  UNION ALL SELECT 'early', format('%s has an order of sale %s from before it opened', user_id, o.sale_id), 0
    FROM orders AS o JOIN sales AS s ON s.id = o.sale_id JOIN sale_groups AS g ON g.sale_id = o.sale_id
    WHERE clock_timestamp() < starts_at AND (clock_timestamp() < opens_at OR NOT EXISTS (
      SELECT FROM sale_code_uses AS u WHERE u.sale_id = o.sale_id AND u.user_id = coalesce(transferred_from, o.user_id)))
  UNION ALL SELECT 'attempts', key, attempts FROM orders JOIN tasks ON key IN ('ship:' || orders.id, 'award:' || orders.id) WHERE status = 'refund-due'
  UNION ALL SELECT 'deadline', id::text, extract(epoch FROM expires_at)::float8 * 1000 FROM orders WHERE status = 'pending'`;

const KEPT = `
  SELECT id::text, user_id AS "userId", status, extract(epoch FROM expires_at)::float8 * 1000 AS "expiresMs",
    extract(epoch FROM closed_at)::float8 * 1000 AS "closedMs" FROM orders WHERE id = ANY($1::uuid[])`;

const OFFERED = `
  SELECT (payload #>> '{data,saleId}')::int AS "saleId", payload #>> '{data,userId}' AS "userId", count(*)::int AS times,
    max(payload ->> 'timestamp') AS "lastAt" FROM tasks WHERE payload ->> 'type' = 'order.offered' GROUP BY 1, 2`;

/** A task that is left undone. */
const LEFT = `
  SELECT format('the task %s is %s at the end: %s', key, state, last_error) AS what FROM tasks
    WHERE kind IN ('ship', 'award', 'refund') AND state <> 'done'`;
/** A customer on the waitlist although a unit is free. */
const WAITING = `
  SELECT format('%s waits for %s units of sale %s, which are free', user_id, quantity, sale_id) AS what FROM waitlist AS w
    JOIN sales AS s ON s.id = sale_id
    WHERE s.waitlist = 'hold' AND limit_group IS NULL AND named_at IS NULL AND quantity <= stock - sold - oversold`;
const DELIVERED = `
  SELECT key FROM tasks WHERE kind IN ('ship', 'award', 'refund') AND state = 'done' AND last_error IS DISTINCT FROM 'the order was refunded'`;

interface Kept {
  readonly id: string;
  readonly userId: string;
  readonly status: string;
  readonly expiresMs: number;
  readonly closedMs: number | null;
}

interface Compared {
  readonly kind: 'wrong' | 'early' | 'attempts' | 'deadline';
  readonly key: string;
  readonly value: number;
}

function follow(
  now: readonly Compared[],
  before: ReadonlyMap<string, number>,
  compare: (key: string, before: number, now: number) => void,
) {
  for (const { key, value } of now) compare(key, before.get(key) ?? value, value);
  return new Map(now.map(({ key, value }) => [key, value]));
}

export class Invariants {
  /** Whether a statement was executed since they were last compared. */
  isDue = false;
  readonly #sql: pg.Pool;
  readonly #found: (what: string) => void;
  /** Attempts of each task of a refunded order, and the deadline of each pending order, at the last comparison. */
  #attempts = new Map<string, number>();
  #deadlines = new Map<string, number>();

  constructor(sql: pg.Pool, found: (what: string) => void) {
    this.#sql = sql;
    this.#found = found;
  }

  /** @param answered null: Postgres has lost data, and with it promises */
  async compare(answered: Answered | null): Promise<void> {
    if (!this.isDue) return;
    this.isDue = false;
    const rows = await this.#read<Compared>(COMPARED);
    const ofKind = (kind: Compared['kind']) => rows.filter((row) => row.kind === kind);
    for (const { key } of ofKind('wrong')) this.#found(key);
    // What would deliver a refunded order.
    this.#attempts = follow(ofKind('attempts'), this.#attempts, (key, before, now) => {
      if (now > before) this.#found(`an attempt of ${key} began after the refund`);
    });
    this.#deadlines = follow(ofKind('deadline'), this.#deadlines, (id, before, now) => {
      if (now < before && answered !== null) this.#found(`order ${id} has an earlier deadline than before`);
    });
    if (answered === null) return; // the use of a code may be lost, and the order that it allowed committed afterwards
    for (const { key } of ofKind('early')) this.#found(key);
    const { deadlines, receivers } = answered;
    const ids = [...new Set([...deadlines.keys(), ...receivers.keys()])];
    for (const order of ids.length === 0 ? [] : await this.#read<Kept>(KEPT, [ids])) {
      const { id, userId, status, expiresMs, closedMs } = order;
      const deadlineMs = deadlines.get(id) ?? 0;
      if (status === 'expired' && closedMs! < deadlineMs)
        this.#found(`order ${id} expired before the deadline that was promised`);
      if (expiresMs < deadlineMs) this.#found(`order ${id} has an earlier deadline than was promised`);
      for (const to of receivers.get(id) ?? [])
        if (to !== userId) this.#found(`order ${id} was passed to ${to}, and ${userId} has it`);
    }
  }

  /** What was not replicated was lost with the primary: a deadline may be earlier again. */
  rolledBack(): void {
    this.#deadlines = new Map();
  }

  /** When the background work has settled everything, and before other customers buy what is left. */
  async compareWaiting(): Promise<void> {
    for (const { what } of await this.#read<{ what: string }>(WAITING)) this.#found(what);
  }

  /** At the end, when nothing is left. */
  async compareLast(answered: Answered | null, receiver: Receiver): Promise<void> {
    this.isDue = true;
    await this.compare(answered);
    for (const { what } of await this.#read<{ what: string }>(LEFT)) this.#found(what);
    for (const { key } of await this.#read<{ key: string }>(DELIVERED))
      if (!receiver.confirmed.has(key)) this.#found(`the task ${key} is done, and was never delivered`);
    if (answered === null) return;
    for (const [key, bodies] of receiver.bodies)
      if (bodies.size > 1) this.#found(`the attempts of ${key} differ: ${[...bodies].join(' and ')}`);
    type Offered = { saleId: number; userId: string; times: number; lastAt: string };
    for (const { saleId, userId, times, lastAt } of await this.#read<Offered>(OFFERED)) {
      const place = placeOf(saleId, userId);
      if (times > (answered.joins.get(place) ?? 0))
        this.#found(`${userId} was offered units of sale ${saleId} ${times} times`);
      if (Date.parse(lastAt) > (answered.leaves.get(place) ?? Number.POSITIVE_INFINITY))
        this.#found(`${userId} was offered a unit of sale ${saleId} after leaving its waitlist`);
    }
  }

  async #read<R extends object>(text: string, values: unknown[] = []): Promise<readonly R[]> {
    return (await this.#sql.query(text, values)).rows as R[];
  }
}
