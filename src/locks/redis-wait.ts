/**
 * A lock in one Redis that is held only once replicas have it.
 *
 *   set at the primary ──WAIT: enough replicas acknowledged──▶ held ──renewed, and acknowledged again──▶ held
 *                              └──too few──▶ released at the primary: unavailable
 *
 * `WAIT` blocks its connection, and counts only what that connection wrote, so the lock has a dedicated one: see
 * kit/replication.ts.
 */
import { randomUUID } from 'node:crypto';
import type { RedisClient, RedisServerOfKey } from './clients.ts';
import { polledLock } from './kit/polled-lock.ts';
import { defineTokenScripts, FENCED_CLOCK_FLAW, lockKey, resourceScript } from './kit/redis.ts';
import { REPLICATION_MS, type Replication, sharedCheck } from './kit/replication.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription, LockSetupError } from './lock.ts';

export const description: LockDescription = {
  name: 'redis-wait',
  summary:
    'One Redis with replicas: acquire and renewal count only after enough replicas acknowledged them (WAIT).',
  flaw: `Of several replicas only REDIS_WAIT have a lease: a failover that promotes another one admits a second holder. ${FENCED_CLOCK_FLAW}`,
  needs: 'REDIS_URL',
  capabilities: [...LEASE_CAPABILITIES, 'fencing-tokens', 'survives-failover'],
};

interface Context {
  readonly redis: RedisClient;
  /** Replicas that must have a lease, at least 1. It is given, because a primary does not list replicas that are disconnected. */
  readonly redisWait?: number;
  readonly onError: (doing: string, error: unknown) => void;
}

function newCheck(primary: RedisServerOfKey, redisWait: number, isCluster: boolean): Replication {
  return sharedCheck(async (keys) => {
    // A server that a key has left would count acknowledgements of other writes.
    const isThere = async (key: string) => !isCluster || primary.mark(`${key}:${randomUUID()}`);
    const areThere = await Promise.all(keys.map(isThere));
    const isReplicated = (await primary.wait(redisWait, REPLICATION_MS)) >= redisWait;
    return keys.filter((_, i) => isReplicated && areThere[i]);
  });
}

/** @throws LockSetupError without a number of replicas; errors of Redis if it cannot be reached */
export async function create({ redis, redisWait = 0, onError }: Context): Promise<Lock> {
  if (!(redisWait >= 1))
    throw new LockSetupError('redis-wait needs the number of replicas that must have a lease');
  const dedicated = await redis.another((error) => onError('redis-wait-connection', error));
  const acquire = resourceScript(dedicated, 'lock/acquire', 'lock', 'fence');
  const scripts = defineTokenScripts(dedicated);
  const checks = new WeakMap<RedisServerOfKey, Replication>();

  /** Notes the connection before a write. @returns a function that tells whether the replicas certainly have the write */
  function watch(resource: string): () => Promise<boolean> {
    const key = lockKey(resource);
    const server = dedicated.serverOf(key);
    const { connections } = server;
    const check = checks.get(server) ?? newCheck(server, redisWait, redis.isCluster);
    checks.set(server, check);
    return async () => (await check.confirm(key)) && server.connections === connections;
  }

  return polledLock({
    name: description.name,
    async tryAcquire(acquisition) {
      const { resource, token, ttlMs } = acquisition;
      const confirm = watch(resource);
      const fencingToken = await acquire(resource, token, ttlMs);
      if (fencingToken <= 0) return { kind: 'retry' };
      if (await confirm()) return { kind: 'held', fencingToken };
      await scripts.release(acquisition);
      return { kind: 'unavailable', reason: 'redis-too-few-replicas' };
    },
    async renew(acquisition) {
      const confirm = watch(acquisition.resource);
      if (!(await scripts.renew(acquisition))) return false;
      if (!(await confirm())) throw new Error('too few replicas have the lease'); // the deadline stays
      return true;
    },
    release: scripts.release,
    close: () => void dedicated.close(),
  });
}
