/** A Redis Cluster on the loopback: masters share the slots, and have the same number of replicas. For suites, and for tests. */
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { LocalStoreError } from '../../src/local/errors.ts';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { freePort } from '../../src/local/server-process.ts';
import { eventually } from '../kit/eventually.ts';
import { eagerPrimary } from './redis.ts';

export interface ClusterMember {
  readonly id: string;
  /** Connects past the cluster and its ways; reconnects. */
  readonly client: Redis;
  /** Where all others reach it. */
  readonly port: number;
  readonly busPort: number;
  /** The process that runs now. */
  pid(): number;
  kill(): Promise<void>;
  /** Starts a killed server again, on its port. */
  restart(): Promise<void>;
}

/**
 * Opens the ways to a member, which announces their ports.
 * @param address source of the member's connections to others
 */
export type Ways = (
  port: number,
  busPort: number,
  address: string,
) => Promise<Pick<ClusterMember, 'port' | 'busPort'>>;

const SLOTS = 16_384;
const PATIENCE_MS = 60_000;
const RECONNECT_MS = 50;
const ARGS = [...eagerPrimary, '--repl-ping-replica-period', '1', '--cluster-enabled', 'yes'];
/** Where there are replicas, one is promoted when its master has been silent for so long, however old its data is. */
export const NODE_TIMEOUT_MS = 1_000;
const FAILOVER = ['--cluster-node-timeout', `${NODE_TIMEOUT_MS}`, '--cluster-replica-validity-factor', '0'];

export type RedisCluster = Awaited<ReturnType<typeof startRedisCluster>>;

/**
 * @param replicas of each master
 * @param ways to the members; by default others reach them directly
 */
export async function startRedisCluster(folder: string, masters: number, replicas: number, ways?: Ways) {
  const more = replicas > 0 ? FAILOVER : [];
  const members: ClusterMember[] = [];
  const stop = async () => {
    for (const { client } of members) client.disconnect();
    await Promise.all(members.map((member) => member.kill()));
  };
  try {
    for (let n = 0; n < masters * (1 + replicas); n++)
      members.push(await openMember(join(folder, String(n)), more, `127.0.0.${n + 2}`, ways));
    await form(members, masters);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    /** redis+cluster://… */
    url: `redis+cluster://${members.map(({ port }) => `127.0.0.1:${port}`).join(',')}`,
    /** The masters first. */
    members: members as readonly ClusterMember[],
    /** Waits until `holds` is true for all members. */
    everywhere: <T>(probe: (of: ClusterMember) => Promise<T>, holds: (value: T) => boolean) =>
      everywhere(members, probe, holds),
    [Symbol.asyncDispose]: stop,
  };
}

const PORT_TRIES = 5;

/** Another process may take a port that was free. */
async function openMember(...given: Parameters<typeof openMemberOnce>): Promise<ClusterMember> {
  for (let tries = 1; ; tries++) {
    try {
      return await openMemberOnce(...given);
    } catch (error) {
      const isTaken = error instanceof LocalStoreError && error.code === 'port-taken';
      if (!isTaken || tries === PORT_TRIES) throw error;
    }
  }
}

async function openMemberOnce(
  folder: string,
  more: readonly string[],
  address: string,
  ways?: Ways,
): Promise<ClusterMember> {
  const port = await freePort();
  const busPort = await freePort();
  const args = [...ARGS, ...more, '--cluster-port', String(busPort)];
  const announced = await ways?.(port, busPort, address);
  if (announced !== undefined) {
    args.push('--bind-source-addr', address, '--cluster-announce-ip', '127.0.0.1');
    args.push('--cluster-announce-port', String(announced.port));
    args.push('--cluster-announce-bus-port', String(announced.busPort));
  }
  let server: RedisServer = await startRedisServer({ folder, args, port });
  const client = new Redis(port, { retryStrategy: () => RECONNECT_MS });
  client.on('error', () => {}); // the command in flight fails as well
  return {
    ...{ id: await client.cluster('MYID'), client, port, busPort },
    ...announced,
    pid: () => server.pid,
    kill: () => server.kill(),
    async restart() {
      server = await startRedisServer({ folder, args, port });
    },
  };
}

async function form(members: readonly ClusterMember[], masters: number): Promise<void> {
  const share = SLOTS / masters;
  for (const [n, { client }] of members.entries()) {
    await client.cluster('SET-CONFIG-EPOCH', n + 1);
    const range = [Math.floor(n * share), Math.floor((n + 1) * share) - 1];
    if (n < masters) await client.call('CLUSTER', 'ADDSLOTSRANGE', ...range);
  }
  for (const { port, busPort } of members.slice(1))
    await members[0]!.client.call('CLUSTER', 'MEET', '127.0.0.1', port, busPort);
  const info = ({ client }: ClusterMember) => client.call('CLUSTER', 'INFO') as Promise<string>;
  await everywhere(members, info, (text) => text.includes(`cluster_known_nodes:${members.length}`));
  const rest = members.slice(masters);
  for (const [n, { client }] of rest.entries()) await client.cluster('REPLICATE', members[n % masters]!.id);
  await everywhere(members, info, (text) => text.includes('cluster_state:ok'));
  const nodes = ({ client }: ClusterMember) => client.cluster('NODES') as Promise<string>;
  await everywhere(members, nodes, (text) => text.split(/slave/).length - 1 === rest.length);
}

async function everywhere<T>(
  members: readonly ClusterMember[],
  probe: (of: ClusterMember) => Promise<T>,
  holds: (value: T) => boolean,
): Promise<void> {
  await eventually(
    () => Promise.all(members.map((member) => probe(member).catch(() => null))),
    (all) => all.every((value) => value !== null && holds(value)),
    PATIENCE_MS,
  );
}
