/**
 * The settings that every connection relies on. A connection sends them when it starts; PgBouncer drops them there, and then the
 * role must have them.
 */
import type pg from 'pg';
import { limits } from '../../config/limits.ts';

/** Milliseconds. */
export const TIMEOUTS = {
  statement_timeout: limits.postgresStatementMs,
  lock_timeout: limits.postgresLockMs,
  idle_in_transaction_session_timeout: limits.postgresStatementMs,
} as const;

/**
 * A prepared statement keeps its first plan. For a table that was vacuumed while it was empty, that plan is a sequential scan, and
 * stays one while the table grows. So sequential scans are off wherever an index exists.
 */
const PLANNER = { enable_seqscan: 'off' } as const;

/** Besides the timeouts. @param events see `PoolOptions` */
export const sessionSettings = (events: readonly string[]): Readonly<Record<string, string>> => ({
  ...PLANNER,
  ...(events.length > 0 && { 'stampede.events': events.join(',') }),
});

/** @returns the statements that give the role what a connection lacks @throws what Postgres throws */
export async function missingSettings(
  connection: Pick<pg.ClientBase, 'query'>,
  events: readonly string[] = [],
): Promise<string[]> {
  const chosen = { 'stampede.events': events.join(',') }; // also when there are none: the role may still have some
  const wanted: Readonly<Record<string, unknown>> = { ...TIMEOUTS, ...sessionSettings(events), ...chosen };
  const { rows } = await connection.query<{ name: string; setting: string | null; role: string }>(
    `SELECT name, coalesce(s.setting, current_setting(name, true), '') AS setting, quote_ident(current_user) AS role
     FROM unnest($1::text[]) AS wanted (name) LEFT JOIN pg_settings AS s USING (name)`,
    [Object.keys(wanted)],
  );
  return rows
    .filter(({ name, setting }) => setting !== String(wanted[name]))
    .map(({ name, role }) => `ALTER ROLE ${role} SET ${name} = '${wanted[name]}'`);
}
