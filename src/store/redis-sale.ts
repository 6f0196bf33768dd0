/**
 * A sale as Redis keeps it: the units that are free, who has bought, and the reservations that Postgres does not
 * have yet. Postgres is the truth; all of this can be made again from there.
 *
 *   (absent) ──open──▶ open ──reserve/deduct──▶ a reservation ──settle──▶ committed in Postgres
 *      ▲                │                             └───────release──▶ given back
 *      └──FLUSHALL──────┘
 *
 * free units + reservations under way = stock − sold in Postgres. When Redis has more than that (it lost its memory
 * while reservations were under way), Postgres refuses the surplus and each refusal takes one unit off. When it has
 * fewer (a process died between the two stores), `orders/recover.ts` corrects it.
 */
import { bySale } from '../domain/group.ts';
import type { UnitMove } from '../domain/order.ts';
import type { Reservation } from '../domain/outcome.ts';
import type { Sale } from '../domain/sale.ts';
import { homeSegment } from '../domain/segments.ts';
import type { OrderTable } from './orders.ts';
import type { RedisStore } from './redis.ts';
import type { RedisEpochs } from './redis-epoch.ts';
import { type Glance, type Observation, readEntry, type SaleKeys } from './scripts.ts';

/** Buyers written to Redis in one command while a sale is opened. */
const BUYERS_PAGE = 1_000;
/** A copy of the buyers whose process died before it was taken over goes away by itself, after seconds. */
const COPY_TTL_S = 300;

/** Sales whose keys are at hand. */
const KNOWN_MOST = 10_000;

export interface RedisSales {
  keys(saleId: number): SaleKeys;
  /** In which the sales must have been opened: see redis-epoch.ts. @throws when it cannot be found out now */
  epoch(): Promise<number>;
  /** The same where nothing has to be asked; null: ask. */
  readonly knownEpoch: number | null;
  /** Puts the sale into Redis unless it is there. @returns whether this call did. */
  open(sale: Sale): Promise<boolean>;
  /** Gives a reservation up. `unitBack: false` when Postgres has no such unit. @returns false when it was settled before. */
  release(
    reservation: Reservation,
    options?: { unitBack?: boolean; ownerOrderId?: string },
  ): Promise<boolean>;
  /** Forgets reservations, of any sales that are open, that Postgres has. */
  settle(committed: readonly Reservation[]): Promise<void>;
  /** Reservations of a sale, oldest first, at least `ageMs` old by Redis's clock. */
  pending(saleId: number, ageMs: number, most: number): Promise<readonly Reservation[]>;
  /**
   * Tells Redis of a unit that Postgres returned, or took again; once, however often it is called.
   * @returns false when the sale is not in Redis: whoever opens it reads Postgres, then or a moment ago
   */
  move(move: UnitMove): Promise<boolean>;
  /** Adds units, those of a restock once, or takes free ones: see lua/adjust.lua. */
  adjust(saleId: number, units: number, restock?: string): Promise<number | null>;
  observe(saleId: number): Promise<Observation | null>;
  /** A quick look at many sales, one for each, in their order. */
  glance(saleIds: readonly number[]): Promise<readonly Glance[]>;
  /**
   * Makes the sale in Redis what it is in Postgres, units and buyers, unless anything happened since `seen`.
   * @param remaining what Postgres said after `seen`
   */
  correct(saleId: number, seen: Observation, remaining: number): Promise<boolean>;
}

/**
 * @param segments how many counters a sale has; 0 for a single one
 */
