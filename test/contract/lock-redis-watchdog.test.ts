import { expect, it } from 'vitest';
import { create, description } from '../../src/locks/rungs/redis-watchdog.ts';
import { renewed } from '../locks/lock-checks.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { describeInFull } from '../support/tier.ts';
import { ends, hold, kindOf, PATIENCE_MS } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => redisLocks(create));

describeInFull('the cap of the watchdog', () => {
  it('expires the lock of a hung holder', async () => {
    const fixture = await redisLocks((context) => create(context, 20_000));
    const [a, b] = [await fixture.process(), await fixture.process()];
    try {
      const lease = await hold(a, 'hung', { ttlMs: 10_000 });
      await renewed(lease);
      expect(await kindOf(b, 'hung', { waitMs: PATIENCE_MS })).toBe('held');
      await ends(lease, 'lost');
    } finally {
      await Promise.all([a.close(), b.close()]);
      await fixture.close();
    }
  });
});
