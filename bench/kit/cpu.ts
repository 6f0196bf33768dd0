/**
 * The cost of a load: CPU time of service and stores, commands of Redis. All are existing counters, read right before and
 * right after the load.
 *
 * /proc counts ticks of 10 ms for a process and its ended children; a walk of the process tree adds living ones. A
 * backend of Postgres therefore counts, running or ended. Redis reports its own CPU time, without the process it forks to
 * write its file. `total_commands_processed` counts a script as one command, and each command it calls as one more (Redis 7.0).
 */
import { readdirSync, readFileSync } from 'node:fs';
import { redisClient } from '../../lab/servers/stores.ts';

export interface CpuTargets {
  /** The first process of each service; with WORKERS its children count, too. Null: it runs elsewhere. */
  readonly servicePids: readonly (number | null)[];
  /** Direct URLs of Redis, past proxies. Empty: its figures are null. */
  readonly redisUrls: readonly string[];
  /** The first process of each Postgres; null: it runs elsewhere. */
  readonly postgresPids: readonly (number | null)[];
}

/** Usage since `startCpu`; null: not readable. */
export type CpuUsage = Awaited<ReturnType<Awaited<ReturnType<typeof startCpu>>>>;

/** Counts from now on. Never throws. @returns a function that ends it */
export async function startCpu(targets: CpuTargets) {
  const { servicePids, redisUrls, postgresPids } = targets;
  const clients = redisUrls.map(redisClient);
  await Promise.all(clients.map((redis) => redis.connect().catch(() => {})));
  const cpuOf = (pid: number | null): number => (pid === null ? null : cpuSeconds(pid)) ?? Number.NaN;
  const sum = (values: readonly number[]): number =>
    values.length === 0 ? Number.NaN : values.reduce((total, value) => total + value);
  const read = async () => {
    const infos = await Promise.all(clients.map((redis) => redis.info().catch(() => '')));
    const field = (name: string) =>
      sum(infos.map((info) => Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1] ?? Number.NaN)));
    return {
      serviceS: sum(servicePids.map(cpuOf)),
      redisS: field('used_cpu_sys') + field('used_cpu_user'),
      postgresS: sum(postgresPids.map(cpuOf)),
      redisCommands: field('total_commands_processed'),
      elapsedS: performance.now() / 1_000,
    };
  };
  const before = await read();
  return async () => {
    const after = await read();
    for (const redis of clients) redis.disconnect();
    const grown = (key: Exclude<keyof typeof before, 'elapsedS'>, own = 0): number | null => {
      const more = after[key] - before[key] - own;
      return Number.isNaN(more) ? null : Math.max(0, more);
    };
    return {
      serviceS: grown('serviceS'),
      redisS: grown('redisS'),
      postgresS: grown('postgresS'),
      redisCommands: grown('redisCommands', clients.length), // less the first INFO
      elapsedS: after.elapsedS - before.elapsedS,
    };
  };
}

/** Linux reports CPU time in this unit to every program. */
const ticksPerSecond = 100;

/** CPU time of a process and of all it started, in seconds; null: it is gone, or the system does not report it. */
export function cpuSeconds(pid: number): number | null {
  const children = new Map<number, number[]>();
  const ticks = new Map<number, number>();
  for (const id of runningPids()) {
    // The second field is the program's name in brackets and may hold anything: count from the last bracket.
    const fields = procFile(id, 'stat')
      ?.replace(/^.*\) /s, '')
      .split(' ');
    if (fields === undefined) continue; // it ended meanwhile
    const parent = Number(fields[1]);
    const own = fields.slice(11, 15).reduce((sum, text) => sum + Number(text), 0);
    ticks.set(id, own);
    children.set(parent, [...(children.get(parent) ?? []), id]);
  }
  if (!ticks.has(pid)) return null;
  const ticksOf = (id: number): number =>
    (children.get(id) ?? []).reduce((sum, child) => sum + ticksOf(child), ticks.get(id) ?? 0);
  return ticksOf(pid) / ticksPerSecond;
}

function runningPids(): number[] {
  try {
    return readdirSync('/proc').map(Number).filter(Number.isInteger);
  } catch {
    return []; // not Linux
  }
}

/** A file of `/proc/<pid>`; null: the process is gone, or this is not Linux. */
export function procFile(pid: number, name: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch {
    return null;
  }
}

/** Resident memory of a process, in bytes; null: it is gone, or the system does not report it. */
export function residentBytes(pid: number): number | null {
  const kilobytes = /^VmRSS:\s*(\d+) kB/m.exec(procFile(pid, 'status') ?? '')?.[1];
  return kilobytes === undefined ? null : Number(kilobytes) * 1_024;
}
