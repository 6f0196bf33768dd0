/** What the locks make of a caller's client: its password in a cluster, a server that became a replica. Options: test/support/caller-clients.ts. */
import { Cluster, Redis } from 'ioredis';
import { createClient } from 'redis';
import { expect, it } from 'vitest';
import { redisLock } from '../../src/locks/index.ts';
import { held, once } from '../contract/lock-steps.ts';
import { reached } from '../support/caller-clients.ts';
import { OwnRedis, openCluster } from '../support/servers.ts';

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

it.each(['ioredis', 'node-redis'])('a lock on %s leaves a server that became a replica', async (kind) => {
  await using server = await OwnRedis.open();
  const { url } = server;
  const redis = kind === 'ioredis' ? new Redis(url, { lazyConnect: true }) : createClient({ url });
  const lock = await redisLock({ redis }); // it opens its own connections
  const other = new Redis(url);
  const connections = async () =>
    Number(/total_connections_received:(\d+)/.exec(await other.info('stats'))![1]);
  const before = await connections();
  await other.replicaof('127.0.0.1', '1');
  expect(await lock.acquire('r', once)).toMatchObject({ kind: 'unavailable', reason: 'redis-readonly' });
  await expect.poll(connections).toBeGreaterThan(before);
  await other.replicaof('NO', 'ONE');
  await lock.close();
  other.disconnect();
});
