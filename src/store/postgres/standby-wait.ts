/**
 * The wait of an answer for the synchronous standby. A row can be read before the standby has it, if the wait of its commit was
 * cancelled, or if its connection or the server ended meanwhile. So an answer that promises what a read found waits for this.
 *
 *   read ──▶ called ──▶ a message is committed ──on the timeline of the call──▶ the standby has what was read
 *                                 └──on another──▶ a standby was promoted since, and may lack it: it fails
 */
import type pg from 'pg';
import { coalesce } from '../../concurrency/coalesce.ts';
import { FailureError } from '../../domain/failure.ts';

/** It grows with each promotion; null on a standby. */
const TIMELINE = `CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END`;

/** What was read, or committed, is visible; a promoted standby may lack it. */
export function notReplicated(because: string): FailureError {
  return new FailureError('postgres', 'unknown', 'commit-not-replicated', `committed, but ${because}`);
}

/**
 * Callers that arrive together share one commit; without a synchronous standby there is none, but the promotion of another is noticed.
 * @returns a function that waits until the synchronous standby has all that was read before the call
 */
export function standbyWait(pool: pg.Pool): () => Promise<void> {
  const read = async (name: string, text: string): Promise<string | null> => {
    const { rows } = await pool.query<{ timeline: string | null }>({ name, text });
    return rows[0]!.timeline;
  };
  /** The timeline that was seen last. The first call reads it, later ones know it from before their read. */
  let known: Promise<string | null> | null = null;
  // A message in the log of changes, which nothing reads, makes the transaction one whose commit waits.
  const commit = coalesce(async (before: string | null) => {
    const now = await read(
      'wait-for-standby',
      `SELECT ${TIMELINE} AS timeline, CASE WHEN current_setting('synchronous_standby_names') <> ''
         THEN pg_logical_emit_message(true, 'stampede', '') END`,
    );
    if (now !== null && now === before) return;
    known = now === null ? null : Promise.resolve(now);
    throw notReplicated('a standby that may lack it was promoted since');
  });
  return async () => {
    known ??= read('timeline', `SELECT ${TIMELINE} AS timeline`).catch((error) => {
      known = null;
      throw error;
    });
    await commit(await known);
  };
}
