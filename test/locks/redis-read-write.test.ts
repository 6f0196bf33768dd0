import { beforeAll, describe, expect, it } from 'vitest';
import type { Lock } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis-read-write.ts';
import { ends, held, once, PATIENCE_MS, renewed, untilAvailable, watchLoss } from '../contract/lock-steps.ts';
import { eventually } from '../support/client.ts';
import { processOnOne, redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

/** An intent outlasts a pause of a busy machine. */
const INTENT_TTL_MS = 10_000;
describe('readers and writers', () => {
  const fixture = opened(() => redisLocks((context) => create(context, INTENT_TTL_MS)));
  const processes = [1, 2, 3].map(() => opened(() => fixture.process()));
  let a: Lock;
  let b: Lock;
  let c: Lock;
  beforeAll(() => {
    [a, b, c] = processes.map(({ lock }) => lock) as [Lock, Lock, Lock];
  });
  const read = (lock: Lock, resource: string, more = {}) => held(lock, resource, { mode: 'read', ...more });
  const ask = async (lock: Lock, resource: string, mode: 'read' | 'write') => {
    const result = await untilAvailable(() => lock.acquire(resource, { ...once, mode }));
    if (result.kind === 'held') await ends(result.lease, 'released');
    return result.kind;
  };

  it('share and exclude', async () => {
    const readers = [await read(a, 'share'), await read(a, 'share'), await read(b, 'share')];
    expect(await ask(c, 'share', 'write')).toBe('contended');
    expect(await ask(c, 'share', 'read')).toBe('held');
    for (const reader of readers.slice(0, 2)) await ends(reader, 'released');
    expect(await ask(c, 'share', 'write')).toBe('contended');
    await ends(readers[2]!, 'released');
    const writer = await held(c, 'share', { mode: 'write' });
    expect(writer.fencingToken).toBeGreaterThan(0);
    expect(readers[0]!.fencingToken).toBeNull();
    expect(await ask(a, 'share', 'read')).toBe('contended');
    expect(await ask(a, 'share', 'write')).toBe('contended');
    await ends(writer, 'released');
    await ends(await read(a, 'share'), 'released');
    await expect.poll(() => fixture.redis.keys('stampede:{share}:*')).toEqual(['stampede:{share}:fence']);
  });

  it('do not starve a writer, whose intent ends with its wait', async () => {
    const reader = await read(a, 'claim');
    const stop = new AbortController();
    const port = Number(new URL(fixture.servers.redisUrl).port);
    const writer = await processOnOne(port, (context) => create(context, 600_000)); // its intent expires after the test
    const waits = writer.lock.acquire('claim', { ...once, waitMs: 150_000, signal: stop.signal });
    await expect.poll(() => ask(c, 'claim', 'read')).toBe('contended');
    stop.abort();
    expect((await waits).kind).toBe('aborted');
    await expect.poll(() => fixture.redis.keys('stampede:{claim}:*')).toEqual(['stampede:{claim}:readers']);
    expect(await ask(c, 'claim', 'read')).toBe('held');
    await reader.release();
    await writer.close();
  });

  it('continue when a waiting writer dies', async () => {
    const dying = await fixture.process();
    const reader = await read(a, 'dead');
    let waits = false;
    const dead = eventually(
      () => dying.lock.acquire('dead', { ...once, waitMs: 150_000 }),
      ({ kind }) => waits || kind !== 'unavailable',
    );
    // Where a server is late, the writer leaves, and asks again.
    await expect.poll(() => ask(c, 'dead', 'read')).toBe('contended');
    waits = true;
    dying.link.set('black-hole');
    const next = await read(c, 'dead', { waitMs: PATIENCE_MS }); // the writer would have waited for longer
    await next.release();
    await reader.release();
    expect((await dead).kind).toBe('unavailable');
    await dying.close();
  });

  it('continue when a reader dies: its share expires beside a live one', async () => {
    const dying = await fixture.process();
    const living = await read(a, 'shares', { ttlMs: 12_000 });
    const dead = await read(dying.lock, 'shares', { ttlMs: 2_000 });
    const loss = watchLoss(dead);
    dying.link.set('black-hole');
    const writing = held(b, 'shares', { waitMs: PATIENCE_MS }).then((lease) => ({
      lease,
      atMs: performance.now(),
    }));
    await expect.poll(() => fixture.redis.zcard('stampede:{shares}:readers')).toBe(1);
    await renewed(living); // each share is renewed separately
    const releasedMs = performance.now();
    await ends(living, 'released');
    const writer = await writing;
    expect(loss.lostMs).toBeLessThan(writer.atMs);
    expect(writer.atMs).toBeGreaterThan(releasedMs);
    expect(await dead.release()).toBe('lost');
    await ends(writer.lease, 'released');
    await dying.close();
  });

  it('signal the loss of a share that was deleted', async () => {
    const lease = await read(a, 'taken', { ttlMs: 30_000 });
    const { deadlineMs } = lease;
    await fixture.redis.del('stampede:{taken}:readers');
    await expect.poll(() => lease.signal.aborted).toBe(true);
    expect(lease.deadlineMs).toBeLessThan(deadlineMs); // at a renewal
    expect(await lease.release()).toBe('lost');
  });
});
