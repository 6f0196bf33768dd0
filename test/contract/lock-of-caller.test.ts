/** The lock `redis` on a caller's client of either library, as the package of the locks makes it. */
import { describe } from 'vitest';
import { create, description } from '../../src/locks/redis.ts';
import { byIoredis, byNodeRedis } from '../support/caller-clients.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { contractParts } from '../support/tier.ts';
import { lockContract } from './lock-suite.ts';

const parts = contractParts('lock-of-caller');

describe.each([
  ['ioredis', byIoredis],
  ['node-redis', byNodeRedis],
] as const)('on a client of %s', (_, connect) => {
  lockContract(description, () => redisLocks(create, undefined, undefined, connect), parts);
});
