import type { StrategyFault } from './strategy-fault.ts';

export const diskFull: StrategyFault = {
  name: 'disk-full',
  title: 'Postgres out of disk',
  happens:
    'The disk of Postgres is full. First its tables cannot grow, and after a second its write-ahead log cannot, either, which ends it. Room is made 2 s later, and Postgres is started again.',
  smallDisk: true,
  strike: ({ postgres }) => postgres.setDisk(true),
  heal: ({ postgres }) => postgres.setDisk(false),
};
