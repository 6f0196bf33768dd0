import type { StrategyFault } from './strategy-fault.ts';

export const redisFull: StrategyFault = {
  name: 'redis-full',
  title: 'Redis out of memory',
  happens: 'Redis has reached `maxmemory` with `noeviction` and refuses writes for 2 s.',
  onOneRedis: true,
  strike: ({ redis }) => redis.setMemory(1),
  heal: ({ redis }) => redis.setMemory(0),
};
