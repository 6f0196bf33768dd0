import type { LockFault } from './fault.ts';

export const splitBrain: LockFault = {
  name: 'split-brain',
  title: 'split brain',
  happens:
    'The primary is cut off before it replicated the lock. A replica is promoted, and the others use it; the holder still reaches the old primary. `redis-wait` grants nothing before it is replicated, so it is cut off afterwards.',
  workMs: 2_500,
  lacks: ({ servers }) =>
    servers.startsWith('redis') && servers !== 'redis-five' ? null : 'no replica that is promoted',
  async before({ lock, servers }) {
    if (lock.servers !== 'redis-replica') await servers.stopReplication();
  },
  async strike({ servers, others }) {
    await servers.stopReplication();
    const port = await servers.promote();
    for (const link of others) link.lead(port);
  },
  lastsMs: 2_500,
};
