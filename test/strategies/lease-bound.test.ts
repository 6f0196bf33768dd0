/**
 * The lease of an attempt is as long as its critical section needs, not as LOCK_TTL_MS allows: a replica that is promoted
 * and has missed the release of a lease keeps everybody out until that lease expires.
 */
import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { limits } from '../../src/config/limits.ts';
import { scriptText } from '../../src/locks/adapters/scripts.ts';
import { createRedisLock } from '../../src/locks/redis.ts';
import { buy, createSale } from '../support/client.ts';
import { openReplicated } from '../support/lock-groups.ts';
import { startService } from '../support/service.ts';
import { openTestStores } from '../support/stores.ts';

/** ioredis calls a script by its hash, once it has sent the text. */
const EXIT = createHash('sha1').update(scriptText('lock/reentrant-release')).digest('hex');

it.each(['global-lock', 'segmented-lock'])(
  '%s: a promoted replica that missed the release keeps others out for no longer than the bound',
  async (STRATEGY) => {
    await using stores = await openTestStores();
    const pair = await openReplicated(async ({ redis }) => createRedisLock({ redis }));
    await using _closed = { [Symbol.asyncDispose]: () => pair.close() };
    await using tap = await TcpProxy.open({ port: pair.primary.port });
    const replica = new Redis(pair.replicas[0]!.port);
    const env = { DATABASE_URL: stores.databaseUrl, REDIS_URL: tap.through(pair.primary.url) };
    await using service = await startService({ ...env, STRATEGY, LOCK: 'redis', SEGMENTS: '1' });
    const sale = await createSale(service.url, 10);
    // The first call of a script sends its text; from now on it is known by its hash.
    expect((await buy(service.url, sale.id, 'first')).status).toBeLessThan(300);

    tap.watch = (request) => {
      if (request.includes(EXIT)) pair.replication[0]!.set('black-hole');
      return 'pass';
    };
    expect((await buy(service.url, sale.id, 'second')).status).toBeLessThan(300);
    const keys = (await replica.keys('*:lock')).filter((key) => key.includes(`sale:${sale.id}`));
    expect(keys, 'the replica has the lease').toHaveLength(1);
    const leftMs = await replica.pttl(keys[0]!);
    expect(leftMs).toBeGreaterThan(0);
    expect(leftMs).toBeLessThanOrEqual(limits.attemptLeaseMs);

    await replica.replicaof('NO', 'ONE');
    tap.watch = () => 'pass';
    tap.lead(pair.replicas[0]!.port);
    expect((await buy(service.url, sale.id, 'third')).status).toBeLessThan(300);

    replica.disconnect();
    await service.stop();
  },
);
