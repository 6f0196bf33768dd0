import type { LockFault } from './fault.ts';
import { standbyPromoted } from './standby-promoted.ts';

export const synchronousPromoted: LockFault = {
  name: 'synchronous-promoted',
  title: 'synchronous standby promoted',
  happens:
    'Postgres replicates synchronously, so the standby has the lock before the holder. Then the primary is cut off, the standby is promoted, and the others use it; the holder still reaches the old primary.',
  group: 'synchronous-standby',
  workMs: standbyPromoted.workMs,
  lacks: ({ servers }) => (servers === 'postgres' ? null : 'no standby of Postgres'),
  strike: standbyPromoted.strike,
  lastsMs: standbyPromoted.lastsMs,
};
