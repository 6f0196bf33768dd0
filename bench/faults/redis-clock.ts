import type { StrategyFault } from './strategy-fault.ts';

export const redisClock: StrategyFault = {
  name: 'redis-clock',
  title: 'clock of Redis ahead',
  happens: 'The clock of Redis jumps a minute ahead, and back after 2 s.',
  onOneRedis: true,
  strike: ({ redis }) => redis.setClock(0, 60_000),
  heal: ({ redis }) => redis.setClock(0, 0),
};
