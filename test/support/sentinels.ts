/**
 * A Redis primary with a replica, and three Sentinels that fail over to it:
 *
 *   services ──▶ Sentinels: where is the primary? ──▶ [link] primary ══replication══▶ [link] replica
 *
 * All others reach a server through its link, a proxy whose address it announces, so that it can be cut off.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { TcpProxy } from '../../bench/kit/proxy.ts';
import { ensureRedisServer, type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { freePort, launch, type ServerProcess } from '../../src/local/server-process.ts';
import { eventually } from './client.ts';

const SERVICE = 'sale-primary';
const SENTINELS = 3;
/** How long a server is silent before a Sentinel calls it down; the field's usual 30 s would be all that a test measures. */
const DOWN_AFTER_MS = 500;
/** Longer than a failover on a slow machine, with a second try of the Sentinels. */
const PATIENCE_MS = 120_000;

export interface Sentinels extends AsyncDisposable {
  /** redis+sentinel://… */
  readonly url: string;
  /** The server that the Sentinels call the primary now. */
  primary(): Promise<RedisServer>;
  /** A client of the primary. The caller disconnects it. */
  client(): Promise<Redis>;
  /** Cuts a server off: what is sent to it, or by it, is lost. */
  cut(server: RedisServer): void;
  /** Stops the first Sentinel of the URL; it is asked first. @returns what lets it continue */
  freezeFirst(): () => void;
  /** Ends the cut. */
  heal(server: RedisServer): void;
  /** From now on the replica gets nothing that the primary writes, and neither of them notices. */
  cutReplication(): Promise<void>;
  /** Starts a killed server again, on its port, as a replica. */
  restart(server: RedisServer): Promise<void>;
  /** Has the Sentinels promote the replica, as an operator does before maintenance, and waits until they have. */
  switchOver(): Promise<void>;
  /** Waits until another server than `old` is the primary. */
  untilPromoted(old: RedisServer): Promise<void>;
}

/** @param failoverTimeoutMs so long the Sentinels leave what `cutReplication` did */
export async function openSentinels(failoverTimeoutMs = 3_000): Promise<Sentinels> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-sentinel-'));
  const { path: program } = await ensureRedisServer();
  const args = ['--appendonly', 'no', '--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];
  const servers: RedisServer[] = [];
  const links: TcpProxy[] = [];
  const linkOf = (server: RedisServer): TcpProxy => links[servers.indexOf(server)]!;
  /** @param primary the port to replicate from; null: none */
  const start = async (n: number, primary: number | null, port?: number): Promise<void> => {
    const server = await startRedisServer({
      folder: path.join(folder, String(n)),
      args,
      ...(port !== undefined && { port }),
    });
    servers[n] = server;
    links[n] ??= await TcpProxy.open({ port: server.port });
    const client = new Redis(server.port);
    await client.config('SET', 'replica-announce-ip', '127.0.0.1', 'replica-announce-port', links[n].port);
    if (primary !== null) await client.replicaof('127.0.0.1', primary);
    client.disconnect();
  };
  await start(0, null);
  await start(1, links[0]!.port);
  const processes: ServerProcess[] = [];
  const ports: number[] = [];
  const replicationLinks: TcpProxy[] = [];
  for (let n = 0; n < SENTINELS; n++) {
    const port = await freePort();
    const file = path.join(folder, `sentinel-${n}.conf`);
    const lines = [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor ${SERVICE} 127.0.0.1 ${links[0]!.port} 2`,
      `sentinel down-after-milliseconds ${SERVICE} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${SERVICE} ${failoverTimeoutMs}`,
    ];
    await writeFile(file, `${lines.join('\n')}\n`);
    const log = path.join(folder, `sentinel-${n}.log`);
    processes.push(
      await launch({ command: program, args: [file, '--sentinel'], cwd: folder, log }, 'redis-failed'),
    );
    ports.push(port);
  }
  const sentinel = new Redis({ port: ports.at(-1)!, lazyConnect: true, retryStrategy: () => 100 });
  sentinel.on('error', () => {}); // it may not listen yet
  const address = async (): Promise<number> => {
    const reply = (await sentinel.call('SENTINEL', 'get-master-addr-by-name', SERVICE)) as string[] | null;
    return Number(reply?.[1]);
  };
  const primary = async (): Promise<RedisServer> => {
    const port = await address();
    return servers.find((server) => linkOf(server).port === port)!;
  };
  const untilPromoted = async (old: RedisServer): Promise<void> => {
    await eventually(address, (port) => port !== linkOf(old).port, PATIENCE_MS);
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
  await eventually(info, ready, PATIENCE_MS);
  return {
    url: `redis+sentinel://${ports.map((port) => `127.0.0.1:${port}`).join(',')}/${SERVICE}`,
    primary,
    async client() {
      const client = new Redis((await primary()).port);
      client.on('error', () => {}); // the command in flight fails as well
      return client;
    },
    cut: (server) => linkOf(server).set('black-hole'),
    freezeFirst() {
      process.kill(processes[0]!.pid, 'SIGSTOP');
      return () => process.kill(processes[0]!.pid, 'SIGCONT');
    },
    heal: (server) => linkOf(server).set('pass'),
    async cutReplication() {
      const old = await primary();
      const link = await TcpProxy.open({ port: old.port });
      replicationLinks.push(link);
      const replica = new Redis(servers.find((server) => server !== old)!.port);
      await replica.replicaof('127.0.0.1', link.port);
      const linked = [`master_port:${link.port}`, 'master_link_status:up'];
      await eventually(
        () => replica.info('replication'),
        (info) => linked.every((line) => info.includes(line)),
      );
      replica.disconnect();
      link.set('lose-replies');
    },
    async restart(server) {
      await start(servers.indexOf(server), await address(), server.port);
    },
    async switchOver() {
      const before = await address();
      // A Sentinel refuses while it knows no good replica, and gives up when the replica is slow: it is asked again.
      await eventually(
        async () => {
          const now = await address();
          if (now === before) await sentinel.call('SENTINEL', 'failover', SERVICE).catch(() => {});
          return now;
        },
        (port) => port !== before,
        PATIENCE_MS,
      );
    },
    untilPromoted,
    async [Symbol.asyncDispose]() {
      sentinel.disconnect();
      await Promise.all([...links, ...replicationLinks].map((link) => link.close()));
      await Promise.all(processes.map((one) => one.kill()));
      await Promise.all(servers.map((server) => server.kill()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}
