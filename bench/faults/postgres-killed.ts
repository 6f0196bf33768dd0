import type { StrategyFault } from './strategy-fault.ts';

export const postgresKilled: StrategyFault = {
  name: 'postgres-killed',
  title: 'Postgres killed',
  happens: 'Postgres dies with transactions in progress, and is back after 2 s and its crash recovery.',
  strike: ({ postgres }) => postgres.kill(),
  heal: ({ postgres }) => postgres.start(false),
};
