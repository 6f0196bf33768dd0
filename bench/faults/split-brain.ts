import type { LockFault } from './fault.ts';

export const splitBrain: LockFault = {
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
    for (const link of others) link.set('black-hole');
    await servers.cutOff(0);
    const port = await servers.promoted();
    for (const link of others) {
      link.lead(port);
      link.set('pass');
    }
  },
  lastsMs: 2_000,
};
