/** What the lock `redis` does beyond the contract of all locks, on a real server. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type Lease, LeaseLostError, using } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis.ts';
import { ends, kindOf, once, PATIENCE_MS, untilAvailable } from '../contract/lock-steps.ts';
import { type LockProcess, redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { held } from './lock-checks.ts';

const fixture = opened(() => redisLocks(create));
let server: Redis;
let processes: LockProcess[] = [];

beforeAll(() => {
  server = new Redis(fixture.servers.redisUrl);
});
afterEach(async () => {
  await Promise.all(processes.map((process) => process.close()));
  processes = [];
});
afterAll(() => server?.disconnect());

async function open(count: number): Promise<LockProcess[]> {
  const added = await Promise.all(Array.from({ length: count }, () => fixture.process()));
  processes.push(...added);
  return added;
}

/** Commands that the server ran, including those of scripts and excluding those of this function. */
async function commandsOf(work: () => Promise<unknown>): Promise<number> {
  const processed = async () =>
    Number(/total_commands_processed:(\d+)/.exec(await server.info('stats'))?.[1] ?? Number.NaN);
  const before = await processed();
  await work();
  return (await processed()) - before - 1;
}

const lockOf = (resource: string) => `stampede:{${resource}}:lock`;
const waitersOf = (resource: string) => `stampede:{${resource}}:waiters`;

describe('64 waiters on one resource', () => {
  const rush = async (group: LockProcess[], each: number, cycles: number, resource: string) => {
    let inside = 0;
    const tokens: number[] = [];
    const contenders = group.flatMap(({ lock }) => Array.from({ length: each }, () => lock));
    const work = contenders.map(async (lock) => {
      for (let i = 0; i < cycles; i++) {
        const inTurn = async ({ fencingToken }: Lease) => {
          expect(++inside).toBe(1);
          tokens.push(fencingToken!);
          await sleep(0);
          inside--;
        };
        const options = { ...once, waitMs: PATIENCE_MS };
        const done = await untilAvailable(() => using(lock, resource, options, inTurn));
        expect(done.kind).toBe('done');
      }
    });
    await Promise.all(work);
    return tokens;
  };

  it.each([
    [1, 64],
    [4, 16],
    [16, 4],
  ])('%i processes × %i: at most 4 commands an acquisition, tokens that grow', async (count, each) => {
    const group = await open(count);
    const resource = `rush-${count}`;
    await rush(group, 2, 2, resource); // opens the subscriptions
    let tokens: number[] = [];
    const startedMs = performance.now();
    const commands = await commandsOf(async () => {
      tokens = await rush(group, each, 10, resource);
    });
    // Besides, each process polls for safety, at most once in 270 ms: a script with its commands.
    const polls = (count * (performance.now() - startedMs)) / 270;
    expect(tokens.length).toBe(640);
    for (let i = 1; i < tokens.length; i++) expect(tokens[i]).toBeGreaterThan(tokens[i - 1]!);
    expect(commands).toBeLessThanOrEqual(4 * tokens.length + 4 * polls);
    await expect.poll(() => server.exists(lockOf(resource), waitersOf(resource))).toBe(0);
  });

  it('does not starve other processes, however many contenders wait in this one', async () => {
    const [busy, other] = await open(2);
    let isOver = false;
    const loops = Array.from({ length: 16 }, async () => {
      while (!isOver) {
        const options = { ...once, waitMs: 5_000 };
        await untilAvailable(() => using(busy!.lock, 'crowd', options, () => sleep(1)));
      }
    });
    try {
      for (let i = 0; i < 20; i++)
        await (await held(other!.lock, 'crowd', { waitMs: PATIENCE_MS })).release();
    } finally {
      isOver = true;
    }
    await Promise.all(loops);
  });
});

