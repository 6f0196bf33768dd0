import type { StrategyFault } from './strategy-fault.ts';

export const redisEmptied: StrategyFault = {
  name: 'redis-emptied',
  title: 'Redis back empty',
  happens: 'Redis dies and is back after 2 s without its data.',
  onOneRedis: true,
  strike: ({ redis }) => redis.kill(),
  heal: ({ redis }) => redis.start(true),
};