export function redisSales(
  { redis, scripts }: RedisStore,
  epochs: RedisEpochs,
  orders: OrderTable,
  segments: number,
): RedisSales {
  const known = new Map<number, SaleKeys>();
  /** Each attempt needs them: they are made once for a sale, and forgotten together when there are too many. */
  const keys = (saleId: number): SaleKeys => {
    let made = known.get(saleId);
    if (made === undefined) {
      if (known.size >= KNOWN_MOST) known.clear();
      made = keysOf(saleId, segments);
      known.set(saleId, made);
    }
    return made;
  };

  /** Copies the buyers that Postgres knows to a key of this call's own. */
  async function copyBuyers(
    saleId: number,
    pages: AsyncIterable<readonly { userId: string; orderId: string }[]>,
  ): Promise<string> {
    const key = `stampede:{sale:${saleId}}:buyers:${crypto.randomUUID()}`;
    for await (const page of pages) {
      await redis.hset(key, Object.fromEntries(page.map((buyer) => [buyer.userId, `${buyer.orderId} 0`])));
      await redis.expire(key, COPY_TTL_S);
    }
    return key;
  }

  return {
    keys,
    epoch: () => epochs.current(),
    get knownEpoch() {
      return epochs.known;
    },
    async open(sale) {
      const epoch = await epochs.current();
      const entries = await redis.zrange(keys(sale.id).reservations, '0', '-1');
      const reserved = entries.map((entry) => readEntry(sale.id, entry));
      // Units, buyers and reservations of one instant in Postgres; what changes after it is told to Redis by who does.
      const snapshot = await orders.snapshot(
        sale.id,
        reserved.map((r) => r.orderId),
        (pages) => copyBuyers(sale.id, pages),
      );
      return scripts.open(keys(sale.id), snapshot.value, {
        epoch,
        committed: reserved.filter((r) => snapshot.known.has(r.orderId)),
        remaining: snapshot.remaining,
        restocks: snapshot.restocks,
        segments,
        startsMs: sale.startsAt === null ? null : Date.parse(sale.startsAt),
        endsMs: sale.endsAt === null ? null : Date.parse(sale.endsAt),
      });
    },
    release(reservation, { unitBack = true, ownerOrderId = '' } = {}) {
      return scripts.release(keys(reservation.saleId), { ...reservation, unitBack, ownerOrderId });
    },
    async settle(committed) {
      const sales = [...bySale(committed, (r) => r.saleId)];
      if (sales.length === 0) return;
      const epoch = epochs.known ?? (await epochs.current());
      await scripts.settle(
        sales.map(([saleId, members]) => ({ keys: keys(saleId), members })),
        epoch,
      );
    },
    async pending(saleId, ageMs, most) {
      const [seconds, micros] = await redis.time();
      const untilMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000) - ageMs;
      const entries = await redis.zrangebyscore(keys(saleId).reservations, '-inf', untilMs, 'LIMIT', 0, most);
      return entries.map((entry) => readEntry(saleId, entry));
    },
    async move({ direction, saleId, userId, orderId }) {
      const counter = segments > 0 ? String(homeSegment(userId, segments)) : 'remaining';
      const told = { direction, userId, orderId, counter };
      return (await scripts.move(keys(saleId), told, await epochs.current())) !== null;
    },
    adjust: async (saleId, units, restock) =>
      scripts.adjust(keys(saleId), units, await epochs.current(), restock),
    glance: async (saleIds) => scripts.glance(saleIds.map(keys), await epochs.current()),
    observe: async (saleId) => scripts.observe(keys(saleId), await epochs.current()),
    async correct(saleId, seen, remaining) {
      const copy = await copyBuyers(saleId, orders.buyers(saleId, BUYERS_PAGE));
      return scripts.correct(keys(saleId), copy, seen, remaining);
    },
  };
}

function keysOf(saleId: number, segments: number): SaleKeys {
  const prefix = `stampede:{sale:${saleId}}`;
  const state = `${prefix}:state`;
  const split = `${prefix}:segments`;
  const counters = segments > 0 ? split : state;
  const [buyers, reservations, restocks] = [
    `${prefix}:buyers`,
    `${prefix}:reservations`,
    `${prefix}:restocks`,
  ];
  return { state, counters, segments: split, buyers, reservations, restocks };
}
