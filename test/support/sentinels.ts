/**
 * A Redis primary with a replica, and three Sentinels that fail over to it:
 *
 *   services ──▶ Sentinels: where is the primary? ──▶ primary ══replication link══▶ replica
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { ensureRedisServer, type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { freePort, launch, type ServerProcess } from '../../src/local/server-process.ts';
import { eventually } from './client.ts';

const SERVICE = 'sale-primary';
const SENTINELS = 3;
/** How long a server is silent before a Sentinel calls it down; the field's usual 30 s would be all that a test measures. */
const DOWN_AFTER_MS = 500;

export interface Sentinels extends AsyncDisposable {
  /** redis+sentinel://… */
  readonly url: string;
  /** The server that the Sentinels call the primary now. */
  primary(): Promise<RedisServer>;
  /** A client of the primary. The caller disconnects it. */
  client(): Promise<Redis>;
  /** Starts a killed server again, on its port; the Sentinels make it a replica. */
  restart(server: RedisServer): Promise<void>;
  /** Has the Sentinels promote the replica, as an operator does before maintenance, and waits until they have. */
  switchOver(): Promise<void>;
  /** Waits until another server than `old` is the primary. */
  untilPromoted(old: RedisServer): Promise<void>;
}

export async function openSentinels(): Promise<Sentinels> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-sentinel-'));
  const { path: program } = await ensureRedisServer();
  const args = ['--appendonly', 'no', '--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];
  const start = (n: number, more: readonly string[] = [], port?: number): Promise<RedisServer> =>
    startRedisServer({
      folder: path.join(folder, String(n)),
      args: [...args, ...more],
      ...(port !== undefined && { port }),
    });
  const first = await start(0);
  const servers = [first, await start(1, ['--replicaof', '127.0.0.1', String(first.port)])];
  const processes: ServerProcess[] = [];
  const ports: number[] = [];
  for (let n = 0; n < SENTINELS; n++) {
    const port = await freePort();
    const file = path.join(folder, `sentinel-${n}.conf`);
    const lines = [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor ${SERVICE} 127.0.0.1 ${first.port} 2`,
      `sentinel down-after-milliseconds ${SERVICE} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${SERVICE} 3000`,
    ];
    await writeFile(file, `${lines.join('\n')}\n`);
    const log = path.join(folder, `sentinel-${n}.log`);
    processes.push(
      await launch({ command: program, args: [file, '--sentinel'], cwd: folder, log }, 'redis-failed'),
    );
    ports.push(port);
  }
  const sentinel = new Redis({ port: ports[0]!, lazyConnect: true, retryStrategy: () => 100 });
  sentinel.on('error', () => {}); // it may not listen yet
  const address = async (): Promise<number> => {
    const reply = (await sentinel.call('SENTINEL', 'get-master-addr-by-name', SERVICE)) as string[] | null;
    return Number(reply?.[1]);
  };
  const primary = async (): Promise<RedisServer> => {
    const port = await address();
    return servers.find((server) => server.port === port)!;
  };
  const info = async (): Promise<string> =>
    JSON.stringify(await sentinel.call('SENTINEL', 'master', SERVICE).catch(() => ''));
  const field = (text: string, name: string): string =>
    new RegExp(`"${name}"[,:]"([^"]*)"`).exec(text)?.[1] ?? '';
  /** Each Sentinel knows the others and the replica: a failover is possible. */
  const ready = (text: string): boolean =>
    field(text, 'num-other-sentinels') === String(SENTINELS - 1) &&
    field(text, 'num-slaves') === '1' &&
    field(text, 'flags') === 'master';
  await sentinel.connect().catch(() => {});
  await eventually(info, ready, 30_000);
  return {
    url: `redis+sentinel://${ports.map((port) => `127.0.0.1:${port}`).join(',')}/${SERVICE}`,
    primary,
    async client() {
      const client = new Redis((await primary()).port);
      client.on('error', () => {}); // the command in flight fails as well
      return client;
    },
    async restart(server) {
      const n = servers.indexOf(server);
      servers[n] = await start(n, ['--replicaof', '127.0.0.1', String(await address())], server.port);
    },
    async switchOver() {
      const old = await primary();
      await eventually(
        () => sentinel.call('SENTINEL', 'failover', SERVICE).catch((error: Error) => error.message),
        (reply) => reply === 'OK',
        30_000,
      );
      await eventually(address, (port) => port !== old.port, 30_000);
    },
    async untilPromoted(old) {
      await eventually(address, (port) => port !== old.port, 30_000);
    },
    async [Symbol.asyncDispose]() {
      sentinel.disconnect();
      await Promise.all(processes.map((process) => process.kill()));
      await Promise.all(servers.map((server) => server.kill()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}
