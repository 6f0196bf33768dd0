/** The cell `pgbench`: how many orders a second Postgres commits with the statements of `for-update` and nothing around. */
import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { findProgram, isProgram, type Started, startProgram, startTool } from '../processes.ts';
import { checkStores } from './audit.ts';
import { countBetween, databaseName, type Measured, type Measuring, type Turn } from './measure.ts';
import { pin, pinned } from './pin.ts';
import { insertSales } from './sales.ts';
import { connections, pgbenchScript, type Statement, statementsOf } from './statements.ts';

/** What a process of statements is told. */
export interface StatementsOrder {
  readonly databaseUrl: string;
  readonly saleId: number;
  readonly connections: number;
  readonly statements: readonly Statement[];
}

const saleId = 1;
const units = 2_000_000_000;
/** Ends pgbench when nobody else does, in seconds. */
const atMostS = 3_600;

/** pgbench's own path: as PGBENCH names it, in the folders of Debian's packages, or on PATH; null: there is none. */
function findPgbench(): string | null {
  return process.env.PGBENCH || findProgram('pgbench', packageFolders());
}

/** What is wrong with PGBENCH, in words; null: nothing. */
export function wrongPgbench(): string | null {
  const named = process.env.PGBENCH;
  return !named || isProgram(named) ? null : `PGBENCH=${named}: there is no program that can be run`;
}

function packageFolders(): string[] {
  const root = '/usr/lib/postgresql';
  try {
    const versions = readdirSync(root).sort((a, b) => Number(b) - Number(a));
    return versions.map((version) => join(root, version, 'bin'));
  } catch {
    return [];
  }
}

export async function measureStatements(turn: Turn, measuring: Measuring): Promise<Measured> {
  measuring.onStep('starting');
  await using stores = await measuring.stores.fresh(databaseName(turn));
  const { databaseUrl, redisUrl } = stores;
  await migrate(databaseUrl);
  await insertSales(databaseUrl, { sales: 1, buyers: 0, stock: units });
  const statements = await statementsOf(databaseUrl, saleId);
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // the statement that is under way fails as well
  try {
    await client.connect();
    await using caller = await startCaller(databaseUrl, statements, client, measuring);
    const count = async (): Promise<number> => {
      const { rows } = await client.query<{ sold: number }>('SELECT sold FROM sales WHERE id = $1', [saleId]);
      return (rows[0]?.sold ?? 1) - 1; // but for the attempt from which the statements are known
    };
    const rate = await countBetween(count, caller.died, measuring);
    await caller[Symbol.asyncDispose]();
    const findings = await checkStores({ databaseUrl, redisUrl, inRedis: false, accepted: 0 });
    return { ...rate, how: caller.how, others: 0, unanswered: 0, latencyMs: null, findings };
  } finally {
    await client.end().catch(() => {});
  }
}

/** What sends the statements, until it is disposed of. */
type Caller = Started & { readonly how: string };

async function startCaller(
  databaseUrl: string,
  statements: readonly Statement[],
  client: pg.Client,
  { layout, folder }: Measuring,
): Promise<Caller> {
  const program = findPgbench();
  if (program === null) {
    const started = startProgram<StatementsOrder, never>('limits/drivers/statements.ts');
    await pin(started.pid, layout.server);
    started.tell({ databaseUrl, saleId, connections, statements });
    return { ...started, how: `pg, ${connections} connections in a process of their own` };
  }
  const script = join(folder, 'for-update.sql');
  await writeFile(script, pgbenchScript(statements, saleId, await newOrder(client)));
  const shape = ['-n', '-M', 'prepared', '-c', String(connections), '-j', '1', '-T', String(atMostS)];
  const command = pinned([program, ...shape, '-f', script], layout.server);
  const started = startTool({ command, env: libpqEnv(databaseUrl) });
  return { ...started, how: `pgbench -M prepared -c ${connections}` };
}

/** pgbench has no UUIDs: the server makes the order's, of the same kind as the service does where it can. */
async function newOrder(client: pg.Client): Promise<string> {
  const { rows } = await client.query(`SELECT 1 FROM pg_proc WHERE proname = 'uuidv7'`);
  return rows.length > 0 ? 'uuidv7()' : 'gen_random_uuid()';
}

/** Where Postgres is, for programs that use libpq: a password does not belong on a command line. */
function libpqEnv(databaseUrl: string): Record<string, string> {
  const url = new URL(databaseUrl);
  return {
    PGHOST: url.searchParams.get('host') ?? url.hostname,
    PGPORT: url.port || '5432',
    PGUSER: decodeURIComponent(url.username),
    PGPASSWORD: decodeURIComponent(url.password),
    PGDATABASE: decodeURIComponent(url.pathname.slice(1)),
  };
}
