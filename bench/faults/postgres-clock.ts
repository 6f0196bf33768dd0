import type { StrategyFault } from './strategy-fault.ts';

export const postgresClock: StrategyFault = {
  name: 'postgres-clock',
  title: 'clock of Postgres ahead',
  happens: 'The clock of Postgres jumps a minute ahead, and back after 2 s.',
  strike: ({ postgres }) => postgres.setClock(0, 60_000),
  heal: ({ postgres }) => postgres.setClock(0, 0),
};
