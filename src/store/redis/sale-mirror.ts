/**
 * The mirror of a sale in Redis: free units, buyers, and the reservations that Postgres does not have yet. Postgres is the
 * source of truth; the mirror can be loaded from it at any time.
 *
 *   (absent) ──load──▶ loaded ──reserve/deduct──▶ a reservation ──acknowledge──▶ committed in Postgres
 *      ▲                 │                              └─────────release──────▶ its unit is free
 *      └──FLUSHALL───────┘
 *
 * Free units + pending reservations = stock − sold in Postgres. When Redis has more (it lost its memory while reservations were
 * pending), Postgres rejects the surplus, and each rejection discards one unit. When it has fewer (a process died between the
 * two stores), the reaper repairs it (orders/reservation-reaper.ts).
 */
import { coalesce } from '../../concurrency/coalesce.ts';
import { limits } from '../../config/limits.ts';
import { bySale } from '../../domain/by-sale.ts';
import { FailureError } from '../../domain/failure.ts';
import type { Attempt, MirrorChange } from '../../domain/order.ts';
import type { ClaimedReservation, Reservation } from '../../domain/outcome.ts';
import type { Sale } from '../../domain/sale.ts';
import { homeSegment } from '../../domain/segments.ts';
import type { Buyer, OrderTable } from '../postgres/orders.ts';
import type { RedisStore } from './connection.ts';
import type { RedisEpochs } from './epochs.ts';
import { keysOf, type SaleKeys } from './sale-keys.ts';
import { madeAtMs, readMember, recordOf, versionedTerms } from './sale-records.ts';
import type {
  BuyersCopy,
  MirrorSnapshot,
  OrderChange,
  ReleaseOptions,
  ReleaseReply,
  SaleDigest,
} from './sale-scripts.ts';

/** Buyers written to Redis in one command while a sale is loaded. */
const BUYERS_PAGE = 1_000;
/** Expiry of a copy of the buyers whose process died before it was used, seconds. */
const COPY_TTL_S = 300;
/** Times that a load begins again because the sale was loaded elsewhere meanwhile. */
const LOAD_TRIES = 5;
/** Sales whose keys are cached. */
const MAX_CACHED_KEYS = 10_000;

