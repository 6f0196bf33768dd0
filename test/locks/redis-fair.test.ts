import { describe, expect, it } from 'vitest';
import { create } from '../../src/locks/redis-fair.ts';
import { held, hold, kindOf, once, PATIENCE_MS } from '../contract/lock-steps.ts';
import { eventually } from '../support/client.ts';
import { processOnOne, redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

/** A place outlasts a pause of a busy machine. */
const PLACE_TTL_MS = 6_000;

describe('the queue of the fair lock', () => {
  const fixture = opened(() => redisLocks((context) => create(context, PLACE_TTL_MS)));
  const processes = [1, 2, 3].map(() => opened(() => fixture.process()));
  const options = { ...once, waitMs: PATIENCE_MS };
  const queued = (resource: string) =>
    expect.poll(() => fixture.redis.zcard(`stampede:{${resource}}:queue`), { interval: 2 });

  it('keeps nothing of waits that ended', async () => {
    const lease = await held(processes[0]!.lock, 'over');
    const port = Number(new URL(fixture.servers.redisUrl).port);
    const b = await processOnOne(port, (context) => create(context, 600_000)); // its place expires after the test
    expect(await kindOf(b, 'over', { waitMs: 300 })).toBe('contended');
    const signal = AbortSignal.timeout(300);
    expect(await kindOf(b, 'over', { waitMs: PATIENCE_MS, signal })).toBe('aborted');
    const rest = ['stampede:{over}:fence', 'stampede:{over}:lock'];
    await expect.poll(async () => (await fixture.redis.keys('stampede:{over}:*')).sort()).toEqual(rest);
    await lease.release();
    await b.close();
  });

  it('is not overtaken by a single attempt', async () => {
    const [a, b, c] = processes.map(({ lock }) => lock);
    let isLate: boolean; // then the waiter has left the queue, and nothing is judged
    do {
      isLate = false;
      const onLate = async () => {
        isLate = true;
      };
      const lease = await held(a!, 'once', options);
      const waiting = hold({ lock: b!, onLate }, 'once', options);
      await queued('once').toBe(1);
      // The lock is free but has a waiter: only the waiter may acquire it.
      const [, asked] = await Promise.all([lease.release(), c!.acquire('once', once)]);
      if (asked.kind === 'held') await asked.lease.release();
      await (await waiting).release();
      isLate ||= asked.kind === 'unavailable';
      if (!isLate) expect(asked.kind).toBe('contended');
    } while (isLate);
  });

  it('continues when a waiter dies, and keeps the place of one that lives', async () => {
    const [a, b] = processes.map(({ lock }) => lock);
    const dying = await fixture.process();
    const lease = await held(a!, 'dead');
    let isQueued = false;
    const dead = eventually(
      () => dying.lock.acquire('dead', options),
      ({ kind }) => isQueued || kind !== 'unavailable',
    );
    await queued('dead').toBe(1);
    isQueued = true;
    dying.link.set('black-hole');
    let isLate = false; // then it asks again, in another place
    const onLate = async () => {
      isLate = true;
    };
    const next = hold({ lock: b!, onLate }, 'dead', options);
    await queued('dead').toBe(2);
    const place = () => fixture.redis.zrange('stampede:{dead}:queue', '-1', '-1', 'WITHSCORES');
    const first = await place();
    const endMs = async () =>
      Number((await fixture.redis.zrange('stampede:{dead}:places', '-1', '-1', 'WITHSCORES'))[1]);
    const before = await endMs();
    await expect.poll(endMs).toBeGreaterThan(before + PLACE_TTL_MS); // which the dead one's is not
    if (!isLate) expect(await place()).toEqual(first);
    await lease.release();
    await (await next).release();
    expect((await dead).kind).toBe('unavailable');
    await dying.close();
    await expect.poll(() => fixture.redis.keys('stampede:{dead}:*')).toEqual(['stampede:{dead}:fence']);
  });
});
