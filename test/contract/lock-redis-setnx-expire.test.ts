import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { create, description } from '../../src/locks/rungs/redis-setnx-expire.ts';
import { redisLocks } from '../support/lock-process.ts';
import { TcpProxy } from '../support/proxy.ts';
import { describeInFull } from '../support/tier.ts';
import { kindOf } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => redisLocks(create));

const worker = fileURLToPath(new URL('../support/lock-worker.ts', import.meta.url));

describeInFull('a process that is killed between SETNX and PEXPIRE', () => {
  it('leaves a lock that never ends', async () => {
    const fixture = await redisLocks(create);
    const { redisUrl } = fixture.servers;
    let asked = () => {};
    const pexpire = new Promise<void>((resolve) => {
      asked = resolve;
    });
    const slow = await TcpProxy.open({
      port: Number(new URL(redisUrl).port),
      filter: (chunk) => {
        if (!/pexpire/i.test(chunk.toString('latin1'))) return true;
        asked();
        return false;
      },
    });
    const redis = new Redis(redisUrl);
    const other = await fixture.process();
    const args = ['--import', 'tsx', worker, description.name, slow.through(redisUrl), 'crash', '1'];
    const child = spawn(process.execPath, args, { stdio: 'ignore' });
    const ended = once(child, 'exit');
    try {
      await pexpire;
      child.kill('SIGKILL');
      expect(await ended).toEqual([null, 'SIGKILL']);
      await slow.close();
      expect(await redis.pttl('stampede:{crash}:lock')).toBe(-1); // it is there, and has no expiry
      expect(await kindOf(other, 'crash', { waitMs: 1_000 })).toBe('contended');
    } finally {
      child.kill('SIGKILL');
      redis.disconnect();
      await other.close();
      await fixture.close();
    }
  });
});
