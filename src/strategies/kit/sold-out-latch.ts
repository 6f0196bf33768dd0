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
  readonly mirror: Pick<SaleMirror, 'keys' | 'findCopy' | 'isStill' | 'loadedIn'>;
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

export const soldOutLatch = (context: LatchContext): SoldOutLatch => new Latch(context);

class Latch implements SoldOutLatch {
  readonly #context: LatchContext;
  readonly #latched = new Map<number, Latched>();
  readonly #arming = new Set<number>();
  /** Not before these instants, on `performance.now()`'s clock. */
  readonly #notBefore = new Map<number, number>();
  #timer: NodeJS.Timeout | null = null;
  #subscriber: Redis | null = null;
  #confirming = false;
  #closed = false;

  constructor(context: LatchContext) {
    this.#context = context;
  }

  isSoldOut(saleId: number, userId: string): boolean {
    const known = this.#latched.get(saleId);
    if (known === undefined) return false;
    const nowMs = performance.now();
    known.usedMs = nowMs;
    return nowMs < known.untilMs && !known.buyers.has(userId);
  }

  markSoldOut(saleId: number): void {
    if (
      this.#arming.has(saleId) ||
      this.#latched.has(saleId) ||
      this.#latched.size + this.#arming.size >= limits.maxLatches
    )
      return;
    const startedMs = performance.now();
    if (startedMs < (this.#notBefore.get(saleId) ?? 0)) return;
    this.#arming.add(saleId);
    this.#arm(saleId)
      .catch((error) => this.#context.onError('arm-sold-out-latch', error, { saleId }))
      .finally(() => {
        this.#arming.delete(saleId);
        if (this.#notBefore.size > limits.maxLatches) this.#notBefore.clear();
        const nowMs = performance.now();
        this.#notBefore.set(saleId, nowMs + BACK_OFF * (nowMs - startedMs));
      });
  }

  get size(): number {
    return this.#latched.size;
  }

  close(): void {
    this.#closed = true;
    this.#latched.clear();
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#subscriber?.disconnect();
  }

  /** @returns for each sale its generation, and until when it is valid; null: not sold out */
  async #states(saleIds: readonly number[]): Promise<(Confirmed | null)[]> {
    const askedMs = performance.now();
    const asked = saleIds.map(async (id) => {
      const copy = await this.#context.mirror.findCopy(id);
      return { id, keys: this.#context.mirror.keys(id), copy, epoch: copy.epoch };
    });
    const sales = await Promise.all(asked);
    const replies = await this.#context.redis.scripts.soldOut(sales);
    const loadedIn = this.#context.redis.hasSentinels ? await this.#context.mirror.loadedIn(saleIds) : null;
    return replies.map((reply, i) => {
      const { id, copy, epoch } = sales[i]!;
      const isStale = !this.#context.mirror.isStill(id, copy); // of a Redis that was replaced meanwhile
      if (reply === null || isStale || (loadedIn?.get(id) ?? epoch) !== epoch) return null;
      const endsMs = reply.endsInMs < 0 ? Number.POSITIVE_INFINITY : askedMs + reply.endsInMs;
      return { generation: reply.generation, untilMs: Math.min(askedMs + limits.latchTtlMs, endsMs) };
    });
  }

  async #arm(saleId: number): Promise<void> {
    const [before] = await this.#states([saleId]);
    if (!before) return;
    const buyers = await readBuyers(this.#context.redis.redis, this.#context.mirror.keys(saleId).buyers);
    const [now] = await this.#states([saleId]);
    if (now?.generation !== before.generation || this.#closed) return;
    this.#latched.set(saleId, { ...now, buyers, usedMs: performance.now() });
    this.#timer ??= setInterval(() => void this.#confirm(), limits.latchCheckMs).unref();
    this.#listen();
  }

  async #confirm(): Promise<void> {
    if (this.#confirming) return;
    this.#confirming = true;
    const idleMs = performance.now() - IDLE_MS;
    for (const [saleId, { usedMs }] of this.#latched) if (usedMs < idleMs) this.#latched.delete(saleId);
    const asked = [...this.#latched];
    try {
      const found = asked.length === 0 ? [] : await this.#states(asked.map(([saleId]) => saleId));
      for (const [i, [saleId, known]] of asked.entries()) {
        if (this.#latched.get(saleId) !== known) continue;
        if (found[i]?.generation === known.generation) known.untilMs = found[i].untilMs;
        else this.#latched.delete(saleId);
      }
    } catch {
      // Their confirmations expire by themselves.
    } finally {
      this.#confirming = false;
    }
    if (this.#latched.size === 0 && this.#timer !== null) {
      clearInterval(this.#timer);
      this.#timer = null;
    }
  }

  /** Subscribes to released units. Without a subscription, the next confirmation notices them. */
  #listen(): void {
    if (this.#subscriber !== null || this.#closed) return;
    this.#subscriber = this.#context.redis.connectionTo(CHANNEL, {
      lazyConnect: true,
      enableOfflineQueue: true,
      autoResubscribe: false,
    });
    const connection = this.#subscriber;
    connection.on('error', () => {});
    connection.on('message', (_channel, key: string) =>
      this.#latched.delete(Number(/\{sale:(\d+)\}/.exec(key)?.[1])),
    );
    connection.on('ready', () => void connection.subscribe(CHANNEL).catch(() => {}));
    connection.connect().catch(() => {}); // it keeps trying
  }
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