export interface SaleMirror {
  keys(saleId: number): SaleKeys;
  /** The epoch in which a sale must have been loaded: see epochs.ts. @throws when it cannot be determined now */
  epoch(saleId: number): Promise<number>;
  /** Has the sales loaded again if Postgres or Redis failed over. @throws what Postgres throws */
  checkEpochs(): Promise<void>;
  /**
   * Postgres says that the sale was loaded in another epoch than this one: see epochs.ts.
   * @returns whether this process took it for the current one
   * @throws when the server is not connected
   */
  supersede(saleId: number, epoch: number): Promise<boolean>;
  /**
   * Whether the sale is still loaded in this epoch, according to Postgres now; callers share the reads.
   * @throws what Postgres throws
   */
  isCurrent(saleId: number, epoch: number): Promise<boolean>;
  /** The same, if this process knows it; null: call `epoch`. @throws when the sale's server is not connected */
  knownEpoch(saleId: number): number | null;
  /** Loads the sale from Postgres unless it is loaded. @returns whether this call did */
  load(sale: Pick<Sale, 'id'>): Promise<boolean>;
  /**
   * Releases a reservation.
   * @returns `gone`: it was acknowledged or released before, or dropped when the sale was loaded in another epoch
   */
  release(reservation: ClaimedReservation, options?: ReleaseOptions): Promise<ReleaseReply>;
  /** Removes reservations, of any loaded sales, that Postgres has. */
  acknowledge(committed: readonly Reservation[]): Promise<void>;
  /** Claims a reservation that another attempt made: see lua/sale/claim.lua. */
  claim(reservation: Reservation): Promise<ClaimedReservation | 'claimed-by-another' | 'released'>;
  /** Claims reservations of a sale whose claims have ended, oldest first. */
  claimAbandoned(saleId: number, max: number): Promise<readonly ClaimedReservation[]>;
  /** Ends a claim whose reservation was neither committed nor released. */
  unclaim(reservation: ClaimedReservation): Promise<void>;
  /** Whether an order is reserved. @param userId only if it is this customer's; null: any, which reads all reservations of the sale */
  isReserved(saleId: number, orderId: string, userId: string | null): Promise<boolean>;
  /** Whether a customer has a reservation. @param orderId only if it is this one */
  isReservedFor(saleId: number, userId: string, orderId?: string): Promise<boolean>;
  /** How many reservations of a sale have no live claim, by Redis's clock. */
  countAbandoned(saleId: number): Promise<number>;
  /**
   * Applies a change that Postgres has committed. Idempotent.
   * @param loadedIn the epoch in which the sale was last loaded, according to Postgres; null: not known
   * @returns false when that copy of the sale is not in this Redis; a load reads the change from Postgres
   */
  applyChange(change: MirrorChange, loadedIn?: number | null): Promise<boolean>;
  /**
   * Takes the units for an expired order and its customer, in one step, before Postgres commits its revival.
   * @returns `refused`: too few are free, or the customer has another order or reservation; `has-units`: an earlier try took them, or their
   *   release is not published yet; null: the sale is not in Redis
   */
  revive(order: Attempt): Promise<'taken' | 'refused' | 'has-units' | null>;
  /** Undoes `revive`. */
  undoRevival(order: Attempt): Promise<void>;
  /**
   * Adds units, those of a restock once, or takes free ones: see lua/sale/restock.lua.
   * @param epoch in which the sale must have been loaded; missing: the current one
   */
  restock(saleId: number, units: number, restock?: string, epoch?: number): Promise<number | null>;
  snapshot(saleId: number): Promise<MirrorSnapshot | null>;
  /** Takes over window, pause and limit of a sale from Postgres, unless Redis has newer ones. A sale that is not in Redis is loaded. */
  setTerms(sale: Pick<Sale, 'id'>): Promise<void>;
  /** A digest of each sale, in their order. */
  scan(saleIds: readonly number[]): Promise<readonly SaleDigest[]>;
  /**
   * Makes the sale in Redis equal to Postgres, units and buyers, unless anything has happened since `seen` (compare and set).
   * @param remaining what Postgres had after `seen`
   */
  repair(saleId: number, seen: MirrorSnapshot, remaining: number): Promise<boolean>;
}

/** The end of a claim made by a command that is sent after this call, on `performance.now()`'s clock. */
export function claimEndMs(): number {
  return performance.now() + limits.claimMs - limits.claimMarginMs;
}

/** A reservation with the first claim: that of the attempt that made it. @param epoch in which it was made */
export function withFirstClaim(
  reservation: Reservation,
  untilMs: number,
  epoch: number | null = null,
): ClaimedReservation {
  return { ...reservation, claimedAtMs: madeAtMs(reservation), untilMs, isFirst: true, epoch };
}

/**
 * @param segments how many counters a sale has; 0 for a single one
 * @param keepsReservations whether an answer may depend on a reservation that Postgres does not have (CONFIRM=accepted). A load
 *   then keeps those of the last epoch; otherwise their customers have no order, and may buy again.
 */
