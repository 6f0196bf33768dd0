/** The faults that strike a lock, in the order of the columns. */
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockCell } from '../clients/lock-cells.ts';
import { eventually } from '../kit/eventually.ts';
import type { LinkMode } from '../proxy.ts';
import type { Node } from '../servers/lab-servers.ts';
import { type LockFault, type Scene, TTL_MS } from './fault.ts';

const isQuorum = ({ servers }: LockCell): string | null =>
  servers === 'redis-five' ? null : 'no quorum of independent servers';

const isEnsemble = ({ servers }: LockCell): string | null =>
  servers === 'zookeeper' ? null : 'no ensemble of ZooKeeper';

function setAll(links: Scene['links'], mode: LinkMode): void {
  for (const link of links) link.set(mode);
}

function leadAll(links: Scene['links'], port: number): void {
  for (const link of links) link.lead(port);
}

async function restart(node: Node, empty: boolean): Promise<void> {
  await node.kill();
  await node.start(empty);
}

/** What happens to bytes between A and its servers while the fault lasts. */
const onLinks = (mode: LinkMode): Pick<LockFault, 'strike' | 'heal'> => ({
  strike: async ({ links }) => setAll(links, mode),
  heal: async ({ links }) => setAll(links, 'pass'),
});

/** Leaves A one server of the ensemble, and waits until A is connected. */
async function confine({ links }: Scene, server: number): Promise<void> {
  for (const [n, link] of links.entries()) if (n !== server) link.set('refuse');
  await eventually(
    async () => links[server]!.connections,
    (connections) => connections > 0,
  );
}

const followerOf = (leader: number): number => (leader === 0 ? 1 : 0);

/** A has the lock on two of three nodes; one of them restarts empty. */
const nodeEmpty: LockFault = {
  name: 'node-empty',
  title: 'a node back empty',
  happens:
    'The holder has the lock on two of three independent servers, and one of these restarts empty within the lease of 5 s.',
  leaseMs: 5_000,
  workMs: 5_000,
  lacks: isQuorum,
  async before({ links }) {
    links[2]!.set('refuse');
  },
  strike: ({ servers: { nodes } }) => restart(nodes[1]!, true),
  lastsMs: 0,
};

const standbyPromoted: LockFault = {
  name: 'standby-promoted',
  title: 'standby promoted',
  happens:
    'Postgres replicates asynchronously. The primary is cut off before it replicated the lock. The standby is promoted, and the others use it; the holder still reaches the old primary.',
  group: 'standby',
  workMs: 3_000,
  lacks: ({ servers }) => (servers === 'postgres' ? null : 'no standby of Postgres'),
  before: ({ servers }) => servers.stopReplication(),
  async strike({ servers, others }) {
    await servers.cutOff(0);
    leadAll(others, await servers.promoted());
  },
  lastsMs: 3_000,
};

