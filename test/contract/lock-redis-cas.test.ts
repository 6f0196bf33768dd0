import { describe, expect, inject, it } from 'vitest';
import { findValkey, whyNoValkey } from '../../lab/servers/valkey.ts';
import { create, description } from '../../src/locks/redis-cas.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { reached } from '../support/caller-clients.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { describeInFull } from '../support/tier.ts';
import { lockContract } from './lock-suite.ts';

const missing = await whyNoValkey();
if (missing === null) lockContract(description, async () => redisLocks(create, await findValkey()));
else describe(`lock redis-cas: ${missing}`, () => it.skip(missing, () => {}));

describeInFull('LOCK=redis-cas on a server without its commands', () => {
  it('names the versions that have them', async ({ skip }) => {
    const redis = await reached(() => openRedis(inject('redisUrl'), () => {}));
    const commands = ['INFO', 'DELIFEQ', 'DELEX'];
    const found = await reached(async () => (await redis.redis.call('COMMAND', commands)) as unknown[]);
    try {
      skip(found.some(Boolean), 'the Redis of this machine has them');
      const refusal = () => create({ redis: redis.locks }).catch(String);
      await expect.poll(refusal).toMatch(/Valkey 9\.0 or later.*Redis 8\.4 or later/);
    } finally {
      await redis.close();
    }
  });
});
