/**
 * What a load costs: CPU time of the service and of the stores, commands of Redis, transactions of Postgres. All are
 * counters that somebody keeps anyway; they are read right before and right after the load.
 *
 * CPU: /proc counts in ticks of 10 ms, for a process, its ended children and (by walking) those that live, so a backend
 * of Postgres counts whether it lives or has ended, and so do Postgres's own writers. Redis tells its own, to the µs, from
 * wherever it runs; what it forks to write its file is not in it.
 *
 * Commands: `total_commands_processed` counts a script as one, and each command that it calls as one more (seen with
 * Redis 7.0). The one of the bench, the first INFO, is subtracted.
 *
 * Transactions: a backend of Postgres keeps its count to itself until a transaction ends at least 1 s after it told last,
 * or until it was idle for 10 s, or ends (seen with Postgres 18; one that looked at tables: after a bare SELECT 1 it waits
 * on). Reading at once would miss up to the last second of each backend, and count the second before the load. So with
 * `serviceUrl` a second is waited before and after the load, and the service is then asked questions until each of its
 * connections has run one more transaction. Most of these are counted, all are subtracted: the count is wrong by their
 * number at the most (32 as a rule), and by some of the bench's own and of the service's background work meanwhile (2 to 7 a
 * second). Seen: 1.01 instead of 1 for each of 6,000 attempts. Without it, the count is wrong by what is done in a second.
 *
 * What the service does in the background while the load runs belongs to the cost.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { Cost } from './result.ts';

export interface CostsOptions {
  /** The service's first process; with WORKERS its children count, too. */
  readonly servicePid: number;
  /** Where the service answers, without a path; left out: transactions are counted less exactly, and without a wait. */
  readonly serviceUrl?: string;
  /** Not by way of a proxy that counts round trips. */
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** The first process of Postgres; null: it runs elsewhere. */
  readonly postgresPid: number | null;
}

/** Disposing (or `stop`) closes the bench's own connections to the stores. */
export interface Costs extends AsyncDisposable {
  /** @param attempts that were completed meanwhile */
  stop(attempts: number): Promise<Cost>;
}

/** Linux tells CPU time in this unit to every program, whatever its own clock does. */
const ticksPerSecond = 100;
/** Longer than a backend keeps its counts to itself while it works. */
const toldMs = 1_100;
/** Asked together: twice the connections of the service's pool. */
const questions = 32;
const mostBursts = 5;
const timeoutMs = 10_000;

/** CPU in seconds; null: it cannot be read. */
interface Counters {
  readonly service: number | null;
  readonly postgres: number | null;
  readonly redis: number | null;
  readonly commands: number | null;
}

/** Counts from now on. A counter that cannot be read is null in the end; nothing is thrown. */
export async function startCosts(options: CostsOptions): Promise<Costs> {
  const { servicePid, serviceUrl, postgresPid } = options;
  const redis = await openRedis(options.redisUrl);
  const sql = await openPostgres(options.databaseUrl);
  const close = async (): Promise<void> => {
    redis.disconnect();
    await sql?.end().catch(() => {});
  };
  const readCounters = async (): Promise<Counters> => ({
    service: cpuSeconds(servicePid),
    postgres: postgresPid === null ? null : cpuSeconds(postgresPid),
    ...(await readRedis(redis)),
  });
  if (serviceUrl !== undefined) await makeTell(serviceUrl, sql);
  const toldBefore = await transactions(sql);
  const before = await readCounters();
  return {
    async stop(attempts) {
      try {
        const after = await readCounters();
        const asked = serviceUrl === undefined ? 0 : await makeTell(serviceUrl, sql);
        const cpu = (name: 'service' | 'redis' | 'postgres'): number | null =>
          rounded(difference(before[name], after[name]), attempts / 10_000, 1_000);
        return {
          cpu: { service: cpu('service'), redis: cpu('redis'), postgres: cpu('postgres') },
          redisCommands: rounded(difference(before.commands, after.commands, 1), attempts, 100),
          postgresTransactions: rounded(
            difference(toldBefore, await transactions(sql), asked),
            attempts,
            100,
          ),
        };
      } finally {
        await close();
      }
    },
    [Symbol.asyncDispose]: close,
  };
}

function difference(before: number | null, after: number | null, own = 0): number | null {
  return before === null || after === null ? null : Math.max(0, after - before - own);
}

