import type { LockFault } from './fault.ts';

export const longWork: LockFault = {
  name: 'long-work',
  title: 'work longer than the lease',
  happens:
    'Nothing fails, and the work takes two and a half times as long as the lease: a slow query, a large order.',
  workMs: 2_500,
  strike: async () => {},
  lastsMs: 0,
};
