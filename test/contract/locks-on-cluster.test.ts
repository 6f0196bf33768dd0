/** Every lock that uses one Redis works on a cluster, too, with resources on different masters, and with the client of either library. */
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { openLinkedCluster } from '../../lab/servers/linked-cluster.ts';
import { slotOf } from '../../src/locks/adapters/slots.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { locks } from '../../src/locks/registry.ts';
import { asTheService, byIoredis, byNodeRedis } from '../support/caller-clients.ts';
import { opened } from '../support/opened.ts';
import { bySize } from '../support/tier.ts';
import { held, kindOf, PATIENCE_MS } from './lock-steps.ts';

/** Each process has another client. */
const CONNECTS = [asTheService, byIoredis, byNodeRedis];
const cluster = opened(openLinkedCluster);
const clients = CONNECTS.map((connect) => opened(() => connect(cluster.url)));

/** Those with several keys, and a rung. The cluster runs the Redis that is installed, which may lack the commands of redis-cas. */
const SOME = ['redis', 'redis-fair', 'redis-read-write', 'redis-wait', 'redis-confirmed'];
const ALL = [...locks.values()]
  .filter(({ description: { name, needs } }) => needs === 'REDIS_URL' && name !== 'redis-cas')
  .map(({ description }) => description.name);

function open(name: string): Promise<Lock[]> {
  const context = {
    lockTtlMs: 5_000,
    openRedlock: async () => [],
    zookeeperUrl: null,
    redisWait: 1,
    onError: () => {},
  };
  // A lock uses only the stores that its description names.
  return Promise.all(
    clients.map(({ redis }) => locks.get(name)!.create({ ...context, redis, postgres: null as never })),
  );
}

it.each(bySize({ core: SOME, full: SOME, nightly: ALL }))('%s excludes on every master', async (name) => {
  const processes = await open(name);
  for (const resource of ['a', 'b', 'c', 'd', 'e', 'f'].map((one) => `${name}-${one}`))
    for (const [i, lock] of processes.entries()) {
      const lease = await held(lock, resource, { waitMs: PATIENCE_MS });
      const other = processes[(i + 1) % processes.length]!;
      expect(await kindOf({ lock: other }, resource)).toBe('contended');
      const next = held(other, resource, { waitMs: PATIENCE_MS });
      await lease.release();
      await (await next).release();
    }
  await Promise.all(processes.map((lock) => lock.close()));
});

/** The process of the replica of the master that has a slot. */
async function replicaOf(slot: number): Promise<number> {
  const ask = async (port: number, what: 'info' | 'nodes') => {
    const client = new Redis(port);
    const text = what === 'info' ? await client.info('server') : ((await client.cluster('NODES')) as string);
    client.disconnect();
    return text;
  };
  const nodes = (await ask(cluster.port, 'nodes')).split('\n').map((line) => line.split(' '));
  const [master] = nodes.find(([, , , , , , , , ...ranges]) =>
    ranges.some((range) => {
      const [from, to = from] = range.split('-').map(Number);
      return from! <= slot && slot <= to!;
    }),
  )!;
  const [, address] = nodes.find((node) => node[3] === master)!;
  return Number(/process_id:(\d+)/.exec(await ask(Number(/:(\d+)@/.exec(address!)![1]), 'info'))![1]);
}

it('redis-wait grants none by acknowledgements at the master that its key has left', async () => {
  const processes = await open('redis-wait');
  for (const lock of processes) await (await held(lock, 'moved')).release();
  await cluster.moveSlot('stampede:{moved}:lock');
  const replica = await replicaOf(slotOf('moved'));
  process.kill(replica, 'SIGSTOP'); // it gets nothing that is written from now on
  try {
    for (const lock of processes)
      expect((await lock.acquire('moved', { ttlMs: 20_000, waitMs: 0 })).kind).not.toBe('held');
  } finally {
    process.kill(replica, 'SIGCONT');
  }
  await (await held(processes[0]!, 'moved')).release();
  await Promise.all(processes.map((lock) => lock.close()));
});
