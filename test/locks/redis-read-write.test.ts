import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Lease, Lock } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis-read-write.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { watchLoss } from '../contract/lock-steps.ts';
import { type Group, openOne } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { commonChecks, held } from './lock-checks.ts';

const open = (): Promise<Group> => openOne(create);

describe('the read-write lock, for writing', () => {
  commonChecks(open);
});

describe('readers and writers', () => {
  const fixture = opened(open);
  const redis = opened(() => openRedis(`redis://127.0.0.1:${fixture.ports[0]}`, () => {}));
  const processes = [1, 2, 3].map(() => opened(() => fixture.process()));
  let a: Lock;
  let b: Lock;
  let c: Lock;
  beforeAll(() => {
    [a, b, c] = processes.map(({ lock }) => lock) as [Lock, Lock, Lock];
  });
  const read = (lock: Lock, resource: string, more = {}) => held(lock, resource, { mode: 'read', ...more });
  const ask = async (lock: Lock, resource: string, mode: 'read' | 'write') => {
    const result = await lock.acquire(resource, { ttlMs: 1_000, waitMs: 0, mode });
    if (result.kind === 'held') await result.lease.release();
    return result.kind;
  };

  it('share and exclude', async () => {
    const readers = [await read(a, 'share'), await read(a, 'share'), await read(b, 'share')];
    expect(await ask(c, 'share', 'write')).toBe('contended');
    expect(await ask(c, 'share', 'read')).toBe('held');
    expect(await readers[0]!.release()).toBe('released');
    expect(await readers[1]!.release()).toBe('released');
    expect(await ask(c, 'share', 'write')).toBe('contended');
    expect(await readers[2]!.release()).toBe('released');
    const writer = await held(c, 'share', { mode: 'write' });
    expect(writer.fencingToken).toBeGreaterThan(0);
    expect(readers[0]!.fencingToken).toBeNull();
    expect(await ask(a, 'share', 'read')).toBe('contended');
    expect(await ask(a, 'share', 'write')).toBe('contended');
    expect(await writer.release()).toBe('released');
    expect(await ask(a, 'share', 'read')).toBe('held');
    expect(await redis.redis.keys('stampede:{share}:*')).toEqual(['stampede:{share}:fence']);
  });

  it('never overlap, while readers do', async () => {
    let readers = 0;
    let most = 0;
    let writers = 0;
    const work = Array.from({ length: 90 }, async (_, i) => {
      const mode = i % 6 === 0 ? 'write' : 'read';
      await sleep(i * 3);
      const lease = await held([a, b, c][i % 3]!, 'overlap', { mode, waitMs: 20_000, ttlMs: 5_000 });
      if (mode === 'write') writers++;
      else most = Math.max(most, ++readers);
      expect(writers === 0 || (writers === 1 && readers === 0)).toBe(true);
      await sleep(5);
      if (mode === 'write') writers--;
      else readers--;
      expect(await lease.release()).toBe('released');
    });
    await Promise.all(work);
    expect(most).toBeGreaterThan(1);
  });

  it('do not starve a writer', async () => {
    let stop = false;
    const stream = Array.from({ length: 6 }, async (_, i) => {
      await sleep(i * 20);
      while (!stop) {
        const result = await a.acquire('starve', { mode: 'read', ttlMs: 2_000, waitMs: 5_000 });
        await sleep(120); // at every moment, one or more of the six hold it
        if (result.kind === 'held') await result.lease.release();
      }
    });
    await sleep(300);
    const writer = await held(b, 'starve', { waitMs: 10_000 });
    await writer.release();
    stop = true;
    await Promise.all(stream);
  });

  it('continue when a waiting writer dies', async () => {
    const dying = await fixture.process();
    const reader = await read(a, 'claim', { ttlMs: 10_000 });
    const dead = dying.lock.acquire('claim', { ttlMs: 1_000, waitMs: 20_000 });
    await sleep(100);
    expect(await ask(c, 'claim', 'read')).toBe('contended');
    dying.link.set('black-hole');
    const next = await read(c, 'claim', { waitMs: 10_000 }); // the writer would have waited for 20 s
    await next.release();
    await reader.release();
    expect((await dead).kind).toBe('unavailable');
    await dying.close();
  });

  it('continue when a reader dies: its share expires beside a live one', async () => {
    const dying = await fixture.process();
    const dead = await read(dying.lock, 'shares', { ttlMs: 700 });
    const living = await read(a, 'shares', { ttlMs: 700 });
    const loss = watchLoss(dead);
    dying.link.set('black-hole');
    const writing = held(b, 'shares', { waitMs: 8_000 }).then((lease) => [lease, performance.now()] as const);
    await sleep(2_000); // each share is renewed separately
    expect(living.signal.aborted).toBe(false);
    expect(await redis.redis.zcard('stampede:{shares}:readers')).toBe(1);
    const releasedMs = performance.now();
    expect(await living.release()).toBe('released');
    const [writer, wroteMs]: readonly [Lease, number] = await writing;
    expect(loss.lostMs).toBeLessThan(wroteMs);
    expect(wroteMs).toBeGreaterThan(releasedMs);
    expect(await dead.release()).toBe('lost');
    expect(await writer.release()).toBe('released');
    await dying.close();
  });

  it('signal the loss of a share that was deleted', async () => {
    const lease = await read(a, 'taken', { ttlMs: 600 });
    await redis.redis.del('stampede:{taken}:readers');
    await sleep(350);
    expect(lease.signal.aborted).toBe(true);
    expect(await lease.release()).toBe('lost');
  });
});
