/**
 * The audit log: administrative acts, payments, cancellations and refunds, as a chain of hashes.
 *
 *   the transaction of the act inserts into audit_pending ──appendPending, one process at a time──▶ audit_log
 *
 * Each row's hash covers the row and the hash before it (Haber and Stornetta, "How to time-stamp a digital document", 1991). A row
 * that was changed, inserted or removed breaks the chain. The chain alone does not show that rows at its end were removed: keep
 * its head elsewhere (the service logs it).
 */
import { createHash } from 'node:crypto';
import type pg from 'pg';
import { limits } from '../../config/limits.ts';
import { inTransaction, type PostgresStore } from './pool.ts';
import { fromRow } from './rows.ts';

export interface AuditEvent {
  /** `admin:<name>`, `customer:<id>`, `payments:<provider>`, `service`. */
  readonly actor: string;
  /** Such as `order.cancelled`. */
  readonly action: string;
  /** Such as `order 0190…`. */
  readonly subject: string;
  readonly details: object;
}

export interface AuditHead {
  /** 0: the log is empty. */
  readonly id: string;
  readonly hash: Buffer;
}

interface Row {
  readonly id: string;
  readonly at: Date;
  readonly actor: string;
  readonly action: string;
  readonly subject: string;
  readonly details: string;
}
interface StoredRow extends Row {
  readonly previous_hash: Buffer;
  readonly hash: Buffer;
}

const EMPTY: AuditHead = { id: '0', hash: Buffer.alloc(32) };
const LAST = 'SELECT id, hash FROM audit_log ORDER BY id DESC LIMIT 1';
/** "audit" in ASCII, as the key of an advisory lock. */
const LOCK = 0x61_75_64_69_74;

/** Records an event in the caller's transaction. */
export async function addAuditEvent(db: Pick<pg.Pool, 'query'>, event: AuditEvent): Promise<void> {
  const { actor, action, subject, details } = event;
  await db.query({
    name: 'add-audit-event',
    text: 'INSERT INTO audit_pending (actor, action, subject, details) VALUES ($1, $2, $3, $4)',
    values: [actor, action, subject, JSON.stringify(details)],
  });
}

const hashOf = (previous: Buffer, { id, at, actor, action, subject, details }: Row) =>
  createHash('sha256')
    .update(previous)
    .update(JSON.stringify([id, at.toISOString(), actor, action, subject, details]))
    .digest();

/**
 * Appends pending events to the log. Does nothing while another process does it.
 * @returns how many, at most `limits.auditBatch`
 */
export function appendPending({ pool }: Pick<PostgresStore, 'pool'>): Promise<number> {
  return inTransaction(pool, async (client) => {
    const locked = await client.query<{ ours: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS ours', [
      LOCK,
    ]);
    if (!locked.rows[0]!.ours) return { commit: false, value: 0 };
    const { rows } = await client.query<Row>(
      `WITH moved AS (DELETE FROM audit_pending WHERE id IN (SELECT id FROM audit_pending ORDER BY id LIMIT $1) RETURNING *)
       SELECT * FROM moved ORDER BY id`,
      [limits.auditBatch],
    );
    if (rows.length === 0) return { commit: false, value: 0 };
    await client.query(
      `INSERT INTO audit_log (id, at, actor, action, subject, details, previous_hash, hash)
       SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bytea[])`,
      columnsOf(rows, (await client.query<AuditHead>(LAST)).rows[0] ?? EMPTY),
    );
    return { commit: true, value: rows.length };
  });
}

/** The rows as they follow the head: numbered without a gap, and chained. */
function columnsOf(rows: readonly Row[], head: AuditHead): unknown[] {
  let { id, hash } = head;
  const chained = rows.map((row) => {
    const previous = hash;
    id = String(BigInt(id) + 1n);
    hash = hashOf(previous, { ...row, id });
    return [id, row.at, row.actor, row.action, row.subject, row.details, previous, hash];
  });
  return chained[0]!.map((_, column) => chained.map((values) => values[column]));
}

