/** The locks in one Redis that each lack something, on the service's client. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { LockClients } from '../../lab/clients/lock-clients.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { type Call, type RedisClient, type Reply, RequestError } from '../../src/locks/clients.ts';
import * as confirmed from '../../src/locks/rungs/redis-confirmed.ts';
import * as noOwner from '../../src/locks/rungs/redis-no-owner.ts';
import * as owner from '../../src/locks/rungs/redis-owner.ts';
import * as setnx from '../../src/locks/rungs/redis-setnx.ts';
import * as setnxExpire from '../../src/locks/rungs/redis-setnx-expire.ts';
import * as watchdog from '../../src/locks/rungs/redis-watchdog.ts';
import { processOnOne, redisLocks } from '../support/lock-groups.ts';
import { describeInFull } from '../support/tier.ts';
import { ends, held, hold, kindOf, PATIENCE_MS, renewed } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

for (const { create, description } of [setnx, setnxExpire, noOwner, owner, confirmed, watchdog])
  lockContract(description, () => redisLocks(create));

describeInFull('a process of redis-setnx-expire that is killed between SETNX and PEXPIRE', () => {
  it('leaves a lock that never expires', async () => {
    const fixture = await redisLocks(setnxExpire.create);
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
    await clients.send('open', { lock: setnxExpire.description.name, urls });
    const holding = clients.send('hold', { resource: 'crash', workMs: 0, patienceMs: 60_000 });
    try {
      await pexpire;
      await clients.kill();
      await expect(holding).rejects.toThrow('SIGKILL');
      await slow.close();
      expect(await redis.pttl('stampede:{crash}:lock')).toBe(-1); // the key exists without expiry
      expect(await kindOf(other, 'crash', { waitMs: 500 })).toBe('contended');
    } finally {
      redis.disconnect();
      await other.close();
      await fixture.close();
    }
  });
});

const TTL_MS = 10_000;

/** Loses the first reply to each token, and says so only when 40 % of its lease are over. */
const losing = (redis: RedisClient, renewals: unknown[], seen = new Set<unknown>()): RedisClient => ({
  ...redis,
  async send(command, ...given) {
    const reply = redis.send(command, ...given);
    const [, token] = given;
    if (command !== 'SET' || seen.has(token)) return reply;
    seen.add(token);
    await Promise.allSettled([reply, sleep(TTL_MS * 0.4)]);
    throw new RequestError({ kind: 'unknown', reason: 'lost' });
  },
  script<R extends Reply>(name: string, numberOfKeys: number): Call<R> {
    const call = redis.script<R>(name, numberOfKeys);
    return (...given) => {
      if (name === 'lock/renew') renewals.push(given[1]);
      return call(...given);
    };
  },
});

describeInFull('redis-watchdog', () => {
  it('expires the lock of a hung holder, at its cap', async () => {
    const fixture = await redisLocks((context) => watchdog.create(context, 10_000));
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

  it('renews at once when a lost reply took most of the lease', async () => {
    const renewals: unknown[] = [];
    const group = await redisLocks(({ redis }) => watchdog.create({ redis: losing(redis, renewals) }));
    const [a, b] = [
      await group.process(),
      await processOnOne(Number(new URL(group.servers.redisUrl).port), watchdog.create),
    ];
    const lease = await held(a.lock, 'late', { ttlMs: TTL_MS, waitMs: PATIENCE_MS });
    expect(renewals.filter((token) => token === lease.token)).toHaveLength(1); // no timer has fired since the grant
    await renewed(lease);
    expect(await kindOf(b, 'late', { waitMs: TTL_MS })).toBe('contended');
    await ends(lease, 'released');
    for (const process of [a, b]) await process.close();
    await group.close();
  });
});
