/** The locks in one Redis that each lack something, on the service's client. */
import { expect, it } from 'vitest';
import { rungs } from '../../src/locks/rungs.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { describeInFull } from '../support/tier.ts';
import { ends, hold, kindOf, once, PATIENCE_MS, renewed } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

for (const { create, description } of rungs)
  lockContract(description, () => redisLocks((context) => create(context)));

const rung = (name: string) => rungs.find(({ description }) => description.name === name)!;

describeInFull('redis-setnx-expire, cut off between SETNX and PEXPIRE', () => {
  it('leaves a lock that never expires', async () => {
    const fixture = await redisLocks((context) => rung('redis-setnx-expire').create(context));
    const [a, b] = [await fixture.process(), await fixture.process()];
    try {
      let isSent = false;
      a.links[0]!.watch = (request) => {
        if (!/pexpire/i.test(request)) return 'pass';
        isSent = true;
        return 'drop';
      };
      const acquiring = a.lock.acquire('cut', once);
      await expect.poll(() => isSent).toBe(true);
      await a.close();
      expect((await acquiring).kind).toBe('unavailable');
      expect(await fixture.redis.pttl('stampede:{cut}:lock')).toBe(-1); // the key exists without expiry
      expect(await kindOf(b, 'cut', { waitMs: 500 })).toBe('contended');
    } finally {
      await b.close();
      await fixture.close();
    }
  });
});

describeInFull('redis-watchdog', () => {
  it('expires the lock of a hung holder, at its cap', async () => {
    const fixture = await redisLocks((context) => rung('redis-watchdog').create(context, 10_000));
    const [a, b] = [await fixture.process(), await fixture.process()];
    try {
      const lease = await hold(a, 'hung', { ttlMs: 6_000 });
      await renewed(lease);
      expect(await kindOf(b, 'hung', { waitMs: PATIENCE_MS })).toBe('held');
      await ends(lease, 'lost');
    } finally {
      await Promise.all([a.close(), b.close()]);
      await fixture.close();
    }
  });
});
