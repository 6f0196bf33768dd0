/**
 * The scripts of a sale (lua/sale): for each its keys, its arguments, and what its reply means.
 *
 * The scripts that take a unit carry a deadline (see late-requests.ts). When no reply arrives, they return `unanswered`,
 * because Redis may execute the command until the deadline. Every other script throws what ioredis throws.
 */
import type { Redis } from 'ioredis';
import { limits } from '../../config/limits.ts';
import type { Attempt } from '../../domain/order.ts';
import type { NotOpen, Reservation } from '../../domain/outcome.ts';
import { hasNoEffect } from '../failures/redis.ts';
import type { Unanswered } from '../late-requests.ts';
import { defineScript } from './load-script.ts';
import { callsFor, type SaleInEpoch, type SaleKeys } from './sale-keys.ts';
import { madeAtMs, memberOf, type SaleReservation } from './sale-records.ts';
import type { RedisServer } from './server.ts';

export type ReserveReply =
  | readonly ['reserved' | 'held', orderId: string, reservedAt: string]
  | readonly ['not-enough' | 'over-limit', units: string]
  | readonly ['sold-out' | NotOpen | 'not-loaded' | 'late'];
export type FencedReadReply =
  | readonly ['loaded', units: string, startsMs: string, endsMs: string, paused: string, maxPerOrder: string]
  | readonly ['fenced' | 'not-loaded'];
export type FencedDeductReply =
  | readonly ['reserved', reservedAt: string]
  | readonly ['held', reservedAt: string, orderId: string]
  | readonly ['empty' | 'fenced' | 'not-loaded' | 'late'];

export type ReleaseReply = 'released' | 'claimed-by-another' | 'gone';

/** A sale in Redis at one instant. */
export interface MirrorSnapshot {
  readonly remaining: number;
  /** Units of reservations that are neither acknowledged nor released. */
  readonly pending: number;
  /** Grows whenever a unit or a buyer is added. */
  readonly generation: string;
  /** Units of customers with an order, according to Redis. */
  readonly held: number;
}

/** A copy of the buyers that Postgres knows. */
export interface BuyersCopy {
  readonly key: string;
  /** Their units beyond one for each. */
  readonly extraUnits: number;
}

export interface ReleaseOptions {
  /** Units that do not return: Postgres does not have them. */
  readonly discardedUnits?: number;
  /** The customer's order; without it the customer may buy again. */
  readonly owner?: Pick<Attempt, 'orderId' | 'quantity'> | null;
}

/** See lua/sale/apply-change.lua. */
export type OrderChange = 'release' | 'take' | 'record' | 'revive';

/** Just enough of a sale to see whether it needs attention. */
export interface SaleDigest {
  /** Null: the sale is not in Redis, or from another epoch. */
  readonly free: number | null;
  readonly pending: number;
  /** Age of the oldest pending reservation by Redis's clock; 0 without one. */
  readonly ageMs: number;
  /** Units of customers with an order, according to Redis. */
  readonly held: number;
  /** As `termsOf` writes them. */
  readonly terms: string;
  /** In which it was looked for. */
  readonly epoch: number;
}

/** A lease's fencing token, and the lock whose tokens it is compared with. */
export interface Fence {
  readonly token: number | null;
  readonly lock: string;
}

/** Units of one counter, and the fencing token of the lease on it. */
export interface CounterUnits {
  readonly counter: string;
  readonly units: number;
  readonly token: number | null;
}

/** Attempts on one sale. */
export interface SaleAttempts {
  readonly keys: SaleKeys;
  readonly members: readonly Omit<Attempt, 'saleId'>[];
}

/** Reservations of one sale. */
export interface SaleReservations extends SaleInEpoch {
  readonly members: readonly SaleReservation[];
}

/** A sale without a unit. */
export interface SoldOut {
  readonly generation: string;
  /** Below zero: it does not end. */
  readonly endsInMs: number;
}

/** What changes when a unit is taken or returned. */
const unitKeys = (keys: SaleKeys) => [keys.state, keys.counters, keys.buyers, keys.reservations] as const;

/** Sales of one call are on one server. The last one has its newest epoch: in an older one no sale is loaded. */
const epochOf = (sales: readonly { readonly epoch: number }[]): number => sales.at(-1)!.epoch;

