/** What a semaphore does beyond the contract of locks: several holders, and never more than there are permits. */
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { using } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis-semaphore.ts';
import {
  ends,
  expectLossBefore,
  held,
  kindOf,
  once,
  PATIENCE_MS,
  untilAvailable,
  watchLoss,
} from '../contract/lock-steps.ts';
import { type GroupProcess, redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

const PERMITS = 3;
const fixture = opened(() => redisLocks(({ redis }) => create({ redis, permits: PERMITS })));
let server: Redis;
let processes: Pick<GroupProcess, 'lock' | 'link' | 'close'>[] = [];

beforeAll(() => {
  server = new Redis(fixture.servers.redisUrl);
});
afterEach(async () => {
  await Promise.all(processes.splice(0).map((process) => process.close()));
});
afterAll(() => server?.disconnect());

async function open(count: number) {
  processes = await Promise.all(Array.from({ length: count }, () => fixture.process()));
  return processes;
}

const holders = (resource: string) => server.zcard(`stampede:{${resource}}:permits`);

describe('a semaphore', () => {
  it('has as many holders as permits, in one process and in several, and never more', async () => {
    const group = await open(4);
    let inside = 0;
    let most = 0;
    let isFull: () => void;
    const full = new Promise<void>((resolve) => {
      isFull = resolve;
    });
    const work = async () => {
      inside++;
      most = Math.max(most, inside);
      if (inside === PERMITS) isFull();
      await full; // the first holders stay until all permits are held
      expect(inside).toBeLessThanOrEqual(PERMITS);
      expect(await holders('crowd')).toBeLessThanOrEqual(PERMITS);
      inside--;
    };
    const options = { ...once, waitMs: PATIENCE_MS };
    const all = group.flatMap(({ lock }) =>
      Array.from({ length: 15 }, () => untilAvailable(() => using(lock, 'crowd', options, work))),
    );
    for (const result of await Promise.all(all)) expect(result.kind).toBe('done');
    expect(most).toBe(PERMITS);
    await expect.poll(() => holders('crowd')).toBe(0);
    const alone = await Promise.all(Array.from({ length: PERMITS }, () => held(group[0]!.lock, 'alone')));
    expect(await kindOf(group[0]!, 'alone')).toBe('contended');
    expect(alone.map(({ fencingToken }) => fencingToken)).toEqual([null, null, null]);
    for (const lease of alone) await ends(lease, 'released');
  });

  it('signals the loss to a silent holder before its permit is granted to another', async () => {
    const [a, b] = await open(2);
    const kept = [await held(b!.lock, 'silent'), await held(b!.lock, 'silent')];
    const lease = await held(a!.lock, 'silent', { ttlMs: 2_000 });
    const loss = watchLoss(lease);
    a!.link.set('black-hole');
    expect(await kindOf(b!, 'silent')).toBe('contended');
    const next = await held(b!.lock, 'silent', { waitMs: PATIENCE_MS });
    expectLossBefore(lease, loss);
    expect(await holders('silent')).toBe(PERMITS);
    for (const one of [...kept, next]) await ends(one, 'released');
  });

  it('counts an acquisition once whose reply was lost, and frees its permit', async () => {
    const [a, b] = await open(2);
    for (let others = 1; others < PERMITS; others++) await held(b!.lock, 'unanswered');
    a!.link.set('lose-replies');
    expect((await a!.lock.acquire('unanswered', once)).kind).toBe('unavailable');
    await held(b!.lock, 'unanswered', { waitMs: PATIENCE_MS }); // long before the TTL
    expect(await holders('unanswered')).toBe(PERMITS);
  });
});
