import type { StrategyFault } from './strategy-fault.ts';

export const redisKilled: StrategyFault = {
  name: 'redis-killed',
  title: 'Redis killed',
  happens: 'Redis dies and is back after 2 s with its append-only file.',
  onOneRedis: true,
  strike: ({ redis }) => redis.kill(),
  heal: ({ redis }) => redis.start(false),
};