describe('waiting', () => {
  it('notifies one process per release, in queue order', async () => {
    const [holder, ...waiting] = await open(4);
    let lease = await held(holder!.lock, 'queue', { ttlMs: 20_000 });
    const all: Promise<Lease>[] = [];
    for (const [i, { lock }] of waiting.entries()) {
      all.push(held(lock, 'queue', { ttlMs: 20_000, waitMs: 60_000 }));
      await expect.poll(() => server.zcard(waitersOf('queue'))).toBe(i + 1);
    }
    const published = async () =>
      Number(/cmdstat_publish:calls=(\d+)/.exec(await server.info('commandstats'))?.[1] ?? 0);
    for (const [i, next] of all.entries()) {
      // The others cannot take it with their safety polls.
      const others = waiting.slice(i + 1);
      for (const { link } of others) link.set('stall');
      const before = await published();
      await lease.release();
      lease = await next;
      expect(await published()).toBe(before + 1);
      for (const { link } of others) link.set('pass');
    }
    await lease.release();
    await expect.poll(() => server.exists(waitersOf('queue'))).toBe(0);
  });

  it('skips a waiter that died in the queue', async () => {
    const [holder, dead, alive] = await open(3);
    const lease = await held(holder!.lock, 'dead', { ttlMs: 20_000 });
    const stop = new AbortController();
    void kindOf(dead!, 'dead', { waitMs: PATIENCE_MS, signal: stop.signal });
    await expect.poll(() => server.zcard(waitersOf('dead'))).toBe(1);
    const next = held(alive!.lock, 'dead', { waitMs: PATIENCE_MS });
    await expect.poll(() => server.zcard(waitersOf('dead'))).toBe(2);
    await dead!.close();
    stop.abort();
    const channels = () => server.pubsub('CHANNELS', 'stampede:notify:*');
    await expect.poll(async () => ((await channels()) as string[]).length).toBe(1);
    await lease.release();
    await ends(await next, 'released');
    await expect.poll(() => server.exists(waitersOf('dead'))).toBe(0);
  });

  it('notifies the next waiter when the notified one has stopped waiting', async () => {
    const [holder, fickle, next] = await open(3);
    for (let round = 0; round < 20; round++) {
      const resource = `fickle-${round}`;
      const lease = await held(holder!.lock, resource, { ttlMs: 20_000 });
      const stop = new AbortController();
      const options = { ...once, waitMs: PATIENCE_MS, signal: stop.signal };
      const gone = untilAvailable(() => fickle!.lock.acquire(resource, options));
      await expect.poll(() => server.zcard(waitersOf(resource)), { interval: 2 }).toBe(1);
      const got = held(next!.lock, resource, { waitMs: PATIENCE_MS });
      await expect.poll(() => server.zcard(waitersOf(resource)), { interval: 2 }).toBe(2);
      const released = lease.release();
      stop.abort();
      const result = await gone;
      if (result.kind === 'held') await result.lease.release();
      await released;
      await (await got).release();
    }
  });

  it('continues without notifications', async () => {
    const [holder, waiter] = await open(2);
    const lease = await held(holder!.lock, 'unsubscribed', { ttlMs: 20_000 });
    const next = held(waiter!.lock, 'unsubscribed', { waitMs: PATIENCE_MS });
    await expect.poll(() => server.zcard(waitersOf('unsubscribed'))).toBe(1);
    await server.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await lease.release();
    await (await next).release();
  });
});

describe('owners', () => {
  it('are granted again, in any process, with the same fencing token', async () => {
    const [a, b] = await open(2);
    const outer = await held(a!.lock, 'mine', { owner: 'me' });
    const here = await held(a!.lock, 'mine', { owner: 'me', ttlMs: 30_000 });
    const there = await held(b!.lock, 'mine', { owner: 'me', ttlMs: 30_000 });
    expect(await server.pttl(lockOf('mine'))).toBeGreaterThan(60_000); // the shorter TTL shortens nothing
    expect([here.fencingToken, there.fencingToken]).toEqual([outer.fencingToken, outer.fencingToken]);
    expect(await kindOf(b!, 'mine', { owner: 'you' })).toBe('contended');
    const ended = await ends(outer, 'released');
    expect(await outer.release()).toBe(ended); // without an effect on the others
    expect(await kindOf(b!, 'mine')).toBe('contended');
    await ends(here, 'released');
    expect(await kindOf(a!, 'mine', { owner: 'you' })).toBe('contended');
    await ends(there, 'released');
    expect((await held(a!.lock, 'mine')).fencingToken).toBeGreaterThan(outer.fencingToken!);
  });

  it('are granted while other owners of their process wait', async () => {
    const [a] = await open(1);
    const outer = await held(a!.lock, 'nested', { owner: 'me' });
    const other = held(a!.lock, 'nested', { waitMs: PATIENCE_MS });
    const inner = await held(a!.lock, 'nested', { owner: 'me', waitMs: PATIENCE_MS });
    await inner.release();
    await outer.release();
    await (await other).release();
  });

  it('wait like others while another owner holds the lock', async () => {
    const [a] = await open(1);
    const lease = await held(a!.lock, 'wait');
    const next = held(a!.lock, 'wait', { owner: 'me', waitMs: PATIENCE_MS });
    await sleep(50);
    await lease.release();
    const mine = await next;
    for (const one of [await held(a!.lock, 'wait', { owner: 'me' }), mine]) await one.release();
  });
});

