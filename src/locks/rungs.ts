/**
 * The ladder: six locks in one Redis, each a row of `LADDER`. Each has what the one before lacks, and a flaw that the next one removes.
 */
import type { RedisClient } from './clients.ts';
import { resolveAmbiguous } from './kit/ambiguous-write.ts';
import { defineTokenScripts, lockKey } from './kit/redis.ts';
import { type RungSteps, rungLock, type Step } from './kit/rung-lock.ts';
import type { Lock, LockDescription } from './lock.ts';

type StepOn = (redis: RedisClient) => Step;

const setnx: StepOn = (redis) => async (given) =>
  (await redis.send('SETNX', lockKey(given.resource), given.token)) === 1;

const setnxThenPexpire: StepOn = (redis) => async (given) => {
  if ((await redis.send('SETNX', lockKey(given.resource), given.token)) !== 1) return false;
  await redis.send('PEXPIRE', lockKey(given.resource), given.ttlMs); // a crash before it leaves a key without expiry
  return true;
};

const setNxPx: StepOn = (redis) => async (given) =>
  (await redis.send('SET', lockKey(given.resource), given.token, 'PX', given.ttlMs, 'NX')) === 'OK';

/** Resolves "timed out but succeeded" under the same token, as kit/ambiguous-write.ts describes. */
const setNxPxResolved: StepOn = (redis) => {
  const set = setNxPx(redis);
  const release = compareAndDelete(redis);
  return (acquisition, compensations) => {
    const { resource, token, ttlMs } = acquisition;
    const write = () => set(acquisition, compensations);
    const retry = async () => (await write()) || (await redis.send('GET', lockKey(resource))) === token;
    const compensate = () => release(acquisition, compensations);
    return resolveAmbiguous({ write, retry, compensate, ttlMs, compensations });
  };
};

const compareAndPexpire: StepOn = (redis) => defineTokenScripts(redis).renew;
const del: StepOn = (redis) => async (given) => (await redis.send('DEL', lockKey(given.resource))) === 1;
const compareAndDelete: StepOn = (redis) => defineTokenScripts(redis).release;

type Rung = Omit<LockDescription, 'needs'> & RungSteps<StepOn>;

const LADDER: readonly Rung[] = [
  {
    name: 'redis-setnx',
    summary: 'One Redis: SETNX to acquire, DEL to release.',
    flaw: 'It has no expiry: a holder that dies blocks everyone until an operator deletes the key.',
    capabilities: ['held-while-working'],
    acquire: setnx,
    release: del,
    neverExpires: true,
  },
  {
    name: 'redis-setnx-expire',
    summary: 'One Redis: SETNX, then PEXPIRE; DEL to release.',
    flaw: 'A crash between its two commands leaves a lock that never expires.',
    capabilities: ['expires-after-holder-death'],
    acquire: setnxThenPexpire,
    release: del,
  },
  {
    name: 'redis-no-owner',
    summary: 'One Redis: SET NX PX to acquire, DEL to release.',
    flaw: "A holder that resumes after its TTL deletes the next holder's lock and so admits a third.",
    capabilities: ['expires-after-holder-death'],
    acquire: setNxPx,
    release: del,
  },
  {
    name: 'redis-owner',
    summary: 'One Redis: SET NX PX with a token, compare-and-delete to release.',
    flaw: 'A SET that ran but whose reply was lost blocks everyone, its own caller included, until the TTL expires.',
    capabilities: ['expires-after-holder-death', 'release-checks-ownership'],
    acquire: setNxPx,
    release: compareAndDelete,
  },
  {
    name: 'redis-confirmed',
    summary:
      'One Redis: SET NX PX with a token, retried if its reply is lost; compare-and-delete to release.',
    flaw: 'Work longer than the TTL continues alongside the next holder.',
    capabilities: ['expires-after-holder-death', 'release-checks-ownership', 'ambiguous-acquire-resolved'],
    acquire: setNxPxResolved,
    release: compareAndDelete,
  },
  {
    name: 'redis-watchdog',
    summary:
      'One Redis: token, atomic expiry, ambiguous acquires resolved, renewal at a third of the TTL up to a cap.',
    flaw: 'A holder whose renewals fail, or that paused for longer than the TTL, is not notified and keeps writing alongside the next holder.',
    capabilities: [
      'expires-after-holder-death',
      'release-checks-ownership',
      'ambiguous-acquire-resolved',
      'held-while-working',
    ],
    acquire: setNxPxResolved,
    renew: compareAndPexpire,
    release: compareAndDelete,
  },
];

/** The rungs, as entries of the registry. */
export const rungs = LADDER.map(({ acquire, renew, release, neverExpires, ...row }) => {
  const description: LockDescription = { ...row, needs: 'REDIS_URL' };
  /** @param maxHoldMs see `RungLock` */
  async function create({ redis }: { readonly redis: RedisClient }, maxHoldMs?: number): Promise<Lock> {
    const steps = { acquire: acquire(redis), renew: renew?.(redis), release: release(redis) };
    return rungLock({ name: row.name, neverExpires, maxHoldMs, ...steps });
  }
  return { description, create };
});
