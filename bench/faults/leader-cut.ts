import { eventually } from '../kit/eventually.ts';
import type { LockCell } from '../kit/lock-cells.ts';
import type { LockFault, Scene } from './fault.ts';

export const isEnsemble = ({ servers }: LockCell): string | null =>
  servers === 'zookeeper' ? null : 'no ensemble of ZooKeeper';

/** Leaves A one server of the ensemble, and waits until it is connected. */
export async function confine({ links }: Scene, server: number): Promise<void> {
  for (const [n, link] of links.entries()) if (n !== server) link.set('refuse');
  await eventually(
    async () => links[server]!.connections,
    (connections) => connections > 0,
  );
}

/** The holder is on the leader's side, the others are not. */
export const leaderCut: LockFault = {
  name: 'leader-cut',
  title: 'leader cut off',
  happens:
    'The leader of the ensemble is cut off from the other two servers, and the holder reaches this leader alone. The two elect another one.',
  group: 'ensemble',
  workMs: 6_000,
  lacks: isEnsemble,
  async before(scene) {
    const leader = await scene.servers.leader();
    for (const [n, link] of scene.others.entries()) if (n % scene.links.length === leader) link.set('refuse');
    await confine(scene, leader);
  },
  async strike({ servers }) {
    await servers.cutOff(await servers.leader());
  },
  lastsMs: 4_000,
  async heal({ servers, links, others }) {
    await servers.rejoin();
    for (const link of [...links, ...others]) link.set('pass');
  },
};
