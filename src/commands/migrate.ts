/**
 * `npm run migrate`: applies the migrations that the database lacks, and exits. For deployments in which one job migrates and the
 * services start with MIGRATE=never. Several may run at once: one applies, the others wait. The service may run meanwhile.
 */
import { readArguments } from '../config/arguments.ts';
import { parseEnv } from '../config/env.ts';
import { loadEnvFile } from '../config/env-file.ts';
import { choices } from '../service/core.ts';
import { migrateStores, prepareStores } from '../service/startup.ts';
import { databaseUrlOf, runCommand, say } from './command.ts';

const HELP = `npm run migrate
  DATABASE_URL            as for the service, which must run if its stores are local
  MIGRATION_DATABASE_URL  the same database with the role that owns the tables; empty: the role of DATABASE_URL migrates
  CELL_DATABASE_URLS      as for the service: these, too, by the roles that they name
  EVENTS                  as for the service: behind a pooler, the role must have the same
Exits with 0 when the database is current, otherwise with 2 and the reason: a migration that fails leaves nothing behind.`;

/** Each line of a report, and below it what it is about. */
const report = (details: Readonly<Record<string, unknown>>, message: string) =>
  say([message, ...Object.values(details).flat()].join('\n  '));

/** @returns the exit code */
async function main(): Promise<number> {
  const { values } = readArguments({ help: { type: 'boolean' } });
  if (values.help) {
    say(HELP);
    return 0;
  }
  const config = parseEnv(process.env, choices, loadEnvFile());
  const urls = { ...config, databaseUrl: databaseUrlOf(config) };
  // A cell may be migrated by itself, as the role that owns its tables.
  const migrateAll = config.cellDatabaseUrls.length === 0 ? migrateStores : prepareStores;
  await migrateAll(urls, { ...config, migrate: 'auto' }, { info: report, warn: report });
  say('The database is current.');
  return 0;
}

runCommand(main);
