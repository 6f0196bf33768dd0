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
import { limits } from '../../config/limits.ts';
import { bySale } from '../../domain/by-sale.ts';
import { FailureError } from '../../domain/failure.ts';
import type { Attempt, MirrorChange } from '../../domain/order.ts';
import type { ClaimedReservation, Reservation } from '../../domain/outcome.ts';
import type { Sale, SoldOut } from '../../domain/sale.ts';
import { homeSegment } from '../../domain/segments.ts';
import type { OrderTable } from '../postgres/orders.ts';
import type { RedisStore } from './connection.ts';
import type { FoundServer, RedisEpochs } from './epochs.ts';
import { lastCopies } from './last-copy.ts';
import {
  callsFor,
  claimEndMs,
  keysWith,
  lastEpochOf,
  madeAtMs,
  memberOf,
  readMember,
  type SaleKeys,
  unitKeys,
  versionedTerms,
} from './sale-records.ts';
import { membersOf, takeSnapshot } from './sale-snapshot.ts';
import { defineScript } from './scripts.ts';

/** Copies that a copy names as those that it continues. */
const MAX_CONTINUED = 8;
/** Times that a load begins again because the sale was loaded elsewhere meanwhile. */
const LOAD_TRIES = 5;

export type SaleMirror = ReturnType<typeof createSaleMirror>;

export interface ReleaseOptions {
  /** Units that do not return: Postgres does not have them. */
  readonly discardedUnits?: number;
  /** The customer's order; without it the customer may buy again. */
  readonly owner?: Pick<Attempt, 'orderId' | 'quantity'> | null;
}

/** A sale in Redis at one instant: see lua/sale/scan-sales.lua. */
export interface SaleDigest {
  /** Null: the sale is not in Redis, or from another epoch. */
  readonly free: number | null;
  /** Grows whenever a unit or a buyer is added. */
  readonly generation: string | null;
  /** As `termsOf` writes them. */
  readonly terms: string;
  /** By Redis's clock. */
  readonly nowMs: number;
  /** Reservations that are neither acknowledged nor released. */
  readonly pending: number;
  /** Age of the oldest pending reservation by Redis's clock; 0 without one. */
  readonly ageMs: number;
  /** Units of customers with an order, according to Redis. */
  readonly held: number;
  /** In which it was looked for. */
  readonly epoch: number;
}

type DigestReply = readonly [
  ...[free: number | null, generation: string | null, terms: string, nowMs: number],
  ...counts: number[],
];

/**
 * @param segments how many counters a sale has; 0 for a single one
 * @param keepsReservations whether an answer may depend on a reservation that Postgres does not have (CONFIRM=accepted). A load
 *   then keeps those of the last epoch; otherwise their customers have no order, and may buy again.
 */
