import type { StrategyFault } from './strategy-fault.ts';

export const redisSilent: StrategyFault = {
  name: 'redis-silent',
  title: 'Redis silent',
  happens: 'The network to Redis loses every packet for 2 s, and no connection closes.',
  strike: async ({ links }) => links.redis.set('black-hole'),
  heal: async ({ links }) => links.redis.set('pass'),
};
