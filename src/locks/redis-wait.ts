/**
 * A lock in one Redis that counts only when replicas have it too.
 *
 *   taken at the primary ──WAIT: enough replicas have it──▶ held ──renewed, and WAITed for again──▶ held
 *                              └──too few in WAIT_MS──▶ given back at the primary: unavailable
 *
 * `WAIT` counts for what its own connection wrote, so the lock has a connection of its own; after a reconnection it
 * would count for nothing written and say yes, so an answer counts only when the connection is still the same one.
 * It also blocks its connection: all who ask while one WAIT runs share the next one.
 */
import type { RedisStore } from '../store/redis/connection.ts';
import { defineScript } from '../store/redis/script.ts';
import { fenceKey, lockKey } from './kit/keys.ts';
import { polledLock } from './kit/polled-lock.ts';
import { SERVER_CLOCK_FLAW } from './kit/server-clock.ts';
import type { Lock, LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-wait',
  summary:
    'One Redis with replicas: a lease counts, and is renewed, only when WAIT has counted enough of them.',
  flaw: `With several replicas only a majority has a lease: promoting one that is not the most advanced of a majority lets a second holder in. ${SERVER_CLOCK_FLAW}`,
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
    survivesFailover: true,
  },
};

/** Replicas that work answer within a round trip; nothing else runs on the connection until then. */
const WAIT_MS = 200;

/** A command of the lock's own connection was answered by too few replicas. */
class TooFewReplicasError extends Error {
  override readonly name = 'TooFewReplicasError';
  readonly code = 'ERR_STAMPEDE_TOO_FEW_REPLICAS';
}

interface Context {
  readonly redis: RedisStore;
  readonly onError: (doing: string, error: unknown) => void;
}

export async function create({ redis, onError }: Context): Promise<Lock> {
  const own = redis.redis.duplicate();
  let connection = 0;
  own.on('close', () => connection++);
  own.on('error', (error) => onError('redis-wait-connection', error));
  await own.connect().catch((error) => {
    own.disconnect();
    throw error;
  });
  const take = defineScript<number>(own, 'lock/acquire', 2);
  const prolong = defineScript<number>(own, 'lock/renew', 1);
  const unlock = defineScript<number>(own, 'lock/release', 1);

  /** What the replicas have is more than half of the group, counting the primary; at least one of them has it. */
  async function askReplicas(): Promise<boolean> {
    const online = (await own.info('replication')).match(/^slave\d+:.*state=online/gm)?.length ?? 0;
    const needed = Math.max(1, Math.floor((online + 1) / 2));
    return online >= needed && (await own.wait(needed, WAIT_MS)) >= needed;
  }

  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<boolean> | null = null;
  /** Whether enough replicas have what was written before the call. */
  function replicated(): Promise<boolean> {
    next ??= running.then(() => {
      next = null;
      const asked = askReplicas();
      running = asked.catch(() => {});
      return asked;
    });
    return next;
  }

  /** @throws when it may not be so */
  async function confirm(writtenOn: number): Promise<void> {
    const enough = await replicated();
    if (!enough || writtenOn !== connection) throw new TooFewReplicasError('too few replicas have the lease');
  }

  return polledLock({
    name: description.name,
    keepsPlace: false,
    async ask({ resource, token, options }) {
      const writtenOn = connection;
      const fencingToken = await take(lockKey(resource), fenceKey(resource), token, options.ttlMs);
      if (fencingToken <= 0) return { kind: 'wait' };
      try {
        await confirm(writtenOn);
        return { kind: 'held', fencingToken };
      } catch {
        await unlock(lockKey(resource), token);
        return { kind: 'unavailable', reason: 'redis-too-few-replicas' };
      }
    },
    async renew({ resource, token, options }) {
      const writtenOn = connection;
      if ((await prolong(lockKey(resource), token, options.ttlMs)) !== 1) return false;
      await confirm(writtenOn); // not known to be lost: the deadline stands
      return true;
    },
    release: async ({ resource, token }) => (await unlock(lockKey(resource), token)) === 1,
    close: () => own.disconnect(),
  });
}
