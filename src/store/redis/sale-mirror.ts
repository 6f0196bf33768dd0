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
 * fewer (a process died between the two stores), `orders/reservation-reaper.ts` corrects it.
 */

import { limits } from '../../config/limits.ts';
import { bySale } from '../../domain/by-sale.ts';
import type { MirrorChange } from '../../domain/order.ts';
import type { ClaimedReservation, Reservation } from '../../domain/outcome.ts';
import type { Sale } from '../../domain/sale.ts';
import { homeSegment } from '../../domain/segments.ts';
import type { OrderTable } from '../postgres/orders.ts';
import type { RedisStore } from './connection.ts';
import type { RedisEpochs } from './epochs.ts';
import { type MirrorSnapshot, madeAtMs, readEntry, type SaleDigest, type SaleKeys } from './scripts.ts';

/** Buyers written to Redis in one command while a sale is opened. */
const BUYERS_PAGE = 1_000;
/** A copy of the buyers whose process died before it was taken over goes away by itself, after seconds. */
const COPY_TTL_S = 300;

/** Sales whose keys are at hand. */
const KNOWN_MOST = 10_000;

export interface SaleMirror {
  keys(saleId: number): SaleKeys;
  /** In which the sales must have been opened: see store/redis/epochs.ts. @throws when it cannot be found out now */
  epoch(): Promise<number>;
  /** The same where nothing has to be asked; null: ask. */
  readonly knownEpoch: number | null;
  /** Puts the sale into Redis unless it is there. @returns whether this call did. */
  load(sale: Sale): Promise<boolean>;
  /**
   * Releases a reservation. `discardUnit: true` when Postgres has no such unit.
   * @returns false when it was settled before, or another process has claimed it
   */
  release(
    reservation: ClaimedReservation,
    options?: { discardUnit?: boolean; ownerOrderId?: string },
  ): Promise<boolean>;
  /** Forgets reservations, of any sales that are open, that Postgres has. */
  acknowledge(committed: readonly Reservation[]): Promise<void>;
  /** Claims a reservation that another attempt made: see lua/sale/claim.lua. */
  claim(reservation: Reservation): Promise<ClaimedReservation | 'claimed-by-another' | 'released'>;
  /** Claims reservations of a sale whose processes left them, oldest first. */
  claimAbandoned(saleId: number, most: number): Promise<readonly ClaimedReservation[]>;
  /** Gives up a claim whose reservation was neither committed nor released. */
  unclaim(reservation: ClaimedReservation): Promise<void>;
  /** Whether an order is reserved in one of these sales. */
  isReserved(orderId: string, saleIds: readonly number[]): Promise<boolean>;
  /** Whether a customer has a reservation. */
  isReservedFor(saleId: number, userId: string): Promise<boolean>;
  /** How many reservations of a sale are not claimed any more, by Redis's clock. */
  countAbandoned(saleId: number): Promise<number>;
  /**
   * Tells Redis of a unit that Postgres returned, or took again; once, however often it is called.
   * @returns false when the sale is not in Redis: whoever opens it reads Postgres, then or a moment ago
   */
  applyChange(move: MirrorChange): Promise<boolean>;
  /** Adds units, those of a restock once, or takes free ones: see lua/sale/restock.lua. */
  restock(saleId: number, units: number, restock?: string): Promise<number | null>;
  snapshot(saleId: number): Promise<MirrorSnapshot | null>;
  /** A quick look at many sales, one for each, in their order. */
  scan(saleIds: readonly number[]): Promise<readonly SaleDigest[]>;
  /**
   * Makes the sale in Redis what it is in Postgres, units and buyers, unless anything happened since `seen`.
   * @param remaining what Postgres said after `seen`
   */
  repair(saleId: number, seen: MirrorSnapshot, remaining: number): Promise<boolean>;
}

/** When a claim ends that is made by a command sent after this call, on `performance.now()`'s clock. */
export function claimEndMs(): number {
  return performance.now() + limits.claimMs - limits.claimMarginMs;
}

/** A reservation with the claim of the attempt that made it. */
export function withFirstClaim(reservation: Reservation, untilMs: number): ClaimedReservation {
  return { ...reservation, claimedAtMs: madeAtMs(reservation), untilMs, isFirst: true };
}

