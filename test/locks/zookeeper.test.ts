import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/zookeeper.ts';
import { ends, hold, kindOf, PATIENCE_MS, renewed } from '../contract/lock-steps.ts';
import { ensureZookeeper, startZookeeper, type ZookeeperServer } from '../support/zookeeper.ts';

const missing = await ensureZookeeper();
const SESSION_MS = 1_200;
/** A session that outlasts a pause of a busy machine. */
const LONG_MS = 30_000;

let server: ZookeeperServer;
const opened: (() => Promise<void>)[] = [];

/** From ZooKeeper's view, a process: a separate session. */
async function open(lockTtlMs = SESSION_MS): Promise<{ lock: Lock }> {
  const lock = await create({ zookeeperUrl: server.url, lockTtlMs });
  opened.push(() => lock.close());
  return { lock };
}

const held = (lock: Lock, resource: string) => hold({ lock }, resource, { waitMs: PATIENCE_MS });

const nodes = async () => Number(/zk_znode_count\s+(\d+)/.exec(await server.ask('mntr'))?.[1]);
const ephemerals = async () => Number(/zk_ephemerals_count\s+(\d+)/.exec(await server.ask('mntr'))?.[1]);

it('names the variable to set when there is no server', async () => {
  await expect(create({ zookeeperUrl: null, lockTtlMs: 1_000 })).rejects.toThrow(/ZOOKEEPER_URL/);
  await expect(create({ zookeeperUrl: '127.0.0.1:1', lockTtlMs: 1_000 })).rejects.toThrow(/127\.0\.0\.1:1/);
});

describe.skipIf(missing !== null)(`the lock in ZooKeeper${missing === null ? '' : `: ${missing}`}`, () => {
  beforeAll(async () => {
    server = await startZookeeper();
    return () => server[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((close) => close()));
  });

  it('removes the nodes of ended waits, and at close those of the resources', async () => {
    const [a, b] = [await open(LONG_MS), await open(LONG_MS)];
    const before = await nodes();
    const lease = await held(a.lock, 'a/b ü');
    expect(await kindOf(b, 'a/b ü', { waitMs: 200 })).toBe('contended');
    const signal = AbortSignal.timeout(200);
    expect(await kindOf(b, 'a/b ü', { waitMs: PATIENCE_MS, signal })).toBe('aborted');
    await expect.poll(ephemerals).toBe(1);
    await ends(lease, 'released');
    await Promise.all(opened.splice(0).map((close) => close()));
    await expect.poll(async () => (await nodes()) - before).toBeLessThanOrEqual(2); // /stampede/locks
  });

  it('switches to another server when its connection goes silent, and keeps the lease', async () => {
    const links = [await TcpProxy.open({ port: server.port }), await TcpProxy.open({ port: server.port })];
    const zookeeperUrl = links.map(({ port }) => `127.0.0.1:${port}`).join(',');
    const lock = await create({ zookeeperUrl, lockTtlMs: LONG_MS });
    opened.push(async () => {
      await lock.close();
      for (const link of links) await link.close();
    });
    const lease = await held(lock, 'silent');
    links.find(({ connections }) => connections > 0)!.set('black-hole');
    await renewed(lease);
    await ends(lease, 'released');
  });

  it('continues with larger fencing tokens after the server was killed', async () => {
    const a = await open();
    const lease = await held(a.lock, 'killed');
    await server.kill();
    await expect.poll(() => lease.signal.aborted).toBe(true);
    await server.start();
    expect((await held(a.lock, 'killed')).fencingToken).toBeGreaterThan(lease.fencingToken!);
  });
});
