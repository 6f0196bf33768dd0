import type { LockCell } from '../kit/lock-cells.ts';
import type { LockFault } from './fault.ts';

export const isQuorum = ({ servers }: LockCell): string | null =>
  servers === 'redis-five' ? null : 'no quorum of independent servers';

/** A has two of three nodes; then one of them forgets it. */
export const nodeEmpty: LockFault = {
  name: 'node-empty',
  title: 'a node back empty',
  happens:
    'The holder has the lock on two of three independent servers, and one of these restarts empty within the lease.',
  workMs: 2_500,
  lacks: isQuorum,
  async before({ links }) {
    links[2]!.set('refuse');
  },
  async strike({ servers: { nodes } }) {
    await nodes[1]!.kill();
    await nodes[1]!.start(true);
  },
  lastsMs: 0,
};
