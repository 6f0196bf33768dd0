/** The password of a caller's client in a cluster. Other options: test/support/caller-clients.ts. */
import { Cluster } from 'ioredis';
import { expect, it } from 'vitest';
import { redisLock } from '../../src/locks/index.ts';
import { held } from '../contract/lock-steps.ts';
import { reached } from '../support/caller-clients.ts';
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
