import type { LockFault } from './fault.ts';

export const serverRestarted: LockFault = {
  name: 'server-restarted',
  title: 'server back with its file',
  happens:
    'The lock’s server is killed and restarts with the file that it wrote last. A snapshot of Redis is older than the lock; Postgres and ZooKeeper have a log.',
  workMs: 2_500,
  lacks: ({ servers }) => (servers === 'redis-five' ? 'quorums meet "a node back empty"' : null),
  before: ({ servers: { nodes } }) => nodes[0]!.save(),
  async strike({ servers: { nodes } }) {
    await nodes[0]!.kill();
    await nodes[0]!.start(false);
  },
  lastsMs: 0,
};
