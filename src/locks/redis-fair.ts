/**
 * A lock in one Redis that is had in the order of asking, across processes.
 *
 *   ask ──free, and nobody before──▶ held
 *    └──▶ in line ──asks again, which keeps the place──▶ first, and free ──▶ held
 *            ├──stops waiting──▶ leaves its place
 *            └──dies──▶ its place ends PLACE_MS after its last question
 *
 * Whoever stands further behind asks less often. Asking once (`waitMs` 0) takes no place, and does not overtake.
 */
import type { RedisStore } from '../store/redis/connection.ts';
import { defineScript } from '../store/redis/script.ts';
import { fenceKey, keyOf, lockKey } from './kit/keys.ts';
import { polledLock } from './kit/polled-lock.ts';
import { SERVER_CLOCK_FLAW } from './kit/server-clock.ts';
import type { Lock, LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-fair',
  summary: 'One Redis, first come first served across processes; the place of a dead waiter ends by itself.',
  flaw: SERVER_CLOCK_FLAW,
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: true,
    fenced: true,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

/** A dead waiter that comes first holds the line up for so long; a live one that stalls for longer goes to its end. */
const PLACE_MS = 1_000;
/** For each one that is before the asker but the holder; and at most, to ask some times before the place ends. */
const EXTRA_MS = 4;
const EXTRA_MOST_MS = 100;

export async function create({ redis }: { readonly redis: RedisStore }): Promise<Lock> {
  const take = defineScript<number>(redis.redis, 'lock/fair-acquire', 4);
  const leave = defineScript<number>(redis.redis, 'lock/queued-release', 3);
  return polledLock({
    name: description.name,
    keepsPlace: true,
    async ask({ resource, token, options }) {
      const key = keys(resource);
      const placeMs = options.waitMs > 0 ? PLACE_MS : 0;
      const reply = await take(key.lock, key.fence, key.line, key.places, token, options.ttlMs, placeMs);
      if (reply > 0) return { kind: 'held', fencingToken: reply };
      return { kind: 'wait', extraMs: Math.min((-reply - 1) * EXTRA_MS, EXTRA_MOST_MS) };
    },
    renew: ({ resource, token, options }) => redis.scripts.renew(keys(resource).lock, token, options.ttlMs),
    async release({ resource, token }) {
      const key = keys(resource);
      return (await leave(key.lock, key.line, key.places, token)) === 1;
    },
  });
}

const keys = (resource: string) => ({
  lock: lockKey(resource),
  fence: fenceKey(resource),
  line: keyOf(resource, 'line'),
  places: keyOf(resource, 'places'),
});