/**
 * @param segments how many counters a sale has; 0 for a single one
 */
export function createSaleMirror(
  { redis, scripts }: RedisStore,
  epochs: RedisEpochs,
  orders: OrderTable,
  segments: number,
): SaleMirror {
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
    async load(sale) {
      const epoch = await epochs.current();
      const entries = await redis.zrange(keys(sale.id).reservations, '0', '-1');
      const reserved = entries.map((entry) => readEntry(sale.id, entry));
      // Units, buyers and reservations of one instant in Postgres; what changes after it is told to Redis by who does.
      const snapshot = await orders.snapshot(
        sale.id,
        reserved.map((r) => r.orderId),
        (pages) => copyBuyers(sale.id, pages),
      );
      return scripts.load(keys(sale.id), snapshot.value, {
        epoch,
        committed: reserved.filter((r) => snapshot.known.has(r.orderId)),
        remaining: snapshot.remaining,
        restocks: snapshot.restocks,
        segments,
        startsMs: sale.startsAt === null ? null : Date.parse(sale.startsAt),
        endsMs: sale.endsAt === null ? null : Date.parse(sale.endsAt),
      });
    },
    release(reservation, { discardUnit = false, ownerOrderId = '' } = {}) {
      return scripts.release(keys(reservation.saleId), { ...reservation, discardUnit, ownerOrderId });
    },
    async acknowledge(committed) {
      const sales = [...bySale(committed, (r) => r.saleId)];
      if (sales.length === 0) return;
      const epoch = epochs.known ?? (await epochs.current());
      await scripts.acknowledge(
        sales.map(([saleId, members]) => ({ keys: keys(saleId), members })),
        epoch,
      );
    },
    async claim(reservation) {
      const untilMs = claimEndMs();
      const claimedAtMs = await scripts.claim(keys(reservation.saleId), reservation);
      if (typeof claimedAtMs === 'string') return claimedAtMs;
      return { ...reservation, claimedAtMs, untilMs, isFirst: false };
    },
    async claimAbandoned(saleId, most) {
      const untilMs = claimEndMs();
      const { claimedAtMs, entries } = await scripts.claimAbandoned(keys(saleId), most);
      return entries.map((entry) => {
        const reservation = readEntry(saleId, entry);
        return { ...reservation, claimedAtMs, untilMs, isFirst: false };
      });
    },
    unclaim: (reservation) => scripts.unclaim(keys(reservation.saleId), reservation, reservation.claimedAtMs),
    async isReserved(orderId, saleIds) {
      for (let from = 0; from < saleIds.length; from += limits.scanBatch) {
        const some = saleIds.slice(from, from + limits.scanBatch);
        if (await scripts.findReservation(some.map(keys), orderId)) return true;
      }
      return false;
    },
    async isReservedFor(saleId, userId) {
      const { buyers, reservations } = keys(saleId);
      const record = await redis.hget(buyers, userId);
      return record !== null && (await redis.zscore(reservations, `${userId} ${record}`)) !== null;
    },
    async countAbandoned(saleId) {
      const [seconds, micros] = await redis.time();
      const untilMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000) - limits.claimMs;
      return redis.zcount(keys(saleId).reservations, '-inf', untilMs);
    },
    async applyChange({ direction, saleId, userId, orderId }) {
      const counter = segments > 0 ? String(homeSegment(userId, segments)) : 'remaining';
      const told = { direction, userId, orderId, counter };
      return (await scripts.applyChange(keys(saleId), told, await epochs.current())) !== null;
    },
    restock: async (saleId, units, restock) =>
      scripts.restock(keys(saleId), units, await epochs.current(), restock),
    scan: async (saleIds) => scripts.scan(saleIds.map(keys), await epochs.current()),
    snapshot: async (saleId) => scripts.snapshot(keys(saleId), await epochs.current()),
    async repair(saleId, seen, remaining) {
      const copy = await copyBuyers(saleId, orders.buyers(saleId, BUYERS_PAGE));
      return scripts.repair(keys(saleId), copy, seen, remaining);
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
