/** Postgres for the lab: one server, or a primary with a standby. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PostgresServer } from '../../src/local/postgres-server.ts';
import { migrate } from '../../src/service/startup.ts';
import { eventually } from '../kit/eventually.ts';
import { clockIn, type LabOptions, type LabServers, lacking, type Node } from './lab-servers.ts';
import { startPostgres } from './postgres-folder.ts';
import { openPostgresPair } from './postgres-pair.ts';
import { mountSmallDisk, type SmallDisk } from './small-disk.ts';
import { withPostgres } from './stores.ts';

/** Room for an empty database and the WAL of a trial. */
const DISK_MB = 96;
/**
 * How long only tables cannot grow; then the WAL cannot, either, and Postgres ends. A trial alone does not fill the 16 MB of a
 * WAL file, which Postgres allocates in advance.
 */
const TABLES_FULL_MS = 1_000;
const RECOVERY_MS = 120_000;

export async function openPostgres(options: LabOptions): Promise<LabServers> {
  if (options.group !== null) return openPair(options);
  if (!options.smallDisk) return openSingle(options, null);
  const folder = join(options.folder, 'disk');
  const disk = await mountSmallDisk(folder, DISK_MB);
  const unmount = () => disk[Symbol.asyncDispose]();
  try {
    const servers = await openSingle({ ...options, folder }, disk);
    const dispose = async (): Promise<void> => {
      await Promise.resolve(servers[Symbol.asyncDispose]()).finally(unmount);
    };
    return { ...servers, [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await unmount();
    throw error;
  }
}

async function openSingle(options: LabOptions, disk: SmallDisk | null): Promise<LabServers> {
  const { folder, durable = false } = options;
  const clock = clockIn(options.clock, join(folder, 'clock'));
  // The log is on another disk than the data, so that it shows what failed.
  const log = disk === null ? {} : { log: join(folder, '..', 'postgres.log') };
  const open = (port?: number) =>
    startPostgres({ folder, ...log, environment: clock.environment, ...(port !== undefined && { port }) });
  let server = await open();
  const { port } = server;
  const url = server.url();
  if (!durable) await migrate(url);
  const restart = async (): Promise<void> => {
    server = await open(port);
  };
  const node: Node = {
    ...lacking.node,
    port,
    save: async () => {}, // a commit is on disk
    kill: () => server.kill(),
    start: restart,
    async setDisk(isFull) {
      if (disk === null) return lacking.node.setDisk();
      if (isFull) {
        await disk.fill();
        await sleep(TABLES_FULL_MS);
        await withPostgres(url, (client) => client.query('SELECT pg_switch_wal()')).catch(() => {}); // it ends
        return;
      }
      await disk.clear();
      if (await hasEnded(server, url)) await restart();
    },
  };
  return {
    ...lacking.group,
    nodes: [node],
    urls: ([way]) => ({ databaseUrl: Object.assign(new URL(url), { port: String(way) }).href }),
    currentUrls: async () => ({ databaseUrl: url }),
    setClock: (_node, aheadMs) => clock.set(aheadMs),
    [Symbol.asyncDispose]: () => server.kill(),
  };
}

async function openPair(options: LabOptions): Promise<LabServers> {
  const { folder, group, durable = false } = options;
  const { environment, set } = clockIn(options.clock, join(folder, 'clock'));
  const synchronous = group === 'synchronous-standby';
  const pair = await openPostgresPair({ synchronous, folder, migrated: !durable, environment });
  const { port } = pair;
  const url = pair.currentUrl();
  const node: Node = {
    ...lacking.node,
    port,
    save: async () => {}, // a commit is on disk
    kill: () => pair.end('kill'),
    start: () => pair.restart(),
  };
  return {
    ...lacking.group,
    nodes: [node],
    urls: ([way]) => ({ databaseUrl: Object.assign(new URL(url), { port: String(way) }).href }),
    groupUrls: { databaseUrl: pair.url },
    currentUrls: async () => ({ databaseUrl: pair.currentUrl() }),
    setClock: (_node, aheadMs) => set(aheadMs),
    stopReplication: () => pair.cutReplication(false),
    cutOff: () => pair.end('cut'),
    rejoin: async () => pair.rejoin(),
    promoted: () => pair.promote(),
    [Symbol.asyncDispose]: () => pair[Symbol.asyncDispose](),
  };
}

/** Waits until a server that met an error works again, or has ended. */
async function hasEnded(server: PostgresServer, url: string): Promise<boolean> {
  let ended = false;
  void server.ended.then(() => {
    ended = true;
  });
  const works = () =>
    withPostgres(url, (client) => client.query('CREATE TEMP TABLE probe (n int)')).then(
      () => true,
      () => false,
    );
  await eventually(works, (isUp) => isUp || ended, RECOVERY_MS);
  return ended;
}