export const lockFaults: readonly LockFault[] = [
  {
    name: 'holder-killed',
    title: 'holder killed',
    happens: 'The process that holds the lock dies: out of memory, a deployment, a crash.',
    workMs: 3_000,
    strike: async ({ holder }) => holder.signal('SIGKILL'),
    lastsMs: 0,
  },
  {
    name: 'holder-paused',
    title: 'holder paused',
    happens:
      'The holder is stopped for longer than its lease, then continues: garbage collection, a throttled container, a suspended virtual machine.',
    workMs: 3_000,
    lacks: () => (existsSync('/proc/self/stat') ? null : 'no /proc: the pause cannot be seen to begin'),
    strike: ({ holder }) => holder.pause(),
    lastsMs: 1_800,
    heal: async ({ holder }) => holder.signal('SIGCONT'),
  },
  {
    name: 'long-work',
    title: 'work longer than the lease',
    happens:
      'Nothing fails, and the work takes two and a half times as long as the lease: a slow query, a large order.',
    workMs: 2_500,
    strike: async () => {},
    lastsMs: 0,
  },
  {
    name: 'answer-lost',
    title: 'answer lost',
    happens:
      'The server grants the lock, and the answer never arrives: the client does not know whether it holds the lock.',
    workMs: 1_000,
    atAsking: true,
    ...onLinks('lose-replies'),
    lastsMs: 500,
  },
  {
    name: 'network-silent',
    title: 'network silent',
    happens:
      'The network between the holder and the server loses every packet, and no connection closes: a firewall, a broken switch.',
    workMs: 3_600,
    ...onLinks('black-hole'),
    lastsMs: 2_500,
  },
  {
    name: 'server-empty',
    title: 'server back empty',
    happens:
      'The lock’s server restarts without its data: a cache without persistence, a new pod, a lost disk.',
    workMs: 2_500,
    lacks: ({ servers }) =>
      servers === 'postgres'
        ? 'a Postgres without its data is another database'
        : servers === 'redis-five'
          ? 'quorums meet "a node back empty"'
          : null,
    strike: ({ servers: { nodes } }) => restart(nodes[0]!, true),
    lastsMs: 0,
  },
  {
    name: 'server-restarted',
    title: 'server back with its file',
    happens:
      'The lock’s server is killed and restarts with the file that it wrote last. A snapshot of Redis is older than the lock; Postgres and ZooKeeper have a log.',
    workMs: 2_500,
    lacks: ({ servers }) => (servers === 'redis-five' ? 'quorums meet "a node back empty"' : null),
    before: ({ servers: { nodes } }) => nodes[0]!.save(),
    strike: ({ servers: { nodes } }) => restart(nodes[0]!, false),
    lastsMs: 0,
  },
  {
    name: 'split-brain',
    title: 'split brain',
    happens:
      'The primary is cut off before it replicated the lock, and Sentinel promotes a replica, which the others use. The holder still reaches the old primary. `redis-wait` grants nothing before it is replicated, so it is cut off afterwards.',
    group: 'sentinels',
    workMs: 5_000,
    lacks: ({ servers }) =>
      ['redis', 'redis-replica', 'valkey'].includes(servers) ? null : 'no replica that is promoted',
    async before({ lock, servers }) {
      if (lock.servers !== 'redis-replica') await servers.stopReplication();
    },
    async strike({ servers, others }) {
      setAll(others, 'black-hole');
      await servers.cutOff(0);
      leadAll(others, await servers.promoted());
      setAll(others, 'pass');
    },
    lastsMs: 2_000,
    async heal({ servers, others }) {
      // On a slow machine the Sentinels may have begun a second failover, to another replica.
      leadAll(others, await servers.promoted());
    },
  },
  {
    name: 'clock-ahead',
    title: 'clock ahead',
    happens:
      'The server’s clock jumps ahead by more than the lease, and back after a second: a virtual machine that resumes, a time server that is wrong.',
    workMs: 2_500,
    strike: ({ servers }) => servers.setClock(0, 2 * TTL_MS),
    lastsMs: 1_000,
    heal: ({ servers }) => servers.setClock(0, 0),
  },
  nodeEmpty,
  {
    ...nodeEmpty,
    name: 'node-empty-late',
    leaseMs: TTL_MS,
    workMs: 2_500,
    title: 'a node back empty, late',
    happens:
      'The same, and the operator restarts the server only after every lease has ended: the delayed restart that Redlock asks for.',
    lacks: isQuorum,
    async strike({ servers: { nodes } }) {
      await nodes[1]!.kill();
      await sleep(1.5 * TTL_MS);
      await nodes[1]!.start(true);
    },
  },
  /** The holder is on the leader's side, the others are not. */
  {
    name: 'leader-cut',
    title: 'leader cut off',
    happens:
      'The leader of the ensemble is cut off from the other two servers, and the holder reaches this leader alone. The two elect another one.',
    group: 'ensemble',
    workMs: 6_000,
    lacks: isEnsemble,
    async before(scene) {
      const leader = await scene.servers.leader();
      for (const [n, link] of scene.others.entries())
        if (n % scene.links.length === leader) link.set('refuse');
      await confine(scene, leader);
    },
    async strike({ servers }) {
      await servers.cutOff(await servers.leader());
    },
    lastsMs: 4_000,
    async heal({ servers, links, others }) {
      await servers.rejoin();
      setAll([...links, ...others], 'pass');
    },
  },
  {
    name: 'holder-server-cut',
    title: 'the holder’s server cut off',
    happens:
      'The holder is connected to a follower of the ensemble, which is cut off from the other two servers. The holder can reach these.',
    group: 'ensemble',
    workMs: 5_000,
    lacks: isEnsemble,
    before: async (scene) => confine(scene, followerOf(await scene.servers.leader())),
    async strike({ servers, links }) {
      await servers.cutOff(followerOf(await servers.leader()));
      setAll(links, 'pass');
    },
    lastsMs: 3_000,
    heal: ({ servers }) => servers.rejoin(),
  },
  standbyPromoted,
  {
    name: 'synchronous-promoted',
    title: 'synchronous standby promoted',
    happens:
      'Postgres replicates synchronously, so the standby has the lock before the holder. Then the primary is cut off, the standby is promoted, and the others use it; the holder still reaches the old primary.',
    group: 'synchronous-standby',
    workMs: standbyPromoted.workMs,
    lacks: ({ servers }) => (servers === 'postgres' ? null : 'no standby of Postgres'),
    strike: standbyPromoted.strike,
    lastsMs: standbyPromoted.lastsMs,
  },
];
