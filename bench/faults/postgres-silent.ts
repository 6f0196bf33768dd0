import type { StrategyFault } from './strategy-fault.ts';

export const postgresSilent: StrategyFault = {
  name: 'postgres-silent',
  title: 'Postgres silent',
  happens: 'The network to Postgres loses every packet for 2 s, and no connection closes.',
  strike: async ({ links }) => links.postgres.set('black-hole'),
  heal: async ({ links }) => links.postgres.set('pass'),
};
