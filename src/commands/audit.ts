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
import { cellsOf, runCommand, say } from './command.ts';

const HELP = `npm run audit -- verify [--head <id>:<hash> [--cell <n>]]
  --head        a head that was printed or logged before: the log must still contain it
  --cell        with CELL_DATABASE_URLS, the cell whose log it is of; 0 by default. The logs of all cells are verified
  DATABASE_URL  as for the service, which must run if its stores are local`;

/** @returns the exit code */
async function main(): Promise<number> {
  const { values, positionals } = readArguments(
    { head: { type: 'string' }, cell: { type: 'string', default: '0' }, help: { type: 'boolean' } },
    ['verify'],
  );
  if (values.help || positionals.length !== 1) {
    say(HELP);
    return values.help ? 0 : 2;
  }
  const expected = values.head === undefined ? null : parseHead(values.head);
  const cells = cellsOf(parseEnv(process.env, choices, loadEnvFile()));
  if (cells[Number(values.cell)] === undefined)
    throw new ConfigError([`--cell ${values.cell} must be a cell`]);
  let broken = 0;
  for (const [cell, { databaseUrl, name }] of cells.entries()) {
    const isWhole = await verify(databaseUrl, name, cell === Number(values.cell) ? expected : null);
    if (!isWhole) broken++;
  }
  return Math.sign(broken);
}

async function verify(databaseUrl: string, name: string, expected: AuditHead | null): Promise<boolean> {
  const postgres = openPostgres(databaseUrl, (error) => say(`Postgres: ${error.message}`));
  try {
    const { rows, head, broken } = await verifyAuditLog(postgres, expected);
    if (broken !== null) say(`${name}The audit log is broken at row ${broken.id}: ${broken.why}.`);
    else say(`${name}The audit log is unbroken: ${rows} rows. Head: ${head.id}:${head.hash.toString('hex')}`);
    return broken === null;
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
