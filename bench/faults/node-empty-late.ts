import { setTimeout as sleep } from 'node:timers/promises';
import { type LockFault, TTL_MS } from './fault.ts';
import { isQuorum, nodeEmpty } from './node-empty.ts';

export const nodeEmptyLate: LockFault = {
  ...nodeEmpty,
  name: 'node-empty-late',
  title: 'a node back empty, late',
  happens:
    'The same, and the operator restarts the server only after every lease has ended: the delayed restart that Redlock asks for.',
  lacks: isQuorum,
  async strike({ servers: { nodes } }) {
    await nodes[1]!.kill();
    await sleep(1.5 * TTL_MS);
    await nodes[1]!.start(true);
  },
};
