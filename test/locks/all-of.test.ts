/** Several resources at once. The one order keeps two contenders from a deadlock. */
import { expect, it } from 'vitest';
import { acquireAll, type LeaseOfAll, usingAll } from '../../src/locks/all-of.ts';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { MAX_NAME_BYTES } from '../../src/locks/options.ts';
import { create } from '../../src/locks/redis.ts';
import { held, once, timed, unlessLate, untilAvailable } from '../contract/lock-steps.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

/** No lease expires while the test looks for one that was left, and no wait ends by its time. */
const OPTIONS = { ttlMs: 600_000, waitMs: 300_000 };

const fixture = opened(() => redisLocks(create));

it('acquires in one order, has the earliest deadline, and releases all', async () => {
  const { lock, close } = await fixture.process();
  const inOrder = async ({ leases, deadlineMs }: LeaseOfAll) => {
    expect(deadlineMs).toBe(Math.min(...[...leases.values()].map((lease) => lease.deadlineMs)));
    return [...leases.keys()];
  };
  const using = () => untilAvailable(() => usingAll(lock, ['c', 'a', 'b', 'a'], OPTIONS, inOrder));
  const { value, tookMs } = await timed(using);
  const ended = unlessLate(tookMs, 'released', 'unknown');
  expect(value).toEqual({ kind: 'done', value: ['a', 'b', 'c'], ended });
  await expect.poll(() => fixture.redis.keys('*:lock')).toEqual([]);
  await close();
});

it('holds nothing when one of the resources is held, its name is invalid, or the wait is aborted', async () => {
  const [a, b] = [await fixture.process(), await fixture.process()];
  const lease = await held(a.lock, 'm');
  const asked = await untilAvailable(() => acquireAll(b.lock, ['l', 'm', 'n'], once));
  expect(asked.kind).toBe('contended');
  const names = ['l', 'x'.repeat(MAX_NAME_BYTES + 1)];
  await expect(acquireAll(b.lock, names, OPTIONS)).rejects.toMatchObject({ option: 'resource' });
  const left = () => fixture.redis.keys('*:lock');
  await expect.poll(left).toEqual(['stampede:{m}:lock']);
  const stop = new AbortController();
  const waiting = acquireAll(b.lock, ['l', 'm'], { ...OPTIONS, signal: stop.signal });
  await expect.poll(() => fixture.redis.exists('stampede:{l}:lock')).toBe(1);
  stop.abort();
  expect((await waiting).kind).toBe('aborted');
  await expect.poll(left).toEqual(['stampede:{m}:lock']);
  await lease.release();
  await Promise.all([a.close(), b.close()]);
});

it('signals the loss of one of them, and reports it as the end', async () => {
  const { lock, close } = await fixture.process();
  const work = async ({ signal }: LeaseOfAll) => {
    await fixture.redis.del('stampede:{q}:lock');
    await expect.poll(() => signal.aborted).toBe(true);
    return signal.reason;
  };
  const options = { ttlMs: 9_000, waitMs: 0 };
  const result = await untilAvailable(() => usingAll(lock, ['p', 'q'], options, work));
  expect(result).toMatchObject({ kind: 'done', ended: 'lost' });
  expect(result.kind === 'done' && result.value).toBeInstanceOf(LeaseLostError);
  await expect.poll(() => fixture.redis.keys('*:lock')).toEqual([]);
  await close();
});
