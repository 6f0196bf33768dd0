/**
 * What the service needs of each connection to Postgres, however the server, the database, the role, the URL or a pooler is configured.
 * One rule for every setting:
 *
 *   sent with each connection, before which database and role have no say ──▶ read back at start ──as needed──▶ the service starts
 *                                                                                  └──otherwise──▶ it does not, and says why
 *
 * Read back, because PgBouncer drops what a connection sends (then the role must have it), and a URL may name other values.
 */
import { limits } from '../../config/limits.ts';

/** Milliseconds. */
export const TIMEOUTS = {
  statement_timeout: limits.postgresStatementMs,
  lock_timeout: limits.postgresLockMs,
  idle_in_transaction_session_timeout: limits.postgresStatementMs,
} as const;

/** With `local` or `off`, a 201 is lost with the server, or with its standby. A URL may name `remote_apply`, which is stronger. */
const DURABILITY = { synchronous_commit: 'on' } as const;

const SETTINGS = {
  // node-postgres reads other formats of instants as null, and drops digits of a number beyond fifteen.
  datestyle: 'ISO',
  extra_float_digits: '1',
  // What the statements are written for, and migrations: under REPEATABLE READ, the snapshot is older than the lock that they wait for.
  default_transaction_isolation: 'read committed',
  // A cancelled wait for the synchronous standby is reported by a WARNING alone.
  client_min_messages: 'warning',
  // A prepared statement keeps its first plan. For a table that was vacuumed while it was empty, that plan is a sequential scan, and stays
  // one while the table grows.
  enable_seqscan: 'off',
  // A plan that cannot do without a sequential scan then seems so expensive that Postgres would compile it, for 100 ms at each execution.
  jit: 'off',
} as const;

/** Other values that do as well, as Postgres writes them. */
const EQUIVALENT: Readonly<Record<string, RegExp>> = {
  datestyle: /^ISO, /,
  synchronous_commit: /^(on|remote_apply)$/,
  client_min_messages: /^(debug\d|log|notice|warning)$/,
};

/** A role that has another value needs a superuser's help: under `replica`, no trigger fires and no foreign key is checked. */
const OF_SUPERUSERS = { session_replication_role: 'origin' } as const;

/** What a URL asks for, and what the triggers of the migration 20261126140000_events read. */
interface Choices {
  readonly schema: string | null;
  readonly events: readonly string[];
}

const chosen = ({ schema, events }: Choices): Readonly<Record<string, string>> => ({
  ...SETTINGS,
  ...(schema !== null && { search_path: `"${schema}"` }),
  'stampede.events': events.join(','),
});

/**
 * The settings that a connection sends beside the timeouts.
 * @param given those of the URL, which come before all others but the durability
 * @returns the startup parameter `options`
 */
export function sessionOptions(given: string, choices: Choices): string {
  const flags = (settings: Readonly<Record<string, string>>) =>
    Object.entries(settings).map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`);
  // The last one of a name counts.
  return [...flags(DURABILITY), given, ...flags(chosen(choices))].join(' ');
}

/** All settings that a connection must have, by name. */
export const neededSettings = (choices: Choices): Readonly<Record<string, string>> => ({
  ...Object.fromEntries(Object.entries(TIMEOUTS).map(([name, ms]) => [name, String(ms)])),
  ...OF_SUPERUSERS,
  ...DURABILITY,
  ...chosen(choices),
});

/** @param value as pg_settings has it */
export function isAsNeeded(name: string, value: string, needed: string): boolean {
  const bare = (text: string) => text.replace(/^"(.*)"$/, '$1');
  return EQUIVALENT[name]?.test(value) ?? bare(value) === bare(needed);
}
