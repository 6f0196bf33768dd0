/**
 * Whether replicas have what was written through a connection: `WAIT`, which counts acknowledgements of its connection's
 * writes. It blocks the connection, so all callers that arrive during one WAIT share the next.
 *
 *   write ──answered──▶ confirm ──enough replicas acknowledged──▶ true
 *                          └──too few within REPLICATION_MS──▶ false
 *
 * The caller compares the connection before the write with the one after: on another one, WAIT covers other writes.
 */
import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import { isStill } from '../../locks/adapters/redis-errors.ts';
import { REPLICATION_MS, type Replication, sharedCheck } from '../../locks/kit/replication.ts';

/** After a failure no attempt waits for that long: attempts must not queue behind a connection that is blocked again and again. */
const PAUSE_MS = 1_000;

/** Confirms once `replicas` of them have acknowledged; see `REDIS_WAIT`. It throws why Redis cannot count them. */
export function waitingFor(redis: Redis, replicas: number): Replication {
  let pausedUntilMs = 0;
  let failure: PromiseSettledResult<unknown> | null = null; // of the try before the pause
  return sharedCheck(async (keys) => {
    if (performance.now() < pausedUntilMs) return none();
    // WAIT covers what other connections wrote before its own connection's last write. The keys are new on
    // purpose: while its slot moves, its server redirects writes of new keys, so the check fails and the order is committed first.
    const mark = (key: string) => isStill(redis.set(`${key}:${randomUUID()}`, '1', 'PX', 1));
    const marked = Promise.all(keys.map(mark));
    const acknowledged = redis.wait(replicas, REPLICATION_MS);
    const [areThere, count] = await Promise.allSettled([marked, acknowledged]);
    if (areThere.status === 'fulfilled' && count.status === 'fulfilled' && count.value >= replicas)
      return keys.filter((_, i) => areThere.value[i]);
    pausedUntilMs = performance.now() + PAUSE_MS;
    failure = [areThere, count].find(({ status }) => status === 'rejected') ?? null;
    return none();
  });

  function none(): readonly string[] {
    if (failure !== null) throw (failure as PromiseRejectedResult).reason;
    return [];
  }
}
