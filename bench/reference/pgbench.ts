/**
 * The reference of a strategy that decides in Postgres: how many orders pgbench commits with the strategy's statements
 * alone, on as many connections as the service has.
 */
import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findProgram, startTool } from '../../lab/kit/processes.ts';
import { withPostgres } from '../../lab/servers/stores.ts';
import { limits } from '../../src/config/limits.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { type Layout, pinned } from '../kit/pin.ts';
import { insertSales } from './sales.ts';
import { pgbenchScript } from './statements.ts';

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
/** More than pgbench sells; a `skip-locked` unit is a row. */
const unitsPerSecond = 8_000;
/** As many as one service process has. */
const connections = String(limits.postgresPoolSize);

/** @returns null if pgbench is not installed */
export async function measureReference(options: ReferenceOptions): Promise<Reference | null> {
  const { strategy, databaseUrl, warmupMs, durationMs, layout, folder, signal } = options;
  const program = findPgbench();
  if (program === null) return null;
  await migrate(databaseUrl);
  const stock = Math.ceil((unitsPerSecond * (warmupMs + durationMs + 1_000)) / 1_000);
  await insertSales(databaseUrl, { sales: 1, buyers: 0, stock });
  const script = join(folder, `${strategy}.sql`);
  await writeFile(script, await pgbenchScript(strategy, databaseUrl, saleId));
  const shape = ['-n', '-M', 'prepared', '-c', connections, '-j', '1', '-T', '3600', '-D', 'n=0'];
  const command = pinned([program, ...shape, '-f', script], layout.server);
  return await withPostgres(databaseUrl, async (client) => {
    await using pgbench = startTool({ command, env: { ...process.env, ...libpqEnv(databaseUrl) } });
    const end = AbortSignal.any([signal, pgbench.died]);
    const soldAfter = async (ms: number) => {
      await sleep(ms, undefined, { signal: end }).catch(() => end.throwIfAborted());
      const askedMs = performance.now();
      const { rows } = await client.query<{ sold: number }>('SELECT sold FROM sales WHERE id = $1', [saleId]);
      return { sold: rows[0]!.sold, atMs: (askedMs + performance.now()) / 2 };
    };
    const before = await soldAfter(warmupMs);
    const after = await soldAfter(durationMs);
    if (after.sold >= stock) throw new Error('the stock of pgbench ran out');
    const perSecond = (after.sold - before.sold) / ((after.atMs - before.atMs) / 1_000);
    return { how: `pgbench -M prepared -c ${connections}`, perSecond };
  });
}

/** In the folders of Debian's packages, the newest version first, or on PATH; null: there is none. */
export function findPgbench(): string | null {
  const root = '/usr/lib/postgresql';
  let versions: string[] = [];
  try {
    versions = readdirSync(root).sort((a, b) => Number(b) - Number(a));
  } catch {
    // another system, or another package
  }
  return findProgram(
    'pgbench',
    versions.map((version) => join(root, version, 'bin')),
  );
}

/** The connection for programs that use libpq: a password does not belong on a command line. */
export function libpqEnv(databaseUrl: string): Record<string, string> {
  const url = new URL(databaseUrl);
  return {
    PGHOST: url.searchParams.get('host') ?? url.hostname,
    PGPORT: url.port || '5432',
    PGUSER: decodeURIComponent(url.username),
    PGPASSWORD: decodeURIComponent(url.password),
    PGDATABASE: decodeURIComponent(url.pathname.slice(1)),
  };
}
