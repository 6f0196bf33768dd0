/**
 * Whether replicas have what was written through a connection.
 *
 *   write ──answered──▶ confirm ──WAIT on the same connection: enough replicas acknowledged──▶ true
 *                          └──too few within REPLICATION_MS, or the connection was lost since the write──▶ false
 *
 * `WAIT` counts acknowledgements of the writes of its own connection; after a reconnection it would confirm writes that it does
 * not cover. It also blocks its connection: all callers that arrive during one WAIT share the next.
 */
import type { Redis } from 'ioredis';

/** Healthy replicas acknowledge within a round trip. The connection is blocked until then. */
export const REPLICATION_MS = 200;
/** After a failure nobody waits for that long: attempts must not queue behind a connection that is blocked again and again. */
const PAUSE_MS = 1_000;
/** What the replicas acknowledge: a WAIT also covers what other connections wrote before its own connection's last write. */
const MARK = 'stampede:replicated';

export interface Replication {
  /** How often the connection was lost: read it before the write. */
  readonly connection: number;
  /**
   * Whether enough replicas have what the connection wrote, or read, before this call.
   * @param connection as before the write
   * @throws what the check throws
   */
  confirm(connection: number): Promise<boolean>;
}

/** @param check whether the replicas have all writes from before its call */
export function replicationOf(redis: Redis, check: () => Promise<boolean>): Replication {
  let connections = 0;
  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<boolean> | null = null;
  redis.on('close', () => connections++);
  return {
    get connection() {
      return connections;
    },
    async confirm(connection) {
      next ??= running.then(() => {
        next = null;
        const checking = check();
        running = checking.catch(() => {});
        return checking;
      });
      return (await next) && connection === connections;
    },
  };
}

/** Confirms once `replicas` of them have acknowledged; see `REDIS_WAIT`. Never throws. */
export function waitingFor(redis: Redis, replicas: number): Replication {
  let pausedUntilMs = 0;
  return replicationOf(redis, async () => {
    if (performance.now() < pausedUntilMs) return false;
    const marked = redis.set(MARK, '1');
    const acknowledged = redis.wait(replicas, REPLICATION_MS);
    const [mark, count] = await Promise.allSettled([marked, acknowledged]);
    if (mark.status === 'fulfilled' && count.status === 'fulfilled' && count.value >= replicas) return true;
    pausedUntilMs = performance.now() + PAUSE_MS;
    return false;
  });
}
