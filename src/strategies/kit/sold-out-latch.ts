/**
 * The sales that this process knows to be sold out, so that it can reject late customers without querying Redis.
 *
 *   (unknown) ──Redis answered "sold out"──▶ arming: read the generation, all buyers, the generation again
 *       ▲                                        └──unchanged, and sold out──▶ latched
 *       │                                                                        │ confirmed every latchCheckMs
 *       └── a unit was released (notification), another generation, or no confirmation in time ◀──┘
 *
 * Each script that releases a unit, or adds a buyer without taking a unit, increments `generation`. While the generation stays
 * the same and no unit is free, nothing can be bought: the buyers that were read are complete, and every other customer gets
 * "sold out". Attempts by buyers are passed on to Redis, which knows their orders. The buyers are kept in a Bloom filter, two
 * bytes each; a false positive costs one request to Redis.
 *
 * A confirmation counts from the moment it was requested, for at most latchTtlMs: a process that was suspended asks Redis
 * first. So each process offers a released unit within 100 ms. With Sentinel, Postgres confirms that no other copy of the sale was
 * loaded: an old primary that still serves knows of no release.
 */
import type { Redis } from 'ioredis';
import { limits } from '../../config/limits.ts';
import type { RedisStore } from '../../store/redis/connection.ts';
import type { SaleMirror } from '../../store/redis/sale-mirror.ts';
import type { KnownSoldOut } from '../strategy.ts';
import { BloomFilter } from './bloom-filter.ts';

export interface SoldOutLatch extends KnownSoldOut {
  /** Starts to latch a sale that Redis has answered "sold out" for. */
  markSoldOut(saleId: number): void;
}

export interface LatchContext {
  readonly redis: RedisStore;
  readonly mirror: Pick<SaleMirror, 'keys' | 'epoch' | 'isCurrent'>;
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

/** Scripts publish released units here; the message is the key of the sale's state. */
const CHANNEL = 'stampede:generations';
/** Buyers read in one command. */
const PAGE = 1_000;
/** Arming reads all buyers: after a failed one, the next waits for this multiple of its duration. */
const BACK_OFF = 10;

/** A latch without requests for this long is dropped, milliseconds. */
const IDLE_MS = 10_000;

interface Confirmed {
  readonly generation: string;
  /** On `performance.now()`'s clock. */
  readonly untilMs: number;
}

interface Latched extends Confirmed {
  readonly buyers: BloomFilter;
  untilMs: number;
  usedMs: number;
}

export function soldOutLatch({ redis, mirror, onError }: LatchContext): SoldOutLatch {
  const latched = new Map<number, Latched>();
  const arming = new Set<number>();
  /** Not before these instants, on `performance.now()`'s clock. */
  const notBefore = new Map<number, number>();
  let timer: NodeJS.Timeout | null = null;
  let subscriber: Redis | null = null;
  let confirming = false;
  let closed = false;

  /** @returns for each sale its generation, and until when it is valid; null: not sold out */
  async function states(saleIds: readonly number[]): Promise<(Confirmed | null)[]> {
    const askedMs = performance.now();
    const asked = saleIds.map(async (id) => ({ id, keys: mirror.keys(id), epoch: await mirror.epoch(id) }));
    const sales = await Promise.all(asked);
    const replies = await redis.scripts.soldOut(sales);
    const isCurrent = redis.hasSentinels
      ? await Promise.all(sales.map(({ id, epoch }) => mirror.isCurrent(id, epoch)))
      : null;
    return replies.map((reply, i) => {
      if (reply === null || isCurrent?.[i] === false) return null;
      const endsMs = reply.endsInMs < 0 ? Number.POSITIVE_INFINITY : askedMs + reply.endsInMs;
      return { generation: reply.generation, untilMs: Math.min(askedMs + limits.latchTtlMs, endsMs) };
    });
  }

  async function arm(saleId: number): Promise<void> {
    const [before] = await states([saleId]);
    if (!before) return;
    const buyers = await readBuyers(redis.redis, mirror.keys(saleId).buyers);
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
      // Their confirmations expire by themselves.
    } finally {
      confirming = false;
    }
    if (latched.size === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  }

  /** Subscribes to released units. Without a subscription, the next confirmation notices them. */
  function listen(): void {
    if (subscriber !== null || closed) return;
    subscriber = redis.connectionTo(CHANNEL, {
      lazyConnect: true,
      enableOfflineQueue: true,
      autoResubscribe: false,
    });
    const connection = subscriber;
    connection.on('error', () => {});
    connection.on('message', (_channel, key: string) =>
      latched.delete(Number(/\{sale:(\d+)\}/.exec(key)?.[1])),
    );
    connection.on('ready', () => void connection.subscribe(CHANNEL).catch(() => {}));
    connection.connect().catch(() => {}); // it keeps trying
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
        .catch((error) => onError('arm-sold-out-latch', error, { saleId }))
        .finally(() => {
          arming.delete(saleId);
          if (notBefore.size > limits.maxLatches) notBefore.clear();
          const nowMs = performance.now();
          notBefore.set(saleId, nowMs + BACK_OFF * (nowMs - startedMs));
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
  // Twice the capacity: with cancellations there are more buyers than units.
  const buyers = new BloomFilter(2 * (await redis.hlen(key)));
  let cursor = '0';
  do {
    const [next, entries] = await redis.hscan(key, cursor, 'COUNT', PAGE);
    for (let i = 0; i < entries.length; i += 2) buyers.add(entries[i]!);
    cursor = next;
  } while (cursor !== '0');
  return buyers;
}
