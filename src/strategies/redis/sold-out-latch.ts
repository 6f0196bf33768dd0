/**
 * What a process knows of sales that are sold out, so that it need not ask for each of the many who come too late.
 *
 *   (nothing) ──somebody was told "sold out"──▶ arming: read the state of the units, all buyers, the state again
 *       ▲                                           └──the same, and sold out──▶ latched
 *       │                                                                           │ confirmed every latchCheckMs
 *       └── a unit came back (notification), or the state is another one, or it was not confirmed in time ◀──┘
 *
 * Each script that gives a unit back, or a customer without taking a unit, counts `returns` up. While that number stays
 * as it is and no unit is free, nobody can have bought: so the buyers that were read are all there are, and everybody
 * else is told "sold out". Buyers ask Redis, which knows their order. They are kept as a Bloom filter, two bytes for
 * each; whom it takes for a buyer by mistake only asks in vain.
 *
 * A confirmation counts from before it was asked for, and not longer than latchBelievedMs: a process that stood still
 * asks Redis first. So a unit that comes back is on offer in every process after 100 ms at the latest.
 */
import type { Redis } from 'ioredis';
import { limits } from '../../config/limits.ts';
import type { SaleKeys, SoldOutScript } from '../../store/redis/scripts.ts';
import { BloomFilter } from './bloom-filter.ts';

export interface SoldOutLatch {
  /** Whether this customer can be told "sold out" without asking. */
  isSoldOut(saleId: number, userId: string): boolean;
  /** Redis has said "sold out": from now on it may be known here. */
  markSoldOut(saleId: number): void;
  /** Sales that this process answers for. */
  readonly size: number;
  close(): void;
}

export interface LatchContext {
  readonly redis: Redis;
  readonly soldOut: SoldOutScript;
  readonly keys: (saleId: number) => SaleKeys;
  readonly epoch: () => Promise<number>;
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

/** Where scripts tell of units that came back; the message is the key of the sale's state. */
const CHANNEL = 'stampede:generations';
/** Buyers read in one command. */
const PAGE = 1_000;
/** After an arming that came to nothing, so many times its duration: it reads all buyers. */
const REST = 10;

/** One that nobody asked about for so long is forgotten, in milliseconds. */
const IDLE_MS = 10_000;

interface Believed {
  readonly generation: string;
  /** On `performance.now()`'s clock. */
  readonly untilMs: number;
}

interface Latched extends Believed {
  readonly buyers: BloomFilter;
  untilMs: number;
  usedMs: number;
}

export function soldOutLatch(context: LatchContext): SoldOutLatch {
  const latched = new Map<number, Latched>();
  const arming = new Set<number>();
  /** Not before these instants, on `performance.now()`'s clock. */
  const notBefore = new Map<number, number>();
  let timer: NodeJS.Timeout | null = null;
  let subscriber: Redis | null = null;
  let confirming = false;
  let closed = false;

  /** Asks about sales. @returns for each its state, and until when that may be believed; null: it is not sold out */
  async function states(saleIds: readonly number[]): Promise<(Believed | null)[]> {
    const askedMs = performance.now();
    const replies = await context.soldOut(saleIds.map(context.keys), await context.epoch());
    return replies.map((reply) => {
      if (reply === null) return null;
      const endsMs = reply.endsInMs < 0 ? Number.POSITIVE_INFINITY : askedMs + reply.endsInMs;
      return { generation: reply.generation, untilMs: Math.min(askedMs + limits.latchTtlMs, endsMs) };
    });
  }

  async function arm(saleId: number): Promise<void> {
    const [before] = await states([saleId]);
    if (!before) return;
    const buyers = await readBuyers(context.redis, context.keys(saleId).buyers);
    const [now] = await states([saleId]);
    if (now?.generation !== before.generation || closed) return;
    latched.set(saleId, { ...now, buyers, usedMs: performance.now() });
    timer ??= setInterval(() => void confirm(), limits.latchCheckMs).unref();
    listen();
  }

  async function confirm(): Promise<void> {
    if (confirming) return;
    confirming = true;
    const idleMs = performance.now() - IDLE_MS;
    for (const [saleId, { usedMs }] of latched) if (usedMs < idleMs) latched.delete(saleId);
    const asked = [...latched];
    try {
      const found = asked.length === 0 ? [] : await states(asked.map(([saleId]) => saleId));
      for (const [i, [saleId, known]] of asked.entries()) {
        if (latched.get(saleId) !== known) continue;
        if (found[i]?.generation === known.generation) known.untilMs = found[i].untilMs;
        else latched.delete(saleId);
      }
    } catch {
      // They are believed no longer, by themselves.
    } finally {
      confirming = false;
    }
    if (latched.size === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  }

  /** A process hears of units at once where it can; where it cannot, the confirmations tell it a moment later. */
  function listen(): void {
    if (subscriber !== null || closed) return;
    subscriber = context.redis.duplicate({
      lazyConnect: true,
      enableOfflineQueue: true,
      autoResubscribe: false,
    });
    const hears = subscriber;
    hears.on('error', () => {});
    hears.on('message', (_channel, key: string) => latched.delete(Number(/\{sale:(\d+)\}/.exec(key)?.[1])));
    hears.on('ready', () => void hears.subscribe(CHANNEL).catch(() => {}));
    hears.connect().catch(() => {}); // it goes on trying
  }

  return {
    isSoldOut(saleId, userId) {
      const known = latched.get(saleId);
      if (known === undefined) return false;
      const nowMs = performance.now();
      known.usedMs = nowMs;
      return nowMs < known.untilMs && !known.buyers.has(userId);
    },
    markSoldOut(saleId) {
      if (arming.has(saleId) || latched.has(saleId) || latched.size + arming.size >= limits.maxLatches)
        return;
      const startedMs = performance.now();
      if (startedMs < (notBefore.get(saleId) ?? 0)) return;
      arming.add(saleId);
      arm(saleId)
        .catch((error) => context.onError('arm-sold-out-latch', error, { saleId }))
        .finally(() => {
          arming.delete(saleId);
          if (notBefore.size > limits.maxLatches) notBefore.clear();
          const nowMs = performance.now();
          notBefore.set(saleId, nowMs + REST * (nowMs - startedMs));
        });
    },
    get size() {
      return latched.size;
    },
    close() {
      closed = true;
      latched.clear();
      if (timer !== null) clearInterval(timer);
      subscriber?.disconnect();
    },
  };
}

async function readBuyers(redis: Redis, key: string): Promise<BloomFilter> {
  // Twice as many: those who are cancelled and come again are more than a sale has units.
  const buyers = new BloomFilter(2 * (await redis.hlen(key)));
  let cursor = '0';
  do {
    const [next, entries] = await redis.hscan(key, cursor, 'COUNT', PAGE);
    for (let i = 0; i < entries.length; i += 2) buyers.add(entries[i]!);
    cursor = next;
  } while (cursor !== '0');
  return buyers;
}
