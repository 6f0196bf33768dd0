import { setTimeout as sleep } from 'node:timers/promises';
import type { StrategyFault } from './strategy-fault.ts';

/** What is committed in this time is lost. */
const LAG_MS = 500;

export const postgresPromoted: StrategyFault = {
  name: 'postgres-promoted',
  title: 'standby promoted',
  happens:
    'Postgres replicates asynchronously. The primary dies half a second after the standby got its last commit, and the standby is promoted 2 s later.',
  group: 'standby',
  loses: true,
  async strike({ postgres }) {
    await postgres.stopReplication();
    await sleep(LAG_MS);
    await postgres.kill();
  },
  heal: async ({ postgres }) => void (await postgres.promoted()),
};
