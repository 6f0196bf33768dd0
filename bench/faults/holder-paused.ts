import type { LockFault } from './fault.ts';

export const holderPaused: LockFault = {
  name: 'holder-paused',
  title: 'holder paused',
  happens:
    'The holder is stopped for longer than its lease, then continues: garbage collection, a throttled container, a suspended virtual machine.',
  workMs: 3_000,
  strike: async ({ holder }) => holder.signal('SIGSTOP'),
  lastsMs: 1_800,
  heal: async ({ holder }) => holder.signal('SIGCONT'),
};
