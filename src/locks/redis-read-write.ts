/**
 * A lock in one Redis that readers share and a writer has alone.
 *
 *   read  ──no writer holds or waits──▶ a share of its own, with its own expiry
 *   write ──nobody holds──▶ held
 *      └──▶ waits: no new reader comes in ──the last share is given back, or ends──▶ held
 *              └──stops waiting, or dies: its claim ends CLAIM_MS after its last question──▶ readers come in again
 *
 * Shares and claims are judged by the server's clock. A writer's lease is a key of its own, as other locks keep it.
 */
import type { RedisStore } from '../store/redis/connection.ts';
import { defineScript } from '../store/redis/script.ts';
import { fenceKey, keyOf, lockKey } from './kit/keys.ts';
import { polledLock } from './kit/polled-lock.ts';
import { SERVER_CLOCK_FLAW } from './kit/server-clock.ts';
import type { Lock, LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-read-write',
  summary:
    'One Redis: readers share, a writer is alone and is not starved; writers are fenced, readers are not.',
  flaw: `Writers that come without a pause keep readers out. ${SERVER_CLOCK_FLAW}`,
  needs: 'REDIS_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: false,
    fenced: true,
    waitsByEvent: false,
    survivesFailover: false,
  },
};

/** A dead waiting writer keeps readers out for so long; a live one asks many times within it. */
const CLAIM_MS = 1_000;

export async function create({ redis }: { readonly redis: RedisStore }): Promise<Lock> {
  const read = defineScript<number>(redis.redis, 'lock/read-acquire', 3);
  const prolongRead = defineScript<number>(redis.redis, 'lock/read-renew', 1);
  const endRead = defineScript<number>(redis.redis, 'lock/read-release', 1);
  const write = defineScript<number>(redis.redis, 'lock/write-acquire', 4);
  const leave = defineScript<number>(redis.redis, 'lock/queued-release', 2);
  return polledLock({
    name: description.name,
    keepsPlace: true,
    async ask({ resource, token, options }) {
      const { lock, fence, readers, writers } = keys(resource);
      if (options.mode === 'read') {
        const taken = await read(lock, readers, writers, token, options.ttlMs);
        return taken === 1 ? { kind: 'held', fencingToken: null } : { kind: 'wait' };
      }
      const claimMs = options.waitMs > 0 ? CLAIM_MS : 0;
      const reply = await write(lock, fence, readers, writers, token, options.ttlMs, claimMs);
      return reply > 0 ? { kind: 'held', fencingToken: reply } : { kind: 'wait' };
    },
    async renew({ resource, token, options: { ttlMs, mode } }) {
      const { lock, readers } = keys(resource);
      return mode === 'read'
        ? (await prolongRead(readers, token, ttlMs)) === 1
        : redis.scripts.renew(lock, token, ttlMs);
    },
    async release({ resource, token, options: { mode } }) {
      const { lock, readers, writers } = keys(resource);
      return (mode === 'read' ? await endRead(readers, token) : await leave(lock, writers, token)) === 1;
    },
  });
}

const keys = (resource: string) => ({
  lock: lockKey(resource),
  fence: fenceKey(resource),
  readers: keyOf(resource, 'readers'),
  writers: keyOf(resource, 'writers'),
});
