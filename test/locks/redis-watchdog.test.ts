/** What the contract tests leave out of `redis-watchdog`: an acquire that takes most of the lease. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { type Call, type RedisClient, type Reply, RequestError } from '../../src/locks/clients.ts';
import { create } from '../../src/locks/rungs/redis-watchdog.ts';
import { ends, held, kindOf, PATIENCE_MS, renewed } from '../contract/lock-steps.ts';
import { openOne, processOnOne } from '../support/lock-groups.ts';

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

it('renews at once when a lost reply took most of the lease', async () => {
  const renewals: unknown[] = [];
  const group = await openOne(({ redis }) => create({ redis: losing(redis, renewals) }));
  const [a, b] = [await group.process(), await processOnOne(group.ports[0]!, create)];
  const lease = await held(a.lock, 'late', { ttlMs: TTL_MS, waitMs: PATIENCE_MS });
  expect(renewals.filter((token) => token === lease.token)).toHaveLength(1); // no timer has fired since the grant
  await renewed(lease);
  expect(await kindOf(b, 'late', { waitMs: TTL_MS })).toBe('contended');
  await ends(lease, 'released');
  for (const process of [a, b]) await process.close();
  await group.close();
});
