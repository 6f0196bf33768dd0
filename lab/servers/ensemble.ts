/**
 * ZooKeeper on three servers, whose connections to one another pass proxies, so that one can be cut off from the others.
 *
 * A server's configuration has its own addresses, and those of the proxies from it to the others. In an election, the server
 * with the larger id connects to the one with the smaller id. The latter would be called back past its proxy, so it finds a
 * closed port, and waits for the call. A server that starts after the election, or rejoins, may wait forever if its id is the
 * smaller one; the others serve.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../src/local/server-process.ts';
import { eventually } from '../kit/eventually.ts';
import { TcpProxy } from '../proxy.ts';
import { startZookeeper, type ZookeeperServer } from './zookeeper-server.ts';

const IDS = [1, 2, 3] as const;
/** A server binds its quorum port only when it leads. On 127.0.0.1 another process may have the port by then. */
const HOST = '127.0.0.2';
/** A privileged port without a listener. */
const CLOSED_PORT = 1;
/** Ticks to connect to a leader, and to be without one. */
const LIMITS = { initLimit: 20, syncLimit: 4 };

/** Wait of a follower for a leader that does not listen yet. */
const PATIENCE_MS = 1_000;

interface Way {
  readonly ids: readonly [number, number];
  readonly proxy: TcpProxy;
}

/**
 * @param settings of each server, as `startZookeeper` takes them
 * @param java further arguments of the virtual machines
 * @param environment additions for a server
 */
export async function startEnsemble(
  folder: string,
  settings: Readonly<Record<string, string | number>>,
  java: readonly string[],
  environment: (server: number) => Readonly<Record<string, string>>,
) {
  const ports = await Promise.all(IDS.map(async () => [await freePort(), await freePort()] as const));
  const ways: Way[] = [];
  const lead = async (from: number, to: number, port: number): Promise<number> => {
    const proxy = await TcpProxy.open({ host: HOST, port, patienceMs: PATIENCE_MS });
    ways.push({ ids: [from, to], proxy });
    return proxy.port;
  };
  const addressOf = async (from: number, to: number): Promise<string> => {
    const [quorum, election] = ports[to - 1]!;
    if (from === to) return `${HOST}:${quorum}:${election}`;
    const toElection = from > to ? await lead(from, to, election) : CLOSED_PORT;
    return `127.0.0.1:${await lead(from, to, quorum)}:${toElection}`;
  };
  const start = async (id: number): Promise<ZookeeperServer> => {
    const own = join(folder, String(id));
    await mkdir(join(own, 'data'), { recursive: true });
    await writeFile(join(own, 'data', 'myid'), `${id}\n`);
    const members = await Promise.all(IDS.map(async (to) => [`server.${to}`, await addressOf(id, to)]));
    const all = { ...settings, ...LIMITS, ...Object.fromEntries(members) };
    return startZookeeper(own, all, java, environment(id - 1));
  };
  const started = await Promise.allSettled(IDS.map(start));
  const servers = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const stop = async (): Promise<void> => {
    await Promise.all(servers.map((server) => server.kill()));
    await Promise.all(ways.map(({ proxy }) => proxy.close()));
  };
  const failed = started.find((one) => one.status === 'rejected');
  if (failed !== undefined) {
    await stop();
    throw failed.reason;
  }
  const leaders = async () => {
    const modes = await Promise.all(servers.map((server) => server.ask('srvr')));
    return modes.flatMap((mode, n) => (mode.includes('Mode: leader') ? [n] : []));
  };
  return {
    servers,
    /** The index of the server that leads. @throws when none does for 90 s */
    leader: async () => (await eventually(leaders, ({ length }) => length === 1))[0]!,
    /** Loses all bytes between a server and the others. Clients still reach the server. */
    cutOff(server: number) {
      for (const { ids, proxy } of ways) if (ids.includes(server + 1)) proxy.set('black-hole');
    },
    /** Ends every cut. */
    rejoin() {
      for (const { proxy } of ways) proxy.set('pass');
    },
    [Symbol.asyncDispose]: stop,
  };
}
