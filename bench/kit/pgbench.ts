/**
 * The reference of a strategy that decides in Postgres: how many orders pgbench commits with the strategy's statements, as
 * many connections as the service has, and nothing around it.
 */
import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { type Layout, pin, pinned } from './pin.ts';
import { findProgram, isProgram, type Started, startProgram, startTool } from './processes.ts';
import { insertSales } from './sales.ts';
import { pgbenchScript, poolSize, type Statement, statementsOf } from './statements.ts';

/** What pgbench-worker.ts does. */
export interface StatementsOrder {
  readonly databaseUrl: string;
  readonly saleId: number;
  readonly connections: number;
  readonly statements: readonly Statement[];
}

export interface ReferenceOptions {
  readonly strategy: string;
  /** An empty database. */
  readonly databaseUrl: string;
  readonly warmupMs: number;
  readonly durationMs: number;
  readonly layout: Pick<Layout, 'server'>;
  /** A folder for the script. */
  readonly folder: string;
  readonly signal: AbortSignal;
}

export interface Reference {
  readonly perSecond: number;
  /** "pgbench -M prepared -c 16". */
  readonly how: string;
}

const saleId = 1;
/** More than it sells; a unit of `skip-locked` is a row. */
const unitsPerSecond = 8_000;
/** Ends pgbench when nothing else does, in seconds. */
const atMostS = 3_600;

export async function measureReference(options: ReferenceOptions): Promise<Reference> {
  const { strategy, databaseUrl, warmupMs, durationMs, signal } = options;
  await migrate(databaseUrl);
  const stock = Math.ceil((unitsPerSecond * (warmupMs + durationMs + 1_000)) / 1_000);
  await insertSales(databaseUrl, { sales: 1, buyers: 0, stock });
  const statements = await statementsOf(strategy, databaseUrl, saleId);
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // the statement in flight fails as well
  try {
    await client.connect();
    await using caller = await startCaller(statements, options);
    const end = AbortSignal.any([signal, caller.died]);
    const wait = async (ms: number): Promise<void> => {
      await sleep(ms, undefined, { signal: end }).catch(() => {});
      end.throwIfAborted();
    };
    const look = async () => {
      const askedMs = performance.now();
      const { rows } = await client.query<{ sold: number }>('SELECT sold FROM sales WHERE id = $1', [saleId]);
      return { sold: rows[0]?.sold ?? 0, atMs: (askedMs + performance.now()) / 2 };
    };
    await wait(warmupMs);
    const before = await look();
    await wait(durationMs);
    const after = await look();
    if (after.sold >= stock) throw new Error(`${caller.how}: the stock ran out`);
    return { how: caller.how, perSecond: (after.sold - before.sold) / ((after.atMs - before.atMs) / 1_000) };
  } finally {
    await client.end().catch(() => {});
  }
}

/** What sends the statements, until it is disposed of. */
type Caller = Started & { readonly how: string };

async function startCaller(
  statements: readonly Statement[],
  { strategy, databaseUrl, layout, folder }: ReferenceOptions,
): Promise<Caller> {
  const program = findPgbench();
  if (program === null) {
    const started = startProgram<StatementsOrder, never>('kit/pgbench-worker.ts');
    await pin(started.pid, layout.server);
    started.send({ databaseUrl, saleId, connections: poolSize, statements });
    return { ...started, how: `pg, ${poolSize} connections in a process` };
  }
  const script = join(folder, `${strategy}.sql`);
  await writeFile(script, pgbenchScript(statements, saleId));
  const shape = [
    '-n',
    '-M',
    'prepared',
    '-c',
    String(poolSize),
    '-j',
    '1',
    '-T',
    String(atMostS),
    '-D',
    'n=0',
  ];
  const command = pinned([program, ...shape, '-f', script], layout.server);
  const env = { ...process.env, ...libpqEnv(databaseUrl) };
  return { ...startTool({ command, env }), how: `pgbench -M prepared -c ${poolSize}` };
}

/** pgbench as PGBENCH names it, in the folders of Debian's packages, or on PATH; null: there is none. */
function findPgbench(): string | null {
  return process.env.PGBENCH || findProgram('pgbench', packageFolders());
}

/** What is wrong with PGBENCH, in words; null: nothing. */
export function wrongPgbench(): string | null {
  const named = process.env.PGBENCH;
  return !named || isProgram(named) ? null : `PGBENCH=${named}: not a program that can be run`;
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
