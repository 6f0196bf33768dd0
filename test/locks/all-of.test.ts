/**
 * Several resources at once. Seeded schedules of overlapping sets, some with aborted waits and lost replies: no deadlock, no two
 * holders of one resource, and nothing stays held. A failed schedule is named by its seed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Random, seededRandom } from '../../lab/kit/random.ts';
import { acquireAll, type LeaseOfAll, usingAll } from '../../src/locks/all-of.ts';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { MAX_NAME_BYTES } from '../../src/locks/options.ts';
import { create } from '../../src/locks/redis.ts';
import { held, once, timed, unlessLate, untilAvailable } from '../contract/lock-steps.ts';
import { type LockProcess, redisLocks } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { bySize } from '../support/tier.ts';

const SCHEDULES = bySize({ core: 50, full: 150, nightly: 1_000 });
/** Schedules at a time, each with two processes. */
const LANES = 12;
const CONTENDERS = 4;
const RESOURCES = 5;
/** No lease expires while the test looks for one that was left, and no wait ends by its time. */
const OPTIONS = { ttlMs: 600_000, waitMs: 300_000 };

const fixture = opened(() => redisLocks(create));
let server: Redis;
beforeAll(() => {
  server = new Redis(fixture.servers.redisUrl);
});
afterAll(() => server?.disconnect());

const between = (random: Random, from: number, to: number) => from + Math.floor(random() * (to - from + 1));

/** A random set, in random order. */
function someOf(random: Random, all: readonly string[]): string[] {
  const rest = [...all];
  return Array.from(
    { length: between(random, 2, all.length) },
    () => rest.splice(between(random, 0, rest.length - 1), 1)[0]!,
  );
}

/** @returns how the acquisitions ended, and the resources that had two holders at once */
async function play(seed: number, processes: readonly LockProcess[]) {
  const random = seededRandom(seed);
  const resources = Array.from({ length: RESOURCES }, (_, n) => `${seed}-${n}`);
  const holders = new Map(resources.map((resource) => [resource, 0]));
  const overlaps: string[] = [];
  const losesReplies = random() < 0.1;
  const work = Array.from({ length: CONTENDERS }, async (_, n) => {
    const wanted = someOf(random, resources);
    const [arrivesMs, holdsMs, abortsMs] = [0, 0, 0].map(() => between(random, 0, 6)) as [
      number,
      number,
      number,
    ];
    const aborts = random() < 0.15;
    const stop = new AbortController();
    await sleep(arrivesMs);
    if (aborts) setTimeout(() => stop.abort(), abortsMs);
    const { lock } = processes[n % processes.length]!;
    const options = { ...OPTIONS, signal: stop.signal };
    const result = await untilAvailable(() => acquireAll(lock, wanted, options));
    if (result.kind !== 'held') return `${result.kind}${aborts ? '' : ' without a cause'}`;
    for (const resource of wanted) {
      if (holders.get(resource) !== 0) overlaps.push(resource);
      holders.set(resource, holders.get(resource)! + 1);
    }
    await sleep(holdsMs);
    for (const resource of wanted) holders.set(resource, holders.get(resource)! - 1);
    await result.lease.release();
    return 'held';
  });
  if (losesReplies) {
    const { link } = processes.at(-1)!;
    await sleep(between(random, 0, 6));
    link.set('lose-replies');
    await sleep(20);
    link.set('pass'); // which cuts the connection
  }
  const ends = await Promise.all(work);
  // The next schedule begins with a connection.
  if (losesReplies) await (await held(processes.at(-1)!.lock, `${seed}-connected`)).release();
  return { ends, overlaps };
}

it('never has a deadlock, two holders of one resource, or a lock that stays', {
  timeout: 600_000,
}, async () => {
  const counts = new Map<string, number>();
  let next = 0;
  const lane = async () => {
    const processes = [await fixture.process(), await fixture.process()];
    while (next < SCHEDULES) {
      const seed = ++next;
      const { ends, overlaps } = await play(seed, processes);
      expect(overlaps, `seed ${seed}`).toEqual([]);
      for (const end of ends) counts.set(end, (counts.get(end) ?? 0) + 1);
    }
    return processes;
  };
  const lanes = await Promise.all(Array.from({ length: LANES }, lane));
  expect([...counts.keys()].filter((end) => end.includes('without'))).toEqual([]);
  expect(counts.get('held')).toBeGreaterThan(SCHEDULES * 3);
  expect(counts.get('aborted')).toBeGreaterThan(SCHEDULES / 50);
  await expect.poll(() => server.keys('*:lock'), { timeout: 120_000 }).toEqual([]);
  for (const process of lanes.flat()) await process.close();
});

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
  await expect.poll(() => server.keys('*:lock')).toEqual([]);
  await close();
});

it('holds nothing when one of the resources is held, or its name is invalid', async () => {
  const [a, b] = [await fixture.process(), await fixture.process()];
  const lease = await held(a.lock, 'm');
  const asked = await untilAvailable(() => acquireAll(b.lock, ['l', 'm', 'n'], once));
  expect(asked.kind).toBe('contended');
  const names = ['l', 'x'.repeat(MAX_NAME_BYTES + 1)];
  await expect(acquireAll(b.lock, names, OPTIONS)).rejects.toMatchObject({ option: 'resource' });
  await expect.poll(() => server.keys('*:lock')).toEqual(['stampede:{m}:lock']);
  await lease.release();
  await Promise.all([a.close(), b.close()]);
});

it('signals the loss of one of them, and reports it as the end', async () => {
  const { lock, close } = await fixture.process();
  const work = async ({ signal }: LeaseOfAll) => {
    await server.del('stampede:{q}:lock');
    await expect.poll(() => signal.aborted).toBe(true);
    return signal.reason;
  };
  const options = { ttlMs: 9_000, waitMs: 0 };
  const result = await untilAvailable(() => usingAll(lock, ['p', 'q'], options, work));
  expect(result).toMatchObject({ kind: 'done', ended: 'lost' });
  expect(result.kind === 'done' && result.value).toBeInstanceOf(LeaseLostError);
  await expect.poll(() => server.keys('*:lock')).toEqual([]);
  await close();
});