/** The scripts of an attempt. */
function attemptScripts(redis: Redis, serverOf: (key: string) => RedisServer, isCluster: boolean) {
  const reserve = defineScript(redis, 'sale/reserve', 3);
  const reserveMany = defineScript<string>(redis, 'sale/reserve-many');
  const soldOut = defineScript(redis, 'sale/sold-out');
  const fencedRead = defineScript(redis, 'sale/fenced-read', 2);
  const fencedDeduct = defineScript(redis, 'sale/fenced-deduct', 4);

  async function withDeadline<R>(
    { state }: SaleKeys,
    send: (deadlineMs: number) => Promise<unknown>,
  ): Promise<R | Unanswered> {
    const { clock } = serverOf(state);
    await clock.synchronize();
    const deadlineMs = Math.ceil(clock.nowMs()) + limits.redisCommandMs;
    try {
      return (await send(deadlineMs)) as R;
    } catch (error) {
      if (hasNoEffect(error)) throw error;
      return { kind: 'unanswered', reason: 'redis-no-answer', lateUntilMs: deadlineMs };
    }
  }

  return {
    reserve: (keys: SaleKeys, { userId, orderId, quantity }: Attempt, epoch: number) =>
      withDeadline<ReserveReply>(keys, (deadlineMs) =>
        reserve(keys.state, keys.buyers, keys.reservations, userId, orderId, epoch, deadlineMs, quantity),
      ),

    /** Decides like `reserve`, for many attempts of one call (see `callsFor`). @returns a reply for each, sale by sale, in their order */
    async reserveMany(
      sales: readonly SaleAttempts[],
      epoch: number,
    ): Promise<readonly ReserveReply[] | Unanswered> {
      const keys = sales.flatMap(({ keys: k }) => [k.state, k.buyers, k.reservations]);
      const pairs = sales.map(({ members }) => pairsOf(members));
      const reply = await withDeadline<string>(sales[0]!.keys, (deadlineMs) =>
        reserveMany(keys.length, ...keys, epoch, deadlineMs, ...pairs),
      );
      if (typeof reply !== 'string') return reply;
      const lines = reply.split('\n');
      const replies: ReserveReply[] = [];
      for (const { members } of sales) {
        for (const { orderId } of members) replies.push(reserveReplyOf(lines[replies.length]!, orderId));
      }
      return replies;
    },

    /** @returns for each sale its state; null: a unit is free, or the sale is not open, or not in Redis */
    async soldOut(sales: readonly SaleInEpoch[]): Promise<readonly (SoldOut | null)[]> {
      type Entry = readonly [generation: string, endsInMs: number] | readonly [];
      const replies = await Promise.all(
        callsFor(sales, isCluster).map((some) => {
          const states = some.map(({ keys }) => keys.state);
          return soldOut(states.length, ...states, epochOf(some)) as Promise<readonly Entry[]>;
        }),
      );
      return replies
        .flat()
        .map(([generation, endsInMs]) =>
          generation === undefined ? null : { generation, endsInMs: endsInMs! },
        );
    },

    fencedRead: async (keys: SaleKeys, counter: string, { token, lock }: Fence, epoch: number) =>
      (await fencedRead(
        keys.state,
        keys.counters,
        counter,
        token ?? 0,
        lock,
        epoch,
      )) as unknown as FencedReadReply,

    fencedDeduct: (
      keys: SaleKeys,
      { userId, orderId }: Attempt,
      parts: readonly CounterUnits[],
      lock: string,
      epoch: number,
    ) =>
      withDeadline<FencedDeductReply>(keys, (deadlineMs) => {
        const counters = parts.flatMap(({ counter, units, token }) => [counter, units, token ?? 0]);
        return fencedDeduct(...unitKeys(keys), userId, orderId, lock, epoch, deadlineMs, ...counters);
      }),
  };
}

/** Customers and their orders, in one string: see lua/sale/reserve-many.lua. */
function pairsOf(members: SaleAttempts['members']): string {
  let pairs = '';
  for (const { userId, orderId, quantity } of members)
    pairs += quantity === 1 ? `${userId} ${orderId} ` : `${userId} ${orderId}x${quantity} `;
  return pairs;
}

/** @param ownOrderId the order id of the attempt that the line answers */
function reserveReplyOf(line: string, ownOrderId: string): ReserveReply {
  const [word, orderId, reservedAt] = line.split(' ');
  return [word, orderId === '=' ? ownOrderId : orderId, reservedAt] as unknown as ReserveReply;
}

