/**
 * What a load costs: CPU time of service and stores, commands of Redis. All are counters that exist anyway, read right
 * before and right after the load.
 *
 * /proc counts in ticks of 10 ms, for a process, its ended children and (by walking) living ones, so that a backend of
 * Postgres counts whether it lives or has ended. Redis reports its own CPU time, to the µs, from wherever it runs; the
 * process it forks to write its file is not in it. `total_commands_processed` counts a script as one command, and each
 * command it calls as one more (Redis 7.0).
 */
import { readdirSync, readFileSync } from 'node:fs';
import { Redis } from 'ioredis';

export interface CpuTargets {
  /** The service's first process; with WORKERS its children count, too. */
  readonly servicePid: number;
  /** Not through a proxy. */
  readonly redisUrl: string;
  /** The first process of Postgres; null: it runs elsewhere. */
  readonly postgresPid: number | null;
}

/** Since the start; null: it could not be read. */
export interface CpuUsage {
  readonly serviceS: number | null;
  readonly redisS: number | null;
  readonly postgresS: number | null;
  readonly redisCommands: number | null;
  readonly elapsedS: number;
}

/** Linux reports CPU time in this unit to every program. */
const ticksPerSecond = 100;
const timeoutMs = 10_000;

/** Counts from now on. Nothing is thrown. @returns a function that ends it */
export async function startCpu({
  servicePid,
  redisUrl,
  postgresPid,
}: CpuTargets): Promise<() => Promise<CpuUsage>> {
  const redis = new Redis(redisUrl, {
    lazyConnect: true,
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectionName: 'stampede-bench',
  });
  redis.on('error', () => {}); // the commands fail as well
  await redis.connect().catch(() => {});
  const read = async () => ({
    service: cpuSeconds(servicePid),
    postgres: postgresPid === null ? null : cpuSeconds(postgresPid),
    ...(await readRedis(redis)),
    atMs: performance.now(),
  });
  const before = await read();
  return async () => {
    const after = await read();
    redis.disconnect();
    return {
      serviceS: grown(before.service, after.service),
      redisS: grown(before.redis, after.redis),
      postgresS: grown(before.postgres, after.postgres),
      redisCommands: grown(before.commands, after.commands, 1), // the INFO before
      elapsedS: (after.atMs - before.atMs) / 1_000,
    };
  };
}

function grown(before: number | null, after: number | null, own = 0): number | null {
  return before === null || after === null ? null : Math.max(0, after - before - own);
}

/** CPU time of a process and of all it started, in seconds; null: it is gone, or the system does not report it. */
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
    return readdirSync('/proc').flatMap((name) => (/^\d+$/.test(name) ? [Number(name)] : []));
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
    const [own, ended] = [fields.slice(11, 13), fields.slice(13, 15)];
    return {
      parent: Number(fields[1]),
      ticks: [...own, ...ended].reduce((sum, text) => sum + Number(text), 0),
    };
  } catch {
    return null;
  }
}

async function readRedis(
  redis: Redis,
): Promise<{ readonly redis: number | null; readonly commands: number | null }> {
  const info = await redis.info().catch(() => '');
  const field = (name: string): number =>
    Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1] ?? Number.NaN);
  const orNull = (value: number): number | null => (Number.isNaN(value) ? null : value);
  return {
    redis: orNull(field('used_cpu_sys') + field('used_cpu_user')),
    commands: orNull(field('total_commands_processed')),
  };
}

/** Resident memory of a process, in bytes; null: it is gone, or the system does not report it. */
export function residentBytes(pid: number): number | null {
  try {
    const kilobytes = /^VmRSS:\s*(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kilobytes === undefined ? null : Number(kilobytes) * 1_024;
  } catch {
    return null;
  }
}
