/**
 * `npm run audit -- verify`: verifies the audit log, and prints its head. Exits with 1 when the chain is broken. The service may run
 * meanwhile.
 */
import { readArguments } from '../config/arguments.ts';
import { parseEnv } from '../config/env.ts';
import { loadEnvFile } from '../config/env-file.ts';
import { ConfigError } from '../config/errors.ts';
import { choices } from '../service/core.ts';
import { type AuditHead, verifyAuditLog } from '../store/postgres/audit-log.ts';
import { openPostgres } from '../store/postgres/pool.ts';
import { databaseUrlOf, runCommand, say } from './command.ts';

const HELP = `npm run audit -- verify [--head <id>:<hash>]
  --head        a head that was printed or logged before: the log must still contain it
  DATABASE_URL  as for the service, which must run if its stores are local`;

/** @returns the exit code */
async function main(): Promise<number> {
  const { values, positionals } = readArguments({ head: { type: 'string' }, help: { type: 'boolean' } }, [
    'verify',
  ]);
  if (values.help || positionals.length !== 1) {
    say(HELP);
    return values.help ? 0 : 2;
  }
  const expected = values.head === undefined ? null : parseHead(values.head);
  const config = parseEnv(process.env, choices, loadEnvFile());
  const postgres = openPostgres(databaseUrlOf(config), (error) => say(`Postgres: ${error.message}`));
  try {
    const { rows, head, broken } = await verifyAuditLog(postgres, expected);
    if (broken !== null) say(`The audit log is broken at row ${broken.id}: ${broken.why}.`);
    else say(`The audit log is unbroken: ${rows} rows. Head: ${head.id}:${head.hash.toString('hex')}`);
    return broken === null ? 0 : 1;
  } finally {
    await postgres.close();
  }
}

function parseHead(text: string): AuditHead {
  const [, id, hash] = /^(\d{1,18}):([0-9a-f]{64})$/.exec(text) ?? [];
  if (id === undefined) throw new ConfigError([`--head ${text} must be <id>:<hash>, as it was printed`]);
  return { id, hash: Buffer.from(hash!, 'hex') };
}

runCommand(main);