/** The scripts of a reservation on its way to Postgres. */
function reservationScripts(redis: Redis, isCluster: boolean) {
  const release = defineScript<number>(redis, 'sale/release', 4);
  const claim = defineScript<number>(redis, 'sale/claim', 3);
  const claimAbandoned = defineScript(redis, 'sale/claim-abandoned', 2);
  const unclaim = defineScript(redis, 'sale/unclaim', 1);
  const acknowledge = defineScript(redis, 'sale/acknowledge');
  const restoreBuyers = defineScript(redis, 'sale/restore-buyers', 2);
  const findReservation = defineScript<number>(redis, 'sale/find-reservation', 1);

  return {
    release: async (
      keys: SaleKeys,
      { reservedAt, userId, orderId }: SaleReservation,
      options: Required<ReleaseOptions> & { readonly claimedAtMs: number },
    ): Promise<ReleaseReply> => {
      const ids = [reservedAt, userId, orderId] as const;
      const { owner } = options;
      const other =
        owner === null ? '' : owner.quantity === 1 ? owner.orderId : `${owner.orderId}x${owner.quantity}`;
      const how = [options.discardedUnits, other, options.claimedAtMs] as const;
      const reply = await release(...unitKeys(keys), ...ids, ...how);
      return reply === 1 ? 'released' : reply === 0 ? 'claimed-by-another' : 'gone';
    },

    /** @returns the claim, milliseconds since 1970 */
    async claim(
      keys: SaleKeys,
      { userId, orderId, reservedAt }: SaleReservation,
      epoch: number,
    ): Promise<number | 'claimed-by-another' | 'released'> {
      const { buyers, reservations, state } = keys;
      const record = `${orderId} ${reservedAt}`;
      const reply = await claim(buyers, reservations, state, userId, record, limits.claimMs, epoch);
      if (reply > 0) return reply;
      return reply === 0 ? 'claimed-by-another' : 'released';
    },

    /** Claims reservations whose claims have ended, oldest first. @returns them, and the one claim to all of them */
    async claimAbandoned({ reservations, state }: SaleKeys, max: number, epoch: number) {
      const reply = await claimAbandoned(reservations, state, limits.claimMs, max, epoch);
      const [claimedAtMs, ...members] = reply as [number, ...string[]];
      return { claimedAtMs, members };
    },

    async unclaim({ reservations }: SaleKeys, reservation: SaleReservation, claimedAtMs: number) {
      await unclaim(reservations, memberOf(reservation), claimedAtMs, madeAtMs(reservation));
    },

    /** Removes committed reservations, and restores the buyers that a sale loaded since does not know. */
    async acknowledge(committed: readonly SaleReservations[]): Promise<void> {
      const one = async (sales: readonly SaleReservations[]) => {
        const keys = sales.flatMap((sale) => [sale.keys.reservations, sale.keys.state]);
        const lists = sales.map(({ members }) => members.map(memberOf).join(' '));
        const reply = await acknowledge(keys.length, ...keys, epochOf(sales), ...lists);
        for (const sale of reply as readonly number[]) {
          const { keys, members } = sales[sale - 1]!;
          const buyers = members.flatMap(({ reservedAt, userId, orderId }) => [reservedAt, userId, orderId]);
          await restoreBuyers(keys.state, keys.buyers, ...buyers);
        }
      };
      await Promise.all(callsFor(committed, isCluster).map(one));
    },

    /** Whether an order is reserved. */
    findReservation: async ({ reservations }: SaleKeys, orderId: string): Promise<boolean> =>
      (await findReservation(reservations, orderId)) === 1,
  };
}