/** One of `parts` parts, to one in `precision`; null when there are none. */
function rounded(total: number | null, parts: number, precision: number): number | null {
  return total === null || parts === 0 ? null : Math.round((total / parts) * precision) / precision;
}

/**
 * Has the service use all of its connections, so that their backends tell what they counted.
 * @returns how many questions that took: each is a transaction
 */
async function makeTell(serviceUrl: string, sql: pg.Client | null): Promise<number> {
  await sleep(toldMs);
  // So that the questions go over open connections: only those that come together need many connections to Postgres.
  await askTogether(`${serviceUrl}/healthz`);
  const since = await clockOf(sql);
  for (let bursts = 1; ; bursts++) {
    await askTogether(`${serviceUrl}/readyz`);
    if (bursts === mostBursts || (await unused(sql, since)) === 0) return bursts * questions;
  }
}

async function askTogether(url: string): Promise<void> {
  const ask = async (): Promise<void> => {
    const answer = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    await answer.arrayBuffer();
  };
  await Promise.allSettled(Array.from({ length: questions }, ask));
}

/** Postgres's own clock, as text; null: nobody answers. */
async function clockOf(sql: pg.Client | null): Promise<string | null> {
  return value<string>(sql, 'SELECT clock_timestamp()::text AS value');
}

/** Connections of others to this database that ran nothing since then. */
async function unused(sql: pg.Client | null, since: string | null): Promise<number> {
  const count = await value<number>(
    sql,
    `SELECT count(*)::int AS value FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
       AND state_change < $1::timestamptz`,
    [since],
  );
  return count ?? 0;
}

/** CPU time of a process and of all that it started, in seconds; null: it is gone, or the system does not tell. */
export function cpuSeconds(pid: number): number | null {
  const children = new Map<number, number[]>();
  const ticks = new Map<number, number>();
  for (const id of runningPids()) {
    const stat = statOf(id);
    if (stat === null) continue;
    ticks.set(id, stat.ticks);
    children.set(stat.parent, [...(children.get(stat.parent) ?? []), id]);
  }
  if (!ticks.has(pid)) return null;
  const ticksOf = (id: number): number =>
    (children.get(id) ?? []).reduce((sum, child) => sum + ticksOf(child), ticks.get(id) ?? 0);
  return ticksOf(pid) / ticksPerSecond;
}

function runningPids(): number[] {
  try {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number);
  } catch {
    return []; // not Linux
  }
}

/** @returns null when it ended meanwhile */
function statOf(pid: number): { readonly parent: number; readonly ticks: number } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program's name in brackets and may hold anything: count from the last bracket.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const own = fields.slice(11, 13);
    const ended = fields.slice(13, 15);
    return {
      parent: Number(fields[1]),
      ticks: [...own, ...ended].reduce((sum, text) => sum + Number(text), 0),
    };
  } catch {
    return null;
  }
}

async function openRedis(url: string): Promise<Redis> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectionName: 'stampede-bench',
  });
  redis.on('error', () => {}); // what is asked of it fails, too
  await redis.connect().catch(() => {});
  return redis;
}

async function readRedis(redis: Redis): Promise<Pick<Counters, 'redis' | 'commands'>> {
  const info = await redis.info().catch(() => '');
  const field = (name: string): number =>
    Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1] ?? Number.NaN);
  const orNull = (n: number): number | null => (Number.isNaN(n) ? null : n);
  return {
    redis: orNull(field('used_cpu_sys') + field('used_cpu_user')),
    commands: orNull(field('total_commands_processed')),
  };
}

async function openPostgres(url: string): Promise<pg.Client | null> {
  const sql = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
    application_name: 'stampede-bench',
  });
  sql.on('error', () => {}); // what is asked of it fails, too
  try {
    await sql.connect();
    return sql;
  } catch {
    return null; // what is asked of a client that never connected ends only when its time is up
  }
}

/** Ended ones that backends of this database have told of; null: nobody answers. */
async function transactions(sql: pg.Client | null): Promise<number | null> {
  return value<number>(
    sql,
    `SELECT (xact_commit + xact_rollback)::float AS value FROM pg_stat_database WHERE datname = current_database()`,
  );
}

/** The one value of a query; null: nobody answers. */
async function value<T>(sql: pg.Client | null, query: string, values: unknown[] = []): Promise<T | null> {
  if (sql === null) return null;
  try {
    return (await sql.query<{ value: T }>(query, values)).rows[0]?.value ?? null;
  } catch {
    return null;
  }
}
