import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { create } from '../../src/locks/redis-fair.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { type Group, openOne } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { commonChecks, held } from './lock-checks.ts';

const open = (): Promise<Group> => openOne(create);

describe('the fair lock', () => {
  commonChecks(open);
});

describe('the queue of the fair lock', () => {
  const fixture = opened(open);
  const redis = opened(() => openRedis(`redis://127.0.0.1:${fixture.ports[0]}`, () => {}));
  const processes = [1, 2, 3, 4].map(() => opened(() => fixture.process()));
  const options = { ttlMs: 5_000, waitMs: 20_000 };

  it('is first come, first served across processes', async () => {
    for (const round of [1, 2, 3]) {
      const resource = `order-${round}`;
      const first = await held(processes[0]!.lock, resource);
      const order: number[] = [];
      const fences: number[] = [];
      const work: Promise<void>[] = [];
      for (let i = 0; i < 16; i++) {
        const { lock } = processes[(i * 7 + round) % 4]!;
        work.push(
          held(lock, resource, options).then(async (lease) => {
            order.push(i);
            fences.push(lease.fencingToken!);
            await sleep(Math.random() * 5);
            await lease.release();
          }),
        );
        const queued = () => redis.redis.zcard(`stampede:{${resource}}:queue`);
        await expect.poll(queued, { interval: 2 }).toBe(i + 1);
      }
      await first.release();
      await Promise.all(work);
      expect(order).toEqual(Array.from({ length: 16 }, (_, i) => i));
      expect(fences).toEqual([...fences].sort((x, y) => x - y));
    }
  });

  it('is not overtaken by a single attempt', async () => {
    const [a, b, c] = processes.map(({ lock }) => lock);
    const lease = await held(a!, 'once');
    const waiting = held(b!, 'once', options);
    await sleep(100);
    // The lock is free but has a waiter: only the waiter may acquire it.
    const queue = await redis.redis.zrange('stampede:{once}:queue', '0', '-1');
    expect(queue).toHaveLength(1);
    const asked = Promise.all([lease.release(), c!.acquire('once', { ttlMs: 1_000, waitMs: 0 })]);
    expect((await asked)[1].kind).toBe('contended');
    await (await waiting).release();
  });

  it('continues when a waiter dies', async () => {
    const [a, b, c] = processes.map(({ lock }) => lock);
    const dying = await fixture.process();
    const lease = await held(a!, 'dead');
    const dead = dying.lock.acquire('dead', options);
    await sleep(50);
    dying.link.set('black-hole');
    const order: string[] = [];
    const waiting = [b!, c!].map(async (lock, i) => {
      await sleep(50 * i);
      const next = await held(lock, 'dead', options);
      order.push('bc'[i]!);
      await next.release();
    });
    await sleep(150);
    expect(await redis.redis.zcard('stampede:{dead}:queue')).toBe(3);
    await lease.release();
    await Promise.all(waiting);
    expect(order).toEqual(['b', 'c']);
    expect((await dead).kind).toBe('unavailable');
    await dying.close();
    expect(await redis.redis.keys('stampede:{dead}:*')).toEqual(['stampede:{dead}:fence']);
  });

  it('keeps the places of many waiters beyond the lifetime of a place', async () => {
    const resource = 'long-queue';
    const lease = await held(processes[0]!.lock, resource, { ttlMs: 6_000 });
    const queue = `stampede:{${resource}}:queue`;
    const order: number[] = [];
    const work: Promise<void>[] = [];
    for (let i = 0; i < 60; i++) {
      const next = held(processes[i % 4]!.lock, resource, options).then((granted) => {
        order.push(i);
        return granted.release();
      });
      work.push(next.then(() => {}));
      await expect.poll(() => redis.redis.zcard(queue), { interval: 5 }).toBe(i + 1);
    }
    await sleep(3_000);
    expect(await redis.redis.zcard(queue)).toBe(60);
    await lease.release();
    await Promise.all(work);
    expect(order).toEqual(work.map((_, i) => i));
  });
});