/** The scripts that apply changes from Postgres to the mirror of a sale. */
function changeScripts(redis: Redis) {
  const load = defineScript<number>(redis, 'sale/load', 7);
  const applyChange = defineScript<number>(redis, 'sale/apply-change', 4);
  const restock = defineScript(redis, 'sale/restock', 3);
  const setTerms = defineScript<number>(redis, 'sale/set-terms', 1);

  return {
    /**
     * @param sale `terms`: see lua/lib/terms.lua; `restocks`: numbers of restocks that `remaining` includes and Redis has not applied; `committed`: reservations
     *   that Postgres has; `keepsReservationsOf`: another epoch whose reservations stay
     * @returns whether this call loaded the sale; false when it was loaded
     */
    async load(
      keys: SaleKeys,
      buyers: BuyersCopy,
      sale: {
        readonly remaining: number;
        readonly segments: number;
        readonly terms: string;
        readonly epoch: number;
        readonly restocks: readonly string[];
        readonly committed: readonly Reservation[];
        readonly keepsReservationsOf: number | 'any' | 'none';
      },
    ): Promise<boolean> {
      const all = [...unitKeys(keys), keys.segments, keys.restocks, buyers.key];
      const of = sale.keepsReservationsOf;
      const counts = [sale.remaining, sale.segments, sale.terms, buyers.extraUnits];
      const units = [...counts, sale.epoch, sale.restocks.join(' '), of];
      return (await load(...all, ...units, ...sale.committed.map(memberOf))) === 1;
    },

    /** @returns the reply of the script; null: the sale is not in Redis */
    async applyChange(
      keys: SaleKeys,
      change: OrderChange,
      { userId, orderId, quantity }: Attempt,
      counter: string,
      epoch: number,
    ): Promise<number | null> {
      const ids = [change, userId, orderId] as const;
      const reply = await applyChange(...unitKeys(keys), ...ids, counter, epoch, quantity);
      return reply < 0 ? null : reply;
    },

    /** Newer terms stay. @returns false: the sale is not in Redis, or from another epoch */
    setTerms: async ({ state }: SaleKeys, terms: string, epoch: number): Promise<boolean> =>
      (await setTerms(state, terms, epoch)) === 1,

    /**
     * @param number of the restock, which is applied once however often it is sent
     * @returns how many units were added (or, below zero, taken); 0: too few are free; null: the sale is not in Redis
     */
    restock: async (keys: SaleKeys, units: number, epoch: number, number = '') =>
      (await restock(keys.state, keys.counters, keys.restocks, units, epoch, number)) as number | null,
  };
}

/** The scripts that compare the mirror of a sale with Postgres, and repair it. */
function driftScripts(redis: Redis, isCluster: boolean) {
  const scan = defineScript(redis, 'sale/scan-sales');
  const snapshot = defineScript(redis, 'sale/snapshot', 4);
  const repair = defineScript<number>(redis, 'sale/repair', 5);

  return {
    async scan(sales: readonly SaleInEpoch[]): Promise<readonly SaleDigest[]> {
      type Values = [free: number | null, pending: number, ageMs: number, held: number, terms: string];
      const replies = await Promise.all(
        callsFor(sales, isCluster).map((some) => {
          const keys = some.flatMap(({ keys: k }) => [k.state, k.counters, k.reservations, k.buyers]);
          return scan(keys.length, ...keys, epochOf(some)) as Promise<readonly (number | string | null)[]>;
        }),
      );
      const flat = replies.flat();
      return sales.map(({ epoch }, i) => {
        const [free, pending, ageMs, held, terms] = flat.slice(5 * i, 5 * i + 5) as Values;
        return { free, pending, ageMs, held, terms, epoch };
      });
    },

    /** Null: the sale is not in Redis. */
    async snapshot(keys: SaleKeys, epoch: number): Promise<MirrorSnapshot | null> {
      type Values = readonly [remaining: number, pending: number, generation: string, held: number] | null;
      const { state, counters, reservations, buyers } = keys;
      const seen = (await snapshot(state, counters, reservations, buyers, epoch)) as Values;
      return seen && { remaining: seen[0], pending: seen[1], generation: seen[2], held: seen[3] };
    },

    /** @returns whether Redis was changed; false when anything has happened since `seen` */
    repair: async (keys: SaleKeys, copy: BuyersCopy, seen: MirrorSnapshot, remaining: number) => {
      const { state, counters, reservations, buyers } = keys;
      const compared = [seen.remaining, seen.generation] as const;
      const all = [state, counters, reservations, buyers, copy.key] as const;
      return (await repair(...all, ...compared, remaining, copy.extraUnits)) === 1;
    },
  };
}

export type SaleScripts = ReturnType<typeof defineSaleScripts>;

/** Defines all of them on a connection. */
export function defineSaleScripts(redis: Redis, serverOf: (key: string) => RedisServer, isCluster: boolean) {
  return {
    ...attemptScripts(redis, serverOf, isCluster),
    ...reservationScripts(redis, isCluster),
    ...changeScripts(redis),
    ...driftScripts(redis, isCluster),
  };
}
