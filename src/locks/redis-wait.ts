/**
 * A lock in one Redis that is held only once replicas have it.
 *
 *   set at the primary ──WAIT: enough replicas acknowledged──▶ held ──renewed, and acknowledged again──▶ held
 *                              └──too few within WAIT_MS──▶ released at the primary: unavailable
 *
 * `WAIT` counts acknowledgements for the writes of its own connection, so the lock has a dedicated one. After a
 * reconnection it would confirm writes that it does not cover, so its result counts only on an unchanged connection.
 * It also blocks its connection: all requests that arrive during one WAIT share the next.
 */
import type { RedisStore } from '../store/redis/connection.ts';
import { defineScript } from '../store/redis/script.ts';
import { polledLock } from './kit/polled-lock.ts';
import { defineTokenScripts, fenceKey, lockKey, SERVER_CLOCK_FLAW } from './kit/redis.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-wait',
  summary:
    'One Redis with replicas: acquire and renewal count only after enough replicas acknowledged them (WAIT).',
  flaw: `Of several replicas only a majority has a lease: a failover that promotes another one admits a second holder. ${SERVER_CLOCK_FLAW}`,
  needs: 'REDIS_URL',
  capabilities: [...LEASE_CAPABILITIES, 'fencing-tokens', 'survives-failover'],
};

/** Healthy replicas acknowledge within a round trip. The connection is blocked until then. */
const WAIT_MS = 200;

class TooFewReplicasError extends Error {
  override readonly name = 'TooFewReplicasError';
  readonly code = 'ERR_STAMPEDE_TOO_FEW_REPLICAS';
}

interface Context {
  readonly redis: RedisStore;
  readonly onError: (doing: string, error: unknown) => void;
}

export async function create({ redis, onError }: Context): Promise<Lock> {
  const dedicated = redis.redis.duplicate();
  let connections = 0;
  dedicated.on('close', () => connections++);
  dedicated.on('error', (error) => onError('redis-wait-connection', error));
  await dedicated.connect().catch((error) => {
    dedicated.disconnect();
    throw error;
  });
  const acquire = defineScript<number>(dedicated, 'lock/acquire', 2);
  const scripts = defineTokenScripts(dedicated);

  /** Requires acknowledgements that, with the primary, are more than half of the group; at least one. */
  async function waitForReplicas(): Promise<boolean> {
    const online = (await dedicated.info('replication')).match(/^slave\d+:.*state=online/gm)?.length ?? 0;
    const needed = Math.max(1, Math.floor((online + 1) / 2));
    return online >= needed && (await dedicated.wait(needed, WAIT_MS)) >= needed;
  }

  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<boolean> | null = null;
  /** Whether enough replicas have all writes from before the call. */
  function isReplicated(): Promise<boolean> {
    next ??= running.then(() => {
      next = null;
      const waiting = waitForReplicas();
      running = waiting.catch(() => {});
      return waiting;
    });
    return next;
  }

  /** @throws unless the replicas certainly have what was written on this connection */
  async function confirm(connection: number): Promise<void> {
    const isEnough = await isReplicated();
    if (!isEnough || connection !== connections)
      throw new TooFewReplicasError('too few replicas have the lease');
  }

  return polledLock({
    name: description.name,
    queuesAtServer: false,
    async tryAcquire({ resource, token, options }) {
      const connection = connections;
      const fencingToken = await acquire(lockKey(resource), fenceKey(resource), token, options.ttlMs);
      if (fencingToken <= 0) return { kind: 'retry' };
      try {
        await confirm(connection);
        return { kind: 'held', fencingToken };
      } catch {
        await scripts.release(resource, token);
        return { kind: 'unavailable', reason: 'redis-too-few-replicas' };
      }
    },
    async renew({ resource, token, options }) {
      const connection = connections;
      if (!(await scripts.renew(resource, token, options.ttlMs))) return false;
      await confirm(connection); // a failure leaves the deadline unchanged
      return true;
    },
    release: ({ resource, token }) => scripts.release(resource, token),
    close: () => dedicated.disconnect(),
  });
}
