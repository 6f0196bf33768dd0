/**
 * A lock in one Redis without scripts: the server itself compares the token, in the command that renews or releases.
 *
 *   free ──SET NX PX──▶ held ──SET IFEQ PX, every TTL/3──▶ held, with a later deadline
 *                        │                          └──nil: another's, or free: lost
 *                        └──DELIFEQ (Valkey) or DELEX IFEQ (Redis)──▶ free, or left to another
 *
 * The commands are probed for, because a fork's version says little: `DELIFEQ` came with Valkey 9.0, `DELEX` with Redis 8.4.
 * Both have `SET IFEQ`. Source: the command references of valkey.io and redis.io.
 */
import type { RedisClient } from './clients.ts';
import { polledLock } from './kit/polled-lock.ts';
import { lockKey, SERVER_CLOCK_FLAW } from './kit/redis.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription, LockSetupError } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-cas',
  summary:
    'One Valkey 9 or Redis 8.4: SET NX PX, renewed by SET IFEQ, released by DELIFEQ or DELEX; no script.',
  flaw: SERVER_CLOCK_FLAW,
  needs: 'REDIS_URL',
  capabilities: LEASE_CAPABILITIES,
};

/** @throws LockSetupError if the server lacks the commands; errors of Redis if it cannot be asked */
export async function create({ redis }: { readonly redis: RedisClient }): Promise<Lock> {
  const deleteIfEqual = await probe(redis);
  const set = (key: string, token: string, ttlMs: number, ...condition: string[]) =>
    redis.send('SET', key, token, 'PX', ttlMs, ...condition);
  return polledLock({
    name: description.name,
    async tryAcquire({ resource, token, ttlMs }) {
      const reply = await set(lockKey(resource), token, ttlMs, 'NX');
      return reply === 'OK' ? { kind: 'held', fencingToken: null } : { kind: 'retry' };
    },
    renew: async ({ resource, token, ttlMs }) =>
      (await set(lockKey(resource), token, ttlMs, 'IFEQ', token)) === 'OK',
    release: async ({ resource, token }) => (await deleteIfEqual(lockKey(resource), token)) === 1,
  });
}

type DeleteIfEqual = (key: string, token: string) => Promise<unknown>;

/** The server's command that deletes a key only if it has a value. */
async function probe(redis: RedisClient): Promise<DeleteIfEqual> {
  const found = (await redis.send('COMMAND', 'INFO', 'DELIFEQ', 'DELEX')) as readonly unknown[];
  const [hasDelifeq, hasDelex] = found.map(Boolean);
  if (hasDelifeq) return (key, token) => redis.send('DELIFEQ', key, token);
  if (hasDelex) return (key, token) => redis.send('DELEX', key, 'IFEQ', token);
  throw new LockSetupError(
    'the server has neither DELIFEQ (Valkey 9.0 or later) nor DELEX (Redis 8.4 or later); LOCK=redis works without them',
  );
}
