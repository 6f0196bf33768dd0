/** Opens the servers of one trial, with a clock that can be set if a compiler is installed. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ServerKind } from '../clients/lock-cells.ts';
import type { LabOptions, LabServers } from './lab-servers.ts';
import { openPostgres } from './postgres.ts';
import { openRedis } from './redis.ts';
import { openClusterRedis, openSentinelRedis } from './redis-groups.ts';
import { openZookeeper } from './zookeeper.ts';

/** @returns the path of the library that sets a server's clock; null: there is no C compiler */
export async function buildClock(folder: string): Promise<string | null> {
  const [source, library] = [fileURLToPath(new URL('clock.c', import.meta.url)), join(folder, 'clock.so')];
  const args = ['-shared', '-fPIC', '-O2', '-o', library, source];
  return promisify(execFile)('cc', args).then(
    () => library,
    () => null,
  );
}

export async function openLabServers(kind: ServerKind, options: LabOptions): Promise<LabServers> {
  if (kind === 'zookeeper') return openZookeeper(options);
  if (kind === 'postgres') return openPostgres(options);
  if (options.group === 'sentinels') return openSentinelRedis(options);
  if (options.group === 'cluster') return openClusterRedis();
  return openRedis(kind === 'redis-five' ? 3 : 1, options);
}