describe('the keys in Redis', () => {
  it('are only the newest fencing token, which expires', async () => {
    const [a] = await open(1);
    await (await held(a!.lock, 'clean')).release();
    await expect.poll(() => server.keys('stampede:{clean}:*')).toEqual(['stampede:{clean}:fence']);
    expect(await server.ttl('stampede:{clean}:fence')).toBeGreaterThan(0);
  });

  it('may be lost: fencing tokens still grow', async () => {
    const [a, b] = await open(2);
    const before = await held(a!.lock, 'emptied', { ttlMs: 20_000 });
    await server.flushall();
    const after = await held(b!.lock, 'emptied');
    expect(after.fencingToken).toBeGreaterThan(before.fencingToken!);
    await ends(before, 'lost');
    await ends(after, 'released');
  });

  it('count as held if a lock of another kind wrote them', async () => {
    const [a] = await open(1);
    await server.set(lockOf('other'), 'foreign');
    expect(await kindOf(a!, 'other')).toBe('contended');
    const next = held(a!.lock, 'other', { waitMs: PATIENCE_MS });
    await server.del(lockOf('other'));
    await (await next).release();
  });
});

describe('a lease', () => {
  it('is lost when its key is deleted', async () => {
    const [a] = await open(1);
    const lease = await held(a!.lock, 'deleted', { ttlMs: 30_000 });
    const { deadlineMs } = lease;
    await server.del(lockOf('deleted'));
    await expect.poll(() => lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(lease.deadlineMs).toBeLessThan(deadlineMs); // at a renewal
  });

  it('is renewed once Redis is reachable again, and not lost before', async () => {
    const [a, b] = await open(2);
    const resources = ['back-1', 'back-2', 'back-3', 'back-4', 'back-5'];
    const ttlMs = 20_000;
    const leases = await Promise.all(resources.map((r) => held(a!.lock, r, { ttlMs })));
    a!.link.set('refuse');
    const deadlines = leases.map(({ deadlineMs }) => deadlineMs);
    // A renewal of each was due, at a third of its TTL, and has failed.
    const dueMs = Math.max(...deadlines) - 0.6 * ttlMs;
    await expect.poll(() => performance.now()).toBeGreaterThan(dueMs);
    expect(leases.map(({ deadlineMs }) => deadlineMs)).toEqual(deadlines);
    a!.link.set('pass');
    for (const [i, lease] of leases.entries()) {
      await expect.poll(() => lease.deadlineMs).toBeGreaterThan(deadlines[i]!);
      expect(lease.signal.aborted).toBe(false);
      expect(await kindOf(b!, lease.resource)).toBe('contended');
      await lease.release();
    }
  });

  it('is handed off only while it is certainly held', async () => {
    const [a, b] = await open(2);
    const lease = await held(a!.lock, 'silent', { ttlMs: 600 });
    const waits = a!.lock.acquire('silent', { ttlMs: 600, waitMs: 3_000 });
    a!.link.set('black-hole');
    const next = await held(b!.lock, 'silent', { waitMs: PATIENCE_MS });
    expect(lease.signal.aborted).toBe(true);
    expect(await lease.release()).toBe('lost');
    expect((await waits).kind).not.toBe('held');
    await ends(next, 'released');
  });
});
