import type { LockFault } from './fault.ts';

export const holderKilled: LockFault = {
  name: 'holder-killed',
  title: 'holder killed',
  happens: 'The process that holds the lock dies: out of memory, a deployment, a crash.',
  workMs: 3_000,
  strike: async ({ holder }) => holder.signal('SIGKILL'),
  lastsMs: 0,
};
