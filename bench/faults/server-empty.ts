import type { LockFault } from './fault.ts';

export const serverEmpty: LockFault = {
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
  async strike({ servers: { nodes } }) {
    await nodes[0]!.kill();
    await nodes[0]!.start(true);
  },
  lastsMs: 0,
};
