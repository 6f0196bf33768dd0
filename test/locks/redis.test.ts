/** What the lock `redis` does beyond the contract of all locks, on a real server. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { type Lease, using } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis.ts';
import { ends, held, kindOf, once, PATIENCE_MS, untilAvailable } from '../contract/lock-steps.ts';
import { type LockProcess, redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

const fixture = opened(() => redisLocks(create));
let processes: LockProcess[] = [];

afterEach(async () => {
  await Promise.all(processes.map((process) => process.close()));
  processes = [];
});

async function open(count: number): Promise<LockProcess[]> {
  const added = await Promise.all(Array.from({ length: count }, () => fixture.process()));
  processes.push(...added);
  return added;
}

const lockOf = (resource: string) => `stampede:{${resource}}:lock`;
const waitersOf = (resource: string) => `stampede:{${resource}}:waiters`;

describe('64 waiters on one resource', () => {
  it('have turns one by one, and tokens that grow', async () => {
    const group = await open(4);
    let inside = 0;
    const tokens: number[] = [];
    const inTurn = async ({ fencingToken }: Lease) => {
      expect(++inside).toBe(1);
      tokens.push(fencingToken!);
      await sleep(0);
      inside--;
    };
    const contenders = group.flatMap(({ lock }) => Array.from({ length: 16 }, () => lock));
    const work = contenders.map(async (lock) => {
      const options = { ...once, waitMs: PATIENCE_MS };
      for (let i = 0; i < 5; i++) {
        const done = await untilAvailable(() => using(lock, 'rush', options, inTurn));
        expect(done.kind).toBe('done');
      }
    });
    await Promise.all(work);
    expect(tokens).toHaveLength(320);
    expect(tokens).toEqual([...new Set(tokens)].sort((x, y) => x - y));
    await expect.poll(() => fixture.redis.exists(lockOf('rush'), waitersOf('rush'))).toBe(0);
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
      for (let i = 0; i < 5; i++) await (await held(other!.lock, 'crowd', { waitMs: PATIENCE_MS })).release();
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
      await expect.poll(() => fixture.redis.zcard(waitersOf('queue'))).toBe(i + 1);
    }
    const published = async () =>
      Number(/cmdstat_publish:calls=(\d+)/.exec(await fixture.redis.info('commandstats'))?.[1] ?? 0);
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
    await expect.poll(() => fixture.redis.exists(waitersOf('queue'))).toBe(0);
  });

  it('continues without notifications', async () => {
    const [holder, waiter] = await open(2);
    const lease = await held(holder!.lock, 'unsubscribed', { ttlMs: 20_000 });
    const next = held(waiter!.lock, 'unsubscribed', { waitMs: PATIENCE_MS });
    await expect.poll(() => fixture.redis.zcard(waitersOf('unsubscribed'))).toBe(1);
    await fixture.redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
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
    expect(await fixture.redis.pttl(lockOf('mine'))).toBeGreaterThan(60_000); // the shorter TTL shortens nothing
    expect([here.fencingToken, there.fencingToken]).toEqual([outer.fencingToken, outer.fencingToken]);
    expect(await kindOf(b!, 'mine', { owner: 'you' })).toBe('contended');
    const ended = await ends(outer, 'released');
    expect(await outer.release()).toBe(ended); // without an effect on the others
    expect(await kindOf(b!, 'mine')).toBe('contended');
    await ends(here, 'released');
    expect(await kindOf(a!, 'mine', { owner: 'you' })).toBe('contended');
    await ends(there, 'released');
    const next = await held(a!.lock, 'mine', { owner: 'you' });
    expect(next.fencingToken).toBeGreaterThan(outer.fencingToken!);
    const other = held(a!.lock, 'mine', { waitMs: PATIENCE_MS });
    await ends(await held(a!.lock, 'mine', { owner: 'you', waitMs: PATIENCE_MS }), 'released'); // while another waits
    await ends(next, 'released');
    await ends(await other, 'released');
  });
});

describe('the keys in Redis', () => {
  it('may be lost: fencing tokens still grow', async () => {
    const [a, b] = await open(2);
    const before = await held(a!.lock, 'emptied', { ttlMs: 20_000 });
    await fixture.redis.flushall();
    const after = await held(b!.lock, 'emptied');
    expect(after.fencingToken).toBeGreaterThan(before.fencingToken!);
    await ends(before, 'lost');
    await ends(after, 'released');
    await expect.poll(() => fixture.redis.keys('stampede:{emptied}:*')).toEqual(['stampede:{emptied}:fence']);
    expect(await fixture.redis.ttl('stampede:{emptied}:fence')).toBeGreaterThan(0);
  });

  it('count as held if a lock of another kind wrote them', async () => {
    const [a] = await open(1);
    await fixture.redis.set(lockOf('other'), 'foreign');
    expect(await kindOf(a!, 'other')).toBe('contended');
    const next = held(a!.lock, 'other', { waitMs: PATIENCE_MS });
    await fixture.redis.del(lockOf('other'));
    await (await next).release();
  });
});

describe('a lease', () => {
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
