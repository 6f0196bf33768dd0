import type { LockFault } from './fault.ts';
import { confine, isEnsemble } from './leader-cut.ts';

const followerOf = (leader: number): number => (leader === 0 ? 1 : 0);

export const holderServerCut: LockFault = {
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
    for (const link of links) link.set('pass');
  },
  lastsMs: 3_000,
  heal: ({ servers }) => servers.rejoin(),
};
