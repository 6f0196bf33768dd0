import { expect, it } from 'vitest';
import { create, description } from '../../src/locks/rungs/redis-watchdog.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { describeInFull } from '../support/tier.ts';
import { hold, kindOf } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => redisLocks(create));

describeInFull('the cap of the watchdog', () => {
  it('expires the lock of a hung holder', async () => {
    const fixture = await redisLocks((context) => create(context, 1_500));
    const [a, b] = [await fixture.process(), await fixture.process()];
    try {
      const startMs = performance.now();
      const lease = await hold(a, 'hung', { ttlMs: 600 });
      expect(await kindOf(b, 'hung', { waitMs: 10_000 })).toBe('held');
      expect(performance.now() - startMs).toBeGreaterThan(900); // it was renewed
      expect(await lease.release()).toBe('lost');
    } finally {
      await Promise.all([a.close(), b.close()]);
      await fixture.close();
    }
  });
});