export interface AuditedAct extends AuditEvent {
  readonly at: string;
  /** How a request was answered; null: it is none, or has no answer. */
  readonly status: number | null;
}

const OF_SALE = `
  WITH entries AS (
    SELECT at, id, actor, action, subject, details FROM audit_pending
    UNION ALL (SELECT at, id, actor, action, subject, details FROM audit_log ORDER BY id DESC LIMIT $3)
  )
  SELECT e.at, e.actor, e.action, e.subject, e.details::json AS details, (a.details::json ->> 'status')::int AS status
  FROM entries AS e LEFT JOIN entries AS a ON a.subject = e.subject AND a.action = 'answered' AND e.subject LIKE 'request %'
  WHERE e.action <> 'answered' AND CASE WHEN e.subject LIKE 'order %' THEN e.details::json ->> 'saleId' = $1::text
    ELSE e.action ~ ('^[A-Z]+ /sales/' || $1 || '(/|$)') END
  ORDER BY e.at DESC, e.id DESC LIMIT $2`;

/** What was done to a sale and its orders, newest first, within the last rows of the log. */
export async function readAuditLog(
  saleId: number,
  limit: number,
  { pool }: Pick<PostgresStore, 'pool'>,
): Promise<readonly AuditedAct[]> {
  const { rows } = await pool.query(OF_SALE, [String(saleId), limit, limits.auditLogScan]);
  return rows.map(fromRow<AuditedAct>);
}

/** The last row of the log. */
export async function auditHead({ pool }: Pick<PostgresStore, 'pool'>): Promise<AuditHead> {
  return (await pool.query<AuditHead>(LAST)).rows[0] ?? EMPTY;
}

export interface AuditState {
  readonly entries: number;
  readonly pending: number;
  /** Age of the oldest pending event, seconds; 0: none is pending. */
  readonly lagS: number;
}

/** Length of the log, and its pending events. */
export async function auditState({ pool }: Pick<PostgresStore, 'pool'>): Promise<AuditState> {
  const { rows } = await pool.query<AuditState>(
    `SELECT (SELECT coalesce(max(id), 0) FROM audit_log)::float8 AS entries, count(*)::float8 AS pending,
       coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8 AS "lagS" FROM audit_pending`,
  );
  return rows[0]!;
}

export interface AuditVerdict {
  readonly rows: number;
  readonly head: AuditHead;
  /** Null: the chain is unbroken. */
  readonly broken: { readonly id: string; readonly why: string } | null;
}

/**
 * Verifies the chain from its beginning.
 * @param expected a head that was noted before; a log without it was cut or rewritten
 */
export async function verifyAuditLog(
  { pool }: Pick<PostgresStore, 'pool'>,
  expected: AuditHead | null = null,
): Promise<AuditVerdict> {
  let head = EMPTY;
  let rows = 0;
  const broken = (id: string, why: string): AuditVerdict => ({ rows, head, broken: { id, why } });
  for (;;) {
    const page = await pool.query<StoredRow>('SELECT * FROM audit_log WHERE id > $1 ORDER BY id LIMIT $2', [
      head.id,
      limits.auditBatch,
    ]);
    for (const row of page.rows) {
      if (BigInt(row.id) !== BigInt(head.id) + 1n) return broken(row.id, 'a row before it is missing');
      if (!row.previous_hash.equals(head.hash))
        return broken(row.id, 'it does not continue the row before it');
      if (!row.hash.equals(hashOf(head.hash, row))) return broken(row.id, 'the row was changed');
      if (expected?.id === row.id && !expected.hash.equals(row.hash))
        return broken(row.id, 'its hash is not the one that was noted');
      head = { id: row.id, hash: row.hash };
      rows++;
    }
    if (page.rows.length < limits.auditBatch) break;
  }
  if (expected !== null && BigInt(expected.id) > BigInt(head.id))
    return broken(expected.id, 'the row that was noted is missing');
  return { rows, head, broken: null };
}
