/** ZooKeeper for the lab: one server, or an ensemble. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { startEnsemble } from './ensemble.ts';
import { clockIn, type LabOptions, type LabServers, lacking, type Node } from './lab-servers.ts';
import { startZookeeper, whyNoZookeeper, type ZookeeperServer } from './zookeeper-server.ts';

const JAVA = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dzookeeper.forceSync=no'];
const SESSIONS = { tickTime: 250, minSessionTimeout: 500, maxSessionTimeout: 60_000 };

export async function openZookeeper({ folder, clock: library, group }: LabOptions): Promise<LabServers> {
  const why = whyNoZookeeper();
  if (why !== null) throw new Error(why);
  const clock = (n: number) => clockIn(library, join(folder, `clock-${n}`));
  const urls = (ports: readonly number[]) => ({
    zookeeperUrl: ports.map((port) => `127.0.0.1:${port}`).join(','),
  });
  const open = (servers: readonly ZookeeperServer[]) => ({
    ...lacking.group,
    nodes: servers.map(nodeOf),
    urls,
    currentUrls: async () => urls(servers.map(({ port }) => port)),
    setClock: (node: number, aheadMs: number) => clock(node).set(aheadMs),
  });
  if (group !== 'ensemble') {
    const server = await startZookeeper(folder, SESSIONS, JAVA, clock(0).environment);
    return { ...open([server]), [Symbol.asyncDispose]: () => server.kill() };
  }
  const ensemble = await startEnsemble(folder, SESSIONS, JAVA, (n) => clock(n).environment);
  return {
    ...open(ensemble.servers),
    leader: () => ensemble.leader(),
    cutOff: async (node) => ensemble.cutOff(node),
    rejoin: async () => ensemble.rejoin(),
    [Symbol.asyncDispose]: () => ensemble[Symbol.asyncDispose](),
  };
}

const nodeOf = (server: ZookeeperServer): Node => ({
  ...lacking.node,
  port: server.port,
  save: async () => {}, // each write is in its log
  kill: () => server.kill(),
  async start(empty) {
    if (empty) await rm(server.data, { recursive: true, force: true });
    await server.start();
  },
});
