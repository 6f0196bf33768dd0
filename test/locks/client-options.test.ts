/** The options of a caller's client change neither the names of the locks' keys nor what the locks read in replies. */
import { Cluster, type Redis } from 'ioredis';
import { RESP_TYPES } from 'redis';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { NEVER_MS, openSentinels } from '../../lab/servers/sentinels.ts';
import { type CallersRedis, redisLock, redlock } from '../../src/locks/index.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { held, PATIENCE_MS, renewed, stopTimers } from '../contract/lock-steps.ts';
import { ioredis, nodeRedis, reached } from '../support/caller-clients.ts';
import { opened } from '../support/opened.ts';
import { OwnRedis, openCluster } from '../support/servers.ts';

const server = opened(() => OwnRedis.open());
const sentinels = opened(() => openSentinels({ downAfterMs: NEVER_MS }));
const cluster = opened(openCluster);
const KINDS = [
  ['one server', server],
  ['Sentinels', sentinels],
  ['a cluster', cluster],
] as const;

const NAMED = { keyPrefix: 'app:', lazyConnect: true };

function ioredisWithOptions(url: string): CallersRedis {
  const client = ioredis(url);
  if (!(client instanceof Cluster)) return client.duplicate({ ...NAMED, stringNumbers: true });
  return client.duplicate([], { ...NAMED, redisOptions: { stringNumbers: true } });
}

const nodeRedisWithOptions = (url: string): CallersRedis =>
  nodeRedis(url).withTypeMapping({
    [RESP_TYPES.NUMBER]: String,
    [RESP_TYPES.SIMPLE_STRING]: Buffer,
    [RESP_TYPES.BLOB_STRING]: Buffer,
  });

const ends: (() => unknown)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const end of ends.splice(0).reverse()) await end();
});

async function lockOn(open: () => CallersRedis): Promise<Lock> {
  const lock = await reached(() => redisLock({ redis: open() }));
  ends.push(() => lock.close());
  return lock;
}

/** A client without these options. */
function watching(url: string): Redis | Cluster {
  const client = ioredis(url);
  ends.push(() => client.disconnect());
  return client;
}

let resources = 0;
const newResource = () => `resource-${++resources}`;
const WAITS = { ttlMs: 5 * PATIENCE_MS, waitMs: PATIENCE_MS };

describe.each([
  ['ioredis', ioredisWithOptions],
  ['node-redis', nodeRedisWithOptions],
] as const)('with the options of a client of %s', (_, clientOf) => {
  it.each(KINDS)(
    'on %s, fencing tokens are numbers that grow, and a lease is renewed',
    async (__, { url }) => {
      const lock = await lockOn(() => clientOf(url));
      const resource = newResource();
      const first = await held(lock, resource);
      const next = held(lock, resource, { ttlMs: 9_000, waitMs: PATIENCE_MS }); // which the first may hand over
      await first.release();
      const second = await next;
      expect(second.fencingToken).toBeTypeOf('number');
      expect(second.fencingToken).toBeGreaterThan(first.fencingToken!);
      await renewed(second);
      expect(await second.release()).toBe('released');
    },
  );

  it.each(KINDS)('on %s, a release wakes a waiter of another process', async (__, { url }) => {
    const [a, b] = [await lockOn(() => clientOf(url)), await lockOn(() => clientOf(url))];
    const redis = watching(url);
    const waiting = async (resource: string) => {
      const lease = await held(a, resource);
      const next = held(b, resource, WAITS);
      // Only a process that can be notified is queued.
      await expect.poll(() => redis.zcard(`stampede:{${resource}}:waiters`)).toBe(1);
      return { lease, next };
    };
    const subscribing = await waiting(newResource());
    await subscribing.lease.release();
    await (await subscribing.next).release();
    stopTimers();
    const { lease, next } = await waiting(newResource());
    let isHeld = false;
    void next.then(() => {
      isHeld = true;
    });
    await lease.release();
    await expect.poll(() => isHeld).toBe(true);
    await (await next).release();
  });
});

it('redlock on clients of node-redis takes an OK for what it is', async () => {
  const clients = [1, 2, 3].map((database) => nodeRedisWithOptions(`${server.url}/${database}`));
  const lock = await reached(() => redlock({ redis: clients }));
  ends.push(() => lock.close());
  await (await held(lock, newResource())).release();
});

/** Of ioredis 5, whose duplicates lack the options of the nodes that are not repeated. */
class Cluster5 extends Cluster {
  override duplicate(...[nodes = [], options = {}]: Parameters<Cluster['duplicate']>): Cluster {
    const { startupNodes } = this as unknown as { startupNodes: typeof nodes };
    const merged = { ...this.options, ...options } as NonNullable<typeof options>;
    return new Cluster(nodes.length > 0 ? nodes : startupNodes, merged);
  }
}

it.each([
  ['5', Cluster5],
  ['6', Cluster],
])('in a cluster, the password of a client of ioredis %s stays', async (_, Client) => {
  const password = 'secret';
  const nodes = cluster.members.map(({ port }) => port);
  const setPassword = (text: string) =>
    Promise.all(cluster.members.map(({ client }) => client.config('SET', 'requirepass', text)));
  await setPassword(password);
  ends.push(() => setPassword(''));
  const lock = await lockOn(() => new Client(nodes, { lazyConnect: true, redisOptions: { password } }));
  await (await held(lock, newResource())).release();
});
