/**
 * The wait of an answer for the synchronous standby. A row can be read before the standby has it, if the wait of its commit was
 * cancelled, or if its connection or the server ended meanwhile. So an answer that promises what a read found waits for this.
 *
 *   timeline taken ──▶ read ──▶ a message is committed ──on this timeline──▶ the standby has what was read
 *                                         └──on another──▶ a standby was promoted since, and may lack it: it fails
 *
 * The timeline is taken before the read. One that is taken afterwards may be that of the promoted standby already, which another caller
 * noticed between the read and the wait.
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

/** One that was seen, no later than what is read after it was taken. */
export interface Timeline {
  /** Undefined: there was no connection yet, and the first one sets it; null: a standby was read. */
  readonly name: string | null | undefined;
}

export interface StandbyWait {
  /** Reads the timeline on the first connection, so that it is known before anything is read. @throws what Postgres throws */
  connected(client: Pick<pg.ClientBase, 'query'>): Promise<void>;
  /** The timeline that was seen last. */
  timeline(): Timeline;
  /**
   * Waits until the synchronous standby has all that was read before the call. Callers of a timeline that arrive together share one commit;
   * without a synchronous standby there is none, but the promotion of another is noticed.
   * @param before taken before the read
   */
  wait(before: Timeline): Promise<void>;
}

/** @param pool gives each new connection to `connected` before any caller has it */
export function standbyWait(pool: pg.Pool): StandbyWait {
  type Row = { readonly timeline: string | null };
  let last: { name: Timeline['name'] } = { name: undefined };
  // A message in the log of changes, which nothing reads, makes the transaction one whose commit waits.
  const wait = coalesce(async (before: Timeline) => {
    const { rows } = await pool.query<Row>({
      name: 'wait-for-standby',
      text: `SELECT ${OF_PRIMARY}, CASE WHEN current_setting('synchronous_standby_names') <> ''
               THEN pg_logical_emit_message(true, 'stampede', '') END`,
    });
    const now = rows[0]!.timeline;
    if (now !== null && now === before.name) return;
    if (now !== null && now !== last.name) last = { name: now };
    throw notReplicated('a standby that may lack it was promoted since');
  });
  return {
    async connected(client) {
      if (last.name !== undefined) return;
      const { rows } = await client.query<Row>(`SELECT ${OF_PRIMARY}`);
      if (last.name === undefined) last.name = rows[0]!.timeline;
    },
    timeline: () => last,
    wait,
  };
}