export function createSaleMirror(
  { redis, scripts, serverOf }: RedisStore,
  epochs: RedisEpochs,
  orders: OrderTable,
  segments: number,
  keepsReservations = false,
): SaleMirror {
  const cached = new Map<number, SaleKeys>();
  /** Every attempt needs them. The cache is emptied when it is full. */
  const keys = (saleId: number): SaleKeys => {
    let made = cached.get(saleId);
    if (made === undefined) {
      if (cached.size >= MAX_CACHED_KEYS) cached.clear();
      made = keysOf(saleId, segments);
      cached.set(saleId, made);
    }
    return made;
  };

  const loadedIn = coalesce(async (saleId: number) => (await orders.loadedIn([saleId])).get(saleId));
  const epochOf = (saleId: number) => epochs.current(keys(saleId).state);

  /** Has the sale loaded again, if this is still the copy of that epoch: none has a number below zero. */
  async function invalidate(saleId: number, epoch: number): Promise<void> {
    const { state } = keys(saleId);
    if ((await redis.hget(state, 'epoch')) === String(epoch)) await redis.hset(state, 'epoch', -epoch);
  }

  /** Copies the buyers that Postgres knows to a new key. */
  async function copyBuyers(saleId: number, pages: AsyncIterable<readonly Buyer[]>): Promise<BuyersCopy> {
    const key = `stampede:{sale:${saleId}}:buyers:${crypto.randomUUID()}`;
    let extraUnits = 0;
    for await (const page of pages) {
      await redis.hset(key, Object.fromEntries(page.map((buyer) => [buyer.userId, recordOf(buyer)])));
      for (const { quantity } of page) extraUnits += quantity - 1;
      await redis.expire(key, COPY_TTL_S);
    }
    return { key, extraUnits };
  }

  /** Units, buyers and reservations at one instant in Postgres. Later changes reach Redis through the outbox. */
  async function takeSnapshot(saleId: number) {
    const members = await redis.zrange(keys(saleId).reservations, '0', '-1');
    const reserved = members.map((member) => readMember(saleId, member));
    const ids = reserved.map(({ orderId }) => orderId);
    const snapshot = await orders.snapshot(saleId, ids, (pages) => copyBuyers(saleId, pages));
    return { ...snapshot, committed: reserved.filter(({ orderId }) => snapshot.known.has(orderId)) };
  }

  async function applyToOrder(change: OrderChange, order: Attempt): Promise<number | null> {
    const { saleId, userId } = order;
    const counter = segments > 0 ? String(homeSegment(userId, segments)) : 'remaining';
    return scripts.applyChange(keys(saleId), change, order, counter, await epochOf(saleId));
  }

  return {
    keys,
    epoch: epochOf,
    checkEpochs: () => epochs.check(),
    async supersede(saleId, epoch) {
      const { state } = keys(saleId);
      if (epochs.known(state) !== epoch) return false;
      await invalidate(saleId, epoch).catch(() => {}); // it does not answer, or is a replica by now
      return epochs.supersede(state, epoch);
    },
    knownEpoch: (saleId) => epochs.known(keys(saleId).state),
    isCurrent: async (saleId, epoch) => ((await loadedIn(saleId)) ?? epoch) === epoch,
    async load(sale) {
      const { state } = keys(sale.id);
      for (let tries = 0; tries < LOAD_TRIES; tries++) {
        // When one of two processes does not know of a promotion yet, the other decides.
        const { epoch: found, retired } = await epochs.fresh(state);
        const before = (await orders.loadedIn([sale.id])).get(sale.id) ?? null;
        // A copy of this epoch, from before the sale was loaded elsewhere, lacks what happened there; and the customer of a reservation in
        // it may have been refused there. So the epoch does not come back: no such reservation is committed. The copy is left before the
        // snapshot: with CONFIRM=accepted its orders are committed in any epoch, and what is acknowledged meanwhile must stay reserved.
        // One whose epoch another load has renewed, of another sale or one that did not finish, is such a copy.
        const copy = Number(await redis.hget(state, 'epoch'));
        const isCurrent = Math.abs(copy) === found;
        const isOver = isCurrent ? copy < 0 || (before ?? found) !== found : retired.includes(Math.abs(copy));
        if (isOver) await invalidate(sale.id, copy);
        const epoch = isOver && isCurrent ? await epochs.renew(state, found) : found;
        if (!(await orders.markLoaded(sale.id, before, epoch))) continue;
        const taken = await takeSnapshot(sale.id);
        return scripts.load(keys(sale.id), taken.value, {
          ...{ epoch, segments, committed: taken.committed },
          remaining: taken.remaining,
          restocks: taken.restocks,
          keepsReservationsOf: keepsReservations ? (isOver ? 'any' : (before ?? 'any')) : 'none',
          terms: versionedTerms(taken.terms),
        });
      }
      throw new FailureError(
        'redis',
        'unavailable',
        'sale-is-loaded-elsewhere',
        'processes use several Redis',
      );
    },
    release(reservation, { discardedUnits = 0, owner = null } = {}) {
      const { claimedAtMs } = reservation;
      const options = { discardedUnits, owner, claimedAtMs };
      return scripts.release(keys(reservation.saleId), reservation, options);
    },
    async acknowledge(committed) {
      if (committed.length === 0) return;
      const sales = [...bySale(committed, (r) => r.saleId)].map(async ([saleId, members]) => {
        const epoch = epochs.known(keys(saleId).state) ?? (await epochOf(saleId));
        return { keys: keys(saleId), epoch, members };
      });
      await scripts.acknowledge(await Promise.all(sales));
    },
    async claim(reservation) {
      const untilMs = claimEndMs();
      const epoch = await epochOf(reservation.saleId);
      const claimedAtMs = await scripts.claim(keys(reservation.saleId), reservation, epoch);
      if (typeof claimedAtMs === 'string') return claimedAtMs;
      return { ...reservation, claimedAtMs, untilMs, isFirst: false, epoch };
    },
    async claimAbandoned(saleId, max) {
      const untilMs = claimEndMs();
      const epoch = await epochOf(saleId);
      const { claimedAtMs, members } = await scripts.claimAbandoned(keys(saleId), max, epoch);
      return members.map((member) => {
        return { ...readMember(saleId, member), claimedAtMs, untilMs, isFirst: false, epoch };
      });
    },
    unclaim: (reservation) => scripts.unclaim(keys(reservation.saleId), reservation, reservation.claimedAtMs),
    async isReserved(saleId, orderId, userId) {
      if (userId !== null) return this.isReservedFor(saleId, userId, orderId);
      return scripts.findReservation(keys(saleId), orderId);
    },
    async isReservedFor(saleId, userId, orderId = '') {
      const { buyers, reservations } = keys(saleId);
      const record = await redis.hget(buyers, userId);
      if (record === null || !record.startsWith(orderId)) return false;
      return (await redis.zscore(reservations, `${userId} ${record}`)) !== null;
    },
    async countAbandoned(saleId) {
      const { reservations } = keys(saleId);
      const [seconds, micros] = await serverOf(reservations).redis.time();
      const untilMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000) - limits.claimMs;
      return redis.zcount(reservations, '-inf', untilMs);
    },
    async applyChange(change, loadedIn = null) {
      const { saleId } = change;
      if (loadedIn !== null && loadedIn !== (await epochOf(saleId))) return false;
      if (change.change === 'restock') return (await this.restock(saleId, change.units, change.id)) !== null;
      return (await applyToOrder(change.change, { ...change, quantity: change.units })) !== null;
    },
    async revive(order) {
      const reply = await applyToOrder('revive', order);
      return reply === null ? null : (['refused', 'taken', 'has-units'] as const)[reply]!;
    },
    async undoRevival(order) {
      await applyToOrder('release', order);
    },
    restock: async (saleId, units, restock, epoch) =>
      scripts.restock(keys(saleId), units, epoch ?? (await epochOf(saleId)), restock),
    scan: async (saleIds) =>
      scripts.scan(
        await Promise.all(saleIds.map(async (id) => ({ keys: keys(id), epoch: await epochOf(id) }))),
      ),
    snapshot: async (saleId) => scripts.snapshot(keys(saleId), await epochOf(saleId)),
    async setTerms(sale) {
      const terms = await orders.terms(sale.id);
      if (terms === null) return;
      // After a load by another process, which may have read them before the change, they are set again.
      while (!(await scripts.setTerms(keys(sale.id), versionedTerms(terms), await epochOf(sale.id))))
        if (await this.load(sale)) return;
    },
    async repair(saleId, seen, remaining) {
      const copy = await copyBuyers(saleId, orders.buyers(saleId, BUYERS_PAGE));
      return scripts.repair(keys(saleId), copy, seen, remaining);
    },
  };
}
