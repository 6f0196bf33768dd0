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

/** It grows with each promotion. A standby refuses to say it. */
export const TIMELINE = 'left(pg_walfile_name(pg_current_wal_lsn()), 8)';
const OF_PRIMARY = `CASE WHEN NOT pg_is_in_recovery() THEN ${TIMELINE} END AS timeline`;

/** What was read, or committed, is visible; a promoted standby may lack it. */
export function notReplicated(because: string): FailureError {
  return new FailureError('postgres', 'unknown', 'commit-not-replicated', `committed, but ${because}`);
}

export interface StandbyWait {
  /** Reads the timeline on the first connection, so that it is known before anything is read. @throws what Postgres throws */
  connected(client: Pick<pg.ClientBase, 'query'>): Promise<void>;
  /**
   * Waits until the synchronous standby has all that was read before the call. Callers that arrive together share one commit; without a
   * synchronous standby there is none, but the promotion of another is noticed.
   */
  wait(): Promise<void>;
}

/** @param pool gives each new connection to `connected` before any caller has it */
export function standbyWait(pool: pg.Pool): StandbyWait {
  type Timeline = { readonly timeline: string | null };
  /** That which was seen last; undefined: nothing was read yet; null: a standby was read. */
  let known: Timeline['timeline'] | undefined;
  // A message in the log of changes, which nothing reads, makes the transaction one whose commit waits.
  const commit = coalesce(async (before: typeof known) => {
    const { rows } = await pool.query<Timeline>({
      name: 'wait-for-standby',
      text: `SELECT ${OF_PRIMARY}, CASE WHEN current_setting('synchronous_standby_names') <> ''
               THEN pg_logical_emit_message(true, 'stampede', '') END`,
    });
    const now = rows[0]!.timeline;
    if (before === undefined || (now !== null && now === before)) return;
    known = now ?? known;
    throw notReplicated('a standby that may lack it was promoted since');
  });
  return {
    async connected(client) {
      if (known !== undefined) return;
      const { rows } = await client.query<Timeline>(`SELECT ${OF_PRIMARY}`);
      known ??= rows[0]!.timeline;
    },
    wait: () => commit(known),
  };
}
