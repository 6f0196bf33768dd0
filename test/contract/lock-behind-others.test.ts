/** The lock of the package where a client learns from Sentinels, or from a cluster, which server has a key. */
import { describe } from 'vitest';
import { redisLock } from '../../src/locks/index.ts';
import { description } from '../../src/locks/redis.ts';
import { ioredis, nodeRedis, type Ways } from '../support/caller-clients.ts';
import { redisLocksBehind } from '../support/lock-groups.ts';
import { bySize } from '../support/tier.ts';
import { lockContract } from './lock-suite.ts';

const CLIENTS = { ioredis, 'node-redis': nodeRedis };
const isNightly = bySize({ core: false, full: false, nightly: true });
const PARTS = { core: true, rest: isNightly, timed: true, isOfCaller: true };

describe.each(['sentinels', 'cluster'] as const)('behind %s', (kind) => {
  describe.each(Object.entries(CLIENTS))('with a client of %s', (_, clientOf) => {
    const open = async (url: string, ways: Ways) => ({
      lock: await redisLock({ redis: clientOf(url, ways) }),
    });
    lockContract(description, () => redisLocksBehind(kind, open), PARTS);
  });
});
