import { setTimeout as sleep } from 'node:timers/promises';
import type { StrategyFault } from './strategy-fault.ts';

/** The last writes reach no replica. */
const LAG_MS = 200;

export const redisFailedOver: StrategyFault = {
  name: 'redis-failed-over',
  title: 'Redis failed over',
  happens:
    'The primary of Redis is cut off, and Sentinel, or the cluster, promotes a replica that misses the last writes.',
  group: 'sentinels',
  async strike({ redis }) {
    await redis.stopReplication();
    await sleep(LAG_MS);
    await redis.cutOff(0);
  },
  async heal({ redis }) {
    await redis.promoted();
    await redis.rejoin();
  },
};
