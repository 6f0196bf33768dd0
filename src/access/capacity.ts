/**
 * How many attempts a second all processes of the service can serve, for the waiting room. Each process measures what it serves
 * and writes it to one hash in Redis, every second, and adds up what the others wrote there.
 *
 * While attempts are queued, the load shedder's limit shows what the stores sustain. While none is queued, the service is faster
 * than its customers; if they took most of what was assumed, a little more is assumed.
 */
import { randomUUID } from 'node:crypto';
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { repeatedly } from '../concurrency/periodic.ts';
import { limits } from '../config/limits.ts';
import type { RedisStore } from '../store/redis/connection.ts';

export interface Capacity {
  /** Attempts a second, of all processes. */
  readonly perSecond: number;
  stop(): Promise<void>;
}

const KEY = 'stampede:capacity';

/** What one process can serve, measured between two calls of `measure`. */
export function ownCapacity(shedder: LoadShedder): {
  readonly perSecond: number;
  measure(elapsedMs: number): void;
} {
  let perSecond = shedder.state.perSecond;
  let { served, queuedEver } = shedder.state;
  return {
    get perSecond() {
      return perSecond;
    },
    measure(elapsedMs) {
      const now = shedder.state;
      const rate = ((now.served - served) / elapsedMs) * 1_000;
      const { capacityGrowth, capacityUsed } = limits.tickets;
      if (now.queuedEver > queuedEver) perSecond = now.perSecond;
      else if (rate > capacityUsed * perSecond) perSecond *= capacityGrowth;
      ({ served, queuedEver } = now);
    },
  };
}

/** @param onError receives failures of Redis; the last known figures stay in use */
export function shareCapacity(
  { redis }: RedisStore,
  shedder: LoadShedder,
  onError: (error: unknown) => void,
): Capacity {
  const self = randomUUID();
  const own = ownCapacity(shedder);
  let others = 0;
  let measuredMs = performance.now();

  async function exchange(): Promise<void> {
    const nowMs = performance.now();
    own.measure(nowMs - measuredMs);
    measuredMs = nowMs;
    const wallMs = Date.now();
    await redis.hset(KEY, self, `${Math.round(own.perSecond)} ${wallMs}`);
    others = 0;
    for (const [id, text] of Object.entries(await redis.hgetall(KEY))) {
      const [perSecond, writtenMs] = text.split(' ').map(Number) as [number, number];
      if (wallMs - writtenMs > limits.tickets.capacityMaxAgeMs) await redis.hdel(KEY, id);
      else if (id !== self) others += perSecond;
    }
  }

  const stop = repeatedly(limits.tickets.capacityEveryMs, () => exchange().catch(onError));
  return {
    get perSecond() {
      return own.perSecond + others;
    },
    async stop() {
      await stop();
      await redis.hdel(KEY, self).catch(() => {});
    },
  };
}
