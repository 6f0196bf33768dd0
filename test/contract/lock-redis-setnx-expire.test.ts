import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { LockClients } from '../../lab/clients/lock-clients.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { create, description } from '../../src/locks/rungs/redis-setnx-expire.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { describeInFull } from '../support/tier.ts';
import { kindOf } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => redisLocks(create));

describeInFull('a process that is killed between SETNX and PEXPIRE', () => {
  it('leaves a lock that never expires', async () => {
    const fixture = await redisLocks(create);
    const { redisUrl } = fixture.servers;
    let onPexpire = () => {};
    const pexpire = new Promise<void>((resolve) => {
      onPexpire = resolve;
    });
    const slow = await TcpProxy.open({
      port: Number(new URL(redisUrl).port),
      filter: (chunk) => {
        if (!/pexpire/i.test(chunk.toString('latin1'))) return true;
        onPexpire();
        return false;
      },
    });
    const redis = new Redis(redisUrl);
    const other = await fixture.process();
    await using clients = new LockClients();
    const urls = { redisUrl: slow.through(redisUrl) };
    await clients.send('open', { lock: description.name, urls });
    const holding = clients.send('hold', { resource: 'crash', workMs: 0, patienceMs: 60_000 });
    try {
      await pexpire;
      await clients.kill();
      await expect(holding).rejects.toThrow('SIGKILL');
      await slow.close();
      expect(await redis.pttl('stampede:{crash}:lock')).toBe(-1); // the key exists without expiry
      expect(await kindOf(other, 'crash', { waitMs: 1_000 })).toBe('contended');
    } finally {
      redis.disconnect();
      await other.close();
      await fixture.close();
    }
  });
});
