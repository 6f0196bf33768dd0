import type { StrategyFault } from './strategy-fault.ts';

export const postgresSyncPromoted: StrategyFault = {
  name: 'postgres-sync-promoted',
  title: 'synchronous standby promoted',
  happens: 'The primary of Postgres dies, and its synchronous standby is promoted 2 s later.',
  group: 'synchronous-standby',
  strike: ({ postgres }) => postgres.kill(),
  heal: async ({ postgres }) => void (await postgres.promoted()),
};
