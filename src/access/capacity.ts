/**
 * How many attempts a second all processes of the service can serve, for the waiting room. Each process measures what it serves
 * and writes it to one hash in Redis, every second, and adds up what the others wrote there lately, by the clock of Redis. Without Redis
 * it assumes that each process of its own service serves as much, and counts no other machine.
 *
 * While attempts are queued, the load shedder's limit shows what the stores sustain. While none is queued, the service is faster
 * than its customers; if they took most of what was assumed, a little more is assumed.
 */
import { randomUUID } from 'node:crypto';
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { repeatedly } from '../concurrency/periodic.ts';
import { limits } from '../config/limits.ts';
import type { RedisStore } from '../store/redis/connection.ts';
import { defineScript } from '../store/redis/load-script.ts';

export interface Capacity {
  /** Attempts a second, of all processes. */
  readonly perSecond: number;
  stop(): Promise<void>;
}

const KEY = 'stampede:capacity';

/** What one process can serve, measured between two calls of `measure`. */
function ownCapacity(shedder: LoadShedder): { readonly perSecond: number; measure(): void } {
  let { perSecond, served, queuedEver } = shedder.state;
  let measuredMs = performance.now();
  return {
    get perSecond() {
      return perSecond;
    },
    measure() {
      const nowMs = performance.now();
      const now = shedder.state;
      const rate = ((now.served - served) / (nowMs - measuredMs)) * 1_000;
      const { capacityGrowth, capacityUsed } = limits.tickets;
      if (now.queuedEver > queuedEver) perSecond = now.perSecond;
      else if (rate > capacityUsed * perSecond) perSecond *= capacityGrowth;
      ({ served, queuedEver } = now);
      measuredMs = nowMs;
    },
  };
}

/** @param processes of the service on this machine */
export function localCapacity(shedder: LoadShedder, processes: number): Capacity {
  const own = ownCapacity(shedder);
  const stop = repeatedly(limits.tickets.capacityEveryMs, async () => own.measure());
  return {
    get perSecond() {
      return own.perSecond * processes;
    },
    stop,
  };
}

/** @param onError receives failures of Redis; the last known figures stay in use */
export function shareCapacity(
  { redis }: Pick<RedisStore, 'redis'>,
  shedder: LoadShedder,
  onError: (error: unknown) => void,
): Capacity {
  const self = randomUUID();
  const own = ownCapacity(shedder);
  const note = defineScript<number>(redis, 'sale/share-capacity', 1);
  let others = 0;

  async function exchange(): Promise<void> {
    own.measure();
    others = await note(KEY, self, Math.round(own.perSecond), limits.tickets.capacityMaxAgeMs);
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
