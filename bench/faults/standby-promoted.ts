import type { LockFault } from './fault.ts';

export const standbyPromoted: LockFault = {
  name: 'standby-promoted',
  title: 'standby promoted',
  happens:
    'Postgres replicates asynchronously. The primary is cut off before it replicated the lock. The standby is promoted, and the others use it; the holder still reaches the old primary.',
  group: 'standby',
  workMs: 3_000,
  lacks: ({ servers }) => (servers === 'postgres' ? null : 'no standby of Postgres'),
  before: ({ servers }) => servers.stopReplication(),
  async strike({ servers, others }) {
    await servers.cutOff(0);
    const port = await servers.promoted();
    for (const link of others) link.lead(port);
  },
  lastsMs: 3_000,
};