export function createSaleMirror(
  { redis, isCluster, watchReplication }: RedisStore,
  epochs: RedisEpochs,
  orders: OrderTable,
  segments: number,
  keepsReservations = false,
) {
  const release = defineScript<number>(redis, 'sale/release', 4);
  const claim = defineScript<number>(redis, 'sale/claim', 3);
  const claimAbandoned = defineScript(redis, 'sale/claim-abandoned', 2);
  const unclaim = defineScript(redis, 'sale/unclaim', 1);
  const acknowledge = defineScript<readonly number[]>(redis, 'sale/acknowledge');
  const restoreCommitted = defineScript<readonly number[]>(redis, 'sale/restore-committed', 4);
  const load = defineScript<number>(redis, 'sale/load', 8);
  const applyChange = defineScript<number>(redis, 'sale/apply-change', 4);
  const restock = defineScript<number | null>(redis, 'sale/restock', 3);
  const setTerms = defineScript<number>(redis, 'sale/set-terms', 1);
  const scanSales = defineScript<readonly DigestReply[]>(redis, 'sale/scan-sales');

  const keys = keysWith(segments);
  const copyOf = (saleId: number) => epochs.foundOf(keys(saleId).state);
  const findCopy = (saleId: number) => epochs.current(keys(saleId).state);
  const epochOf = async (saleId: number) => (await findCopy(saleId)).epoch;
  const { invalidate, ...lastCopy } = lastCopies(redis, epochs, orders, keys);

  /** @returns `elsewhere`: the reply came over another connection, perhaps from a copy of this Redis, which has the same epoch */
  async function inCopy<R>(saleId: number, send: (epoch: number) => Promise<R>): Promise<R | 'elsewhere'> {
    const copy = await findCopy(saleId);
    const reply = await send(copy.epoch);
    return epochs.isStill(keys(saleId).state, copy) ? reply : 'elsewhere';
  }

  /** @returns the reply of lua/sale/apply-change.lua; null: the sale is not in Redis; `elsewhere`: see `inCopy` */
  async function applyToOrder(
    change: 'release' | 'take' | 'record' | 'revive' | 'transfer',
    order: Attempt,
    toUserId = '',
  ) {
    const { saleId, userId, orderId, quantity } = order;
    const counter = segments > 0 ? String(homeSegment(userId, segments)) : 'remaining';
    const ids = [change, userId, orderId, counter] as const;
    const reply = await inCopy(saleId, (epoch) =>
      applyChange(...unitKeys(keys(saleId)), ...ids, epoch, quantity, toUserId),
    );
    return reply !== 'elsewhere' && reply < 0 ? null : reply;
  }

  return {
    ...lastCopy,
    keys,
    /** The epoch in which a sale must have been loaded: see epochs.ts. @throws when it cannot be determined now */
    epoch: epochOf,
    /** Has the sales loaded again if Postgres or Redis failed over. @throws what Postgres throws */
    checkEpochs: () => epochs.check(),
    /** The copy of a sale that this process uses now; null: it is not known, or not connected. */
    copyOf,
    /** The same, found if it is not known. @throws when it cannot be determined now */
    findCopy,
    /** Whether this process was in that epoch, and its address has led it from there to the copy that it uses now. */
    hasLeft: (saleId: number, epoch: number) => epochs.hasLeft(keys(saleId).state, epoch),
    /** Whether a reply came from this copy: over the same connection. */
    isStill: (saleId: number, copy: FoundServer) => epochs.isStill(keys(saleId).state, copy),
    /**
     * Loads the sale from Postgres unless it is loaded.
     * @param seen replaces the copy of which this is a digest, unless it has a reservation or anything has happened in it since
     * @returns whether this call did
     */
    async load(sale: Pick<Sale, 'id'>, seen: SaleDigest | null = null) {
      const all = keys(sale.id);
      for (let tries = 0; tries < LOAD_TRIES; tries++) {
        // When one of two processes does not know of a promotion yet, the other decides.
        const { epoch: found, retired, loadedIn: before } = await epochs.fresh(all.state, sale.id);
        // A copy of this epoch, from before the sale was loaded elsewhere, lacks what happened there; and the customer of a reservation in
        // it may have been refused there. So the epoch does not come back: no such reservation is committed. The copy is left before the
        // snapshot: with CONFIRM=accepted its orders are committed in any epoch, and what is acknowledged meanwhile must stay reserved.
        // A copy of another epoch is left for the same reason. One whose epoch another load has renewed, of another sale or one that did not finish, is such a copy.
        const [label, begun, after] = await redis.hmget(all.state, 'epoch', `begun ${before}`, 'after');
        const copy = Number(label);
        const isCurrent = Math.abs(copy) === found;
        const isOver = isCurrent ? copy < 0 || (before ?? found) !== found : retired.includes(Math.abs(copy));
        const isLeft = isOver || (keepsReservations && !isCurrent);
        if (isLeft && copy > 0) await invalidate(sale.id, copy);
        const epoch = isOver && isCurrent ? await epochs.renew(all.state, found, sale.id) : found;
        // A load that marks the sale and does not finish leaves a copy that is still the last one, under another epoch. It says so before,
        // and to the replicas that have its reservations: one of them may be promoted then. One that does not answer does not stop it.
        // Postgres may have gone back to before a load, to a standby that lacks its mark: a copy names those that it continues.
        const continued = after?.split(' ') ?? [];
        const isLast = Math.abs(copy) === before || begun !== null || continued.includes(String(before));
        if (keepsReservations && isLast && copy !== 0 && copy !== epoch) {
          const areReplicated = watchReplication(all.state);
          await redis.hset(all.state, `begun ${epoch}`, copy);
          await Promise.resolve(areReplicated()).catch(() => {});
        }
        // Redis may have lost what a commit or a cut that is in progress has taken there.
        const waits = seen !== null || label === null;
        if (!(await orders.markLoaded(sale.id, before, epoch, waits))) continue;
        if (keepsReservations) await lastCopy.loadedIn([sale.id]); // confirms it
        const taken = await takeSnapshot(redis, orders, sale.id, all.reservations);
        const counts = [taken.remaining, segments, versionedTerms(taken.terms), taken.value.extraUnits];
        // One that is over was left by this load, or by one that did not finish: what was answered with 202 there has no other copy.
        const ofLast = isOver ? 'any' : isLast ? -Math.abs(copy) : (before ?? 'any');
        const keepsOf = keepsReservations ? ofLast : 'none';
        const continues = [...(isOver || isLast ? continued : []), before ?? ''].slice(-MAX_CONTINUED);
        const asSeen = seen === null ? '' : `${seen.free} ${seen.generation ?? ''}`;
        const what = [epoch, taken.restocks.join(' '), keepsOf, asSeen, taken.value.count] as const;
        const how = [...counts, ...what, keepsReservations ? continues.join(' ').trim() : ''];
        const copies = [taken.value.key, taken.committed] as const;
        const reply = await load(...unitKeys(all), all.segments, all.restocks, ...copies, ...how);
        if (reply >= 0) return reply === 1;
      }
      throw new FailureError(
        'redis',
        'unavailable',
        'sale-is-loaded-elsewhere',
        'processes use several Redis',
      );
    },
    /**
     * Releases a reservation.
     * @returns `gone`: it was acknowledged or released before, or dropped when the sale was loaded in another epoch; `elsewhere`: this may
     *   be another server than the one that has it, where it is still reserved
     */
    async release(
      { saleId, reservedAt, userId, orderId, claimedAtMs, epoch }: ClaimedReservation,
      { discardedUnits = 0, owner = null }: ReleaseOptions = {},
    ) {
      const isHere = epoch === null || copyOf(saleId)?.epoch === epoch; // of the connection that gets the command
      const other =
        owner === null ? '' : owner.quantity === 1 ? owner.orderId : `${owner.orderId}x${owner.quantity}`;
      const how = [reservedAt, userId, orderId, discardedUnits, other, claimedAtMs] as const;
      const reply = await release(...unitKeys(keys(saleId)), ...how);
      if (!isHere) return 'elsewhere';
      return reply === 1 ? 'released' : reply === 0 ? 'claimed-by-another' : 'gone';
    },
    /**
     * Removes reservations, of any loaded sales, that Postgres has. Restores those that Redis has lost: see restore-committed.lua.
     * @returns the orders of those that are lost if their orders are not closed: they were made in another copy
     */
    async acknowledge(committed: readonly Reservation[]): Promise<readonly string[]> {
      if (committed.length === 0) return [];
      const unclear: string[] = [];
      const asked = [...bySale(committed, (r) => r.saleId)].map(async ([saleId, members]) => {
        const { epoch } = copyOf(saleId) ?? (await findCopy(saleId));
        return { keys: keys(saleId), epoch, members };
      });
      const calls = callsFor(await Promise.all(asked), isCluster).map(async (sales) => {
        const all = sales.flatMap((sale) => [sale.keys.reservations, sale.keys.state]);
        const lists = sales.map(({ members }) => members.map(memberOf).join(' '));
        for (const sale of await acknowledge(all.length, ...all, lastEpochOf(sales), ...lists)) {
          const { keys: of, epoch, members } = sales[sale - 1]!;
          const all = members.flatMap(({ reservedAt, userId, orderId }) => [reservedAt, userId, orderId]);
          const left = await restoreCommitted(...unitKeys(of), epoch, ...all);
          unclear.push(...left.map((n) => members[n - 1]!.orderId));
        }
      });
      await Promise.all(calls);
      return unclear;
    },
    /**
     * Claims a reservation that another attempt made: see lua/sale/claim.lua.
     * @param foundIn the epoch in which it was found. In another one it may be gone here, and still be reserved there
     */
    async claim(reservation: Reservation, foundIn: number | null = null) {
      const { saleId, userId, orderId, reservedAt } = reservation;
      const untilMs = claimEndMs();
      const epoch = await epochOf(saleId);
      const { buyers, reservations, state } = keys(saleId);
      const record = `${orderId} ${reservedAt}`;
      const claimedAtMs = await claim(buyers, reservations, state, userId, record, limits.claimMs, epoch);
      const isCertain = foundIn === null || foundIn === epoch;
      if (claimedAtMs <= 0) return claimedAtMs === 0 || !isCertain ? 'claimed-by-another' : 'released';
      return { ...reservation, claimedAtMs, untilMs, isFirst: false, epoch };
    },
    /** Claims reservations of a sale whose claims have ended, oldest first. Null: there are some, and the sale is not in Redis. */
    async claimAbandoned(saleId: number, max: number) {
      const untilMs = claimEndMs();
      const epoch = await epochOf(saleId);
      const { reservations, state } = keys(saleId);
      const reply = await claimAbandoned(reservations, state, limits.claimMs, max, epoch);
      if (reply === null) return null;
      const [claimedAtMs, ...members] = reply as [number, ...string[]];
      return members.map((member) => {
        return { ...readMember(saleId, member), claimedAtMs, untilMs, isFirst: false, epoch };
      });
    },
    /** Ends a claim whose reservation was neither committed nor released. */
    async unclaim(reservation: ClaimedReservation) {
      const { reservations } = keys(reservation.saleId);
      await unclaim(reservations, memberOf(reservation), reservation.claimedAtMs, madeAtMs(reservation));
    },
    /**
     * Whether an order is reserved.
     * @param userId only if it is this customer's; null: any, which reads all reservations of the sale, in pieces
     */
    async isReserved(saleId: number, orderId: string, userId: string | null): Promise<boolean> {
      if (userId !== null) return this.isReservedFor(saleId, userId, orderId);
      const { reservations } = keys(saleId);
      for await (const found of membersOf(redis, reservations, `* ${orderId} *`))
        if (found.length > 0) return true;
      return false;
    },
    /** Whether a customer has a reservation. @param orderId only if it is this one */
    async isReservedFor(saleId: number, userId: string, orderId = '') {
      const { buyers, reservations } = keys(saleId);
      const record = await redis.hget(buyers, userId);
      if (record === null || !record.startsWith(orderId)) return false;
      return (await redis.zscore(reservations, `${userId} ${record}`)) !== null;
    },
    /** Whether a load has kept a reservation: it was made in another copy, and may be one for which Postgres has no units. */
    async isKept({ saleId, reservedAt }: Reservation): Promise<boolean> {
      const loadedMs = await redis.hget(keys(saleId).state, 'loadedMs');
      return loadedMs === null || madeAtMs({ reservedAt }) <= Number(loadedMs);
    },
    /** All reservations of a sale, by their claims, and when each was claimed: milliseconds since 1970. */
    async reservations(saleId: number) {
      const reply = await redis.zrange(keys(saleId).reservations, '0', '-1', 'WITHSCORES');
      const all: (Reservation & { readonly claimedAtMs: number })[] = [];
      for (let i = 0; i < reply.length; i += 2)
        all.push({ ...readMember(saleId, reply[i]!), claimedAtMs: Number(reply[i + 1]) });
      return all;
    },
    /**
     * Applies a change that Postgres has committed. Idempotent.
     * @param loadedIn the epoch in which the sale was last loaded, according to Postgres; null: not known
     * @returns `elsewhere`: the sale was loaded in another Redis than this one; `not-loaded`: it is not in this one, and a load reads the
     *   change from Postgres
     */
    async applyChange(
      change: MirrorChange,
      loadedIn: number | null = null,
    ): Promise<'applied' | 'not-loaded' | 'elsewhere'> {
      const { saleId } = change;
      if (loadedIn !== null && loadedIn !== (await epochOf(saleId))) return 'elsewhere';
      const reply =
        change.change === 'restock'
          ? await inCopy(saleId, (epoch) => this.restock(saleId, change.units, change.id, epoch))
          : await applyToOrder(
              change.change,
              { ...change, quantity: change.units },
              change.change === 'transfer' ? change.toUserId : '',
            );
      return reply === null ? 'not-loaded' : reply === 'elsewhere' ? reply : 'applied';
    },
    /**
     * Takes the units for an expired order and its customer, in one step, before Postgres commits its revival.
     * @returns `refused`: too few are free, or the customer has another order or reservation; `has-units`: an earlier try took them, or their
     *   release is not published yet; null: the sale is not in Redis
     */
    async revive(order: Attempt) {
      const reply = await applyToOrder('revive', order);
      return typeof reply !== 'number' ? null : (['refused', 'taken', 'has-units'] as const)[reply]!;
    },
    /**
     * Adds units, those of a restock once, or takes free ones: see lua/sale/restock.lua.
     * @param number of the restock
     * @param epoch in which the sale must have been loaded; missing: the current one
     * @returns how many units were added (or, below zero, taken); 0: too few are free; null: the sale is not in Redis
     */
    async restock(saleId: number, units: number, number = '', epoch?: number) {
      const { state, counters, restocks } = keys(saleId);
      return restock(state, counters, restocks, units, epoch ?? (await epochOf(saleId)), number);
    },
    /** A digest of each sale, in their order. @param isBrief without reservations and buyers: three quarters of the cost */
    async scan(saleIds: readonly number[], isBrief = false): Promise<readonly SaleDigest[]> {
      const found = saleIds.map(async (id) => ({ keys: keys(id), epoch: await epochOf(id) }));
      const calls = callsFor(await Promise.all(found), isCluster).map(async (some) => {
        const epoch = lastEpochOf(some);
        const ofOne = ({ state, counters, reservations, buyers }: SaleKeys) =>
          isBrief ? [state] : [state, counters, reservations, buyers];
        const all = some.flatMap((sale) => ofOne(sale.keys));
        const reply = await scanSales(all.length, ...all, epoch, all.length / some.length);
        return reply.map(([free, generation, terms, nowMs, pending = 0, ageMs = 0, held = 0]) => {
          return { free, generation, terms, nowMs, pending, ageMs, held, epoch };
        });
      });
      return (await Promise.all(calls)).flat();
    },
    async digest(saleId: number) {
      return (await this.scan([saleId]))[0]!;
    },
    /** Takes over the terms of a sale from Postgres, unless Redis has newer ones. A sale that is not in Redis is loaded. */
    async setTerms(sale: Pick<Sale, 'id'>): Promise<void> {
      const terms = await orders.terms(sale.id);
      if (terms === null) return;
      const { state } = keys(sale.id);
      // After a load by another process, which may have read them before the change, they are set again.
      while ((await setTerms(state, versionedTerms(terms), await epochOf(sale.id))) !== 1)
        if (await this.load(sale)) return;
    },
    /** For each sale its state, without segments; null: a unit is free, or the sale is not open, or not in Redis. */
    async soldOut(saleIds: readonly number[]): Promise<readonly (SoldOut | null)[]> {
      return (await this.scan(saleIds, true)).map(({ free, generation, terms, nowMs }) => {
        const [startsMs, endsMs, paused] = terms.split(' ');
        const sellsForMs = endsMs ? Number(endsMs) - nowMs : Number.POSITIVE_INFINITY;
        const isOpen = paused !== '1' && nowMs >= Number(startsMs) && sellsForMs > 0;
        return isOpen && generation !== null && free !== null && free <= 0
          ? { generation, sellsForMs }
          : null;
      });
    },
  };
}
