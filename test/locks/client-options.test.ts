/** Options of a caller's client behind Sentinels and in a cluster. Of one server: test/contract/lock-of-caller.test.ts. */
import { Cluster } from 'ioredis';
import { expect, it } from 'vitest';
import { NEVER_MS, openSentinels } from '../../lab/servers/sentinels.ts';
import { redisLock } from '../../src/locks/index.ts';
import { held, PATIENCE_MS, renewed } from '../contract/lock-steps.ts';
import { ioredisWithOptions, nodeRedisWithOptions, reached } from '../support/caller-clients.ts';
import { openCluster } from '../support/servers.ts';

/** Of ioredis 5, whose duplicates lack the options of the nodes that are not repeated. */
class Cluster5 extends Cluster {
  override duplicate(...[nodes = [], options = {}]: Parameters<Cluster['duplicate']>): Cluster {
    const { startupNodes } = this as unknown as { startupNodes: typeof nodes };
    const merged = { ...this.options, ...options } as NonNullable<typeof options>;
    return new Cluster(nodes.length > 0 ? nodes : startupNodes, merged);
  }
}

it('a lock on a cluster has the password of its client of ioredis 5 and 6', async () => {
  const password = 'secret';
  await using cluster = await openCluster();
  const nodes = cluster.members.map(({ port }) => port);
  for (const { client } of cluster.members) await client.config('SET', 'requirepass', password);
  for (const Client of [Cluster5, Cluster]) {
    const open = () =>
      redisLock({ redis: new Client(nodes, { lazyConnect: true, redisOptions: { password } }) });
    const lock = await reached(open);
    const lease = await held(lock, Client.name);
    expect(await lease.release()).toBe('released');
    await lock.close();
  }
});

it.each(['sentinels', 'cluster'])(
  'behind %s, tokens are numbers that grow, and a lease is renewed',
  async (kind) => {
    await using servers = await (kind === 'cluster'
      ? openCluster()
      : openSentinels({ downAfterMs: NEVER_MS }));
    for (const clientOf of [ioredisWithOptions, nodeRedisWithOptions]) {
      const lock = await reached(() => redisLock({ redis: clientOf(servers.url) }));
      const first = await held(lock, 'r');
      const next = held(lock, 'r', { ttlMs: 9_000, waitMs: PATIENCE_MS }); // which the first may hand over
      await first.release();
      const second = await next;
      expect(second.fencingToken).toBeTypeOf('number');
      expect(second.fencingToken).toBeGreaterThan(first.fencingToken!);
      await renewed(second);
      expect(await second.release()).toBe('released');
      await lock.close();
    }
  },
);
