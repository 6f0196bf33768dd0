/** The scripts of a sale (lua/sale) as typed calls: their keys, their arguments and what their replies mean. */
import type { Redis } from 'ioredis';
import { limits } from '../../config/limits.ts';
import type { MirrorChange } from '../../domain/order.ts';
import type { Reservation } from '../../domain/outcome.ts';
import { type StoreClock, UnansweredError } from '../late-requests.ts';
import { defineScript, type Reply } from './script.ts';

/** The answer of lua/sale/reserve.lua. */
export type ReserveReply =
  | readonly ['reserved' | 'held', orderId: string, reservedAt: string]
  | readonly ['sold-out' | 'not-started' | 'ended' | 'not-loaded' | 'late'];

/** The answer of lua/sale/fenced-read.lua. */
export type FencedReadReply =
  | readonly ['loaded', units: string, startsMs: string, endsMs: string]
  | readonly ['fenced' | 'not-loaded'];

/** The answer of lua/sale/fenced-deduct.lua. */
export type FencedDeductReply =
  | readonly ['reserved', reservedAt: string]
  | readonly ['fenced' | 'not-loaded' | 'late'];

/** What lua/sale/snapshot.lua saw at one instant. */
export interface MirrorSnapshot {
  readonly remaining: number;
  /** Reservations that are not settled. */
  readonly pending: number;
  /** Grows whenever a unit or a buyer is added. */
  readonly generation: string;
  /** Customers that Redis knows to have an order. */
  readonly buyers: number;
}

/** A quick look at a sale. */
export interface SaleDigest {
  /** Null: the sale is not in Redis, or from another epoch. */
  readonly free: number | null;
  /** Reservations that are not settled. */
  readonly pending: number;
  /** Of the oldest of them, by Redis's clock; 0 without one. */
  readonly ageMs: number;
  readonly buyers: number;
}

/** A lease's fencing token, and the lock whose tokens it is compared with. */
export interface Fence {
  readonly token: number | null;
  readonly lock: string;
}

/** Attempts on one sale, for lua/sale/reserve-many.lua. */
export interface SaleAttempts {
  readonly keys: SaleKeys;
  readonly members: readonly { readonly userId: string; readonly orderId: string }[];
}

/** Reservations of one sale, for lua/sale/acknowledge.lua. */
export interface SaleReservations {
  readonly keys: SaleKeys;
  readonly members: readonly Omit<Reservation, 'saleId'>[];
}

/** A sale that has no unit, in one state of its units: see lua/sale/sold-out.lua. */
export interface SoldOut {
  /** Grows whenever a unit comes back. */
  readonly generation: string;
  /** Below zero: it does not end. */
  readonly endsInMs: number;
}

/** @returns for each sale its state; null: a unit is free, or the sale is not open, or not in Redis. */
export type SoldOutScript = (
  sales: readonly SaleKeys[],
  epoch: number,
) => Promise<readonly (SoldOut | null)[]>;

/** What an attempt needs. The calls that take a unit carry a deadline, and throw UnansweredError when it is not known whether they did. */
export interface PurchaseScripts {
  reserve(keys: SaleKeys, userId: string, orderId: string, epoch: number): Promise<ReserveReply>;
  /** What `reserve` decides, for many attempts at once. @returns a reply for each, sale by sale, in their order */
  reserveMany(sales: readonly SaleAttempts[], epoch: number): Promise<readonly ReserveReply[]>;
  soldOut: SoldOutScript;
  fencedRead(keys: SaleKeys, counter: string, fence: Fence, epoch: number): Promise<FencedReadReply>;
  fencedDeduct(
    keys: SaleKeys,
    counter: string,
    userId: string,
    orderId: string,
    fence: Fence,
    epoch: number,
  ): Promise<FencedDeductReply>;
  /** @returns whether this call released the reservation; false when it was settled before, or another has the claim. */
  release(
    keys: SaleKeys,
    release: Omit<Reservation, 'saleId'> & {
      discardUnit: boolean;
      ownerOrderId: string;
      claimedAtMs: number;
    },
  ): Promise<boolean>;
  /** Claims one reservation: see lua/sale/claim.lua. */
  claim(
    keys: SaleKeys,
    reservation: Omit<Reservation, 'saleId'>,
  ): Promise<number | 'claimed-by-another' | 'released'>;
  /** Forgets reservations of sales that are open, and puts the buyers back whom one that was opened since does not know. */
  acknowledge(committed: readonly SaleReservations[], epoch: number): Promise<void>;
}

/** What keeps a sale in Redis and in Postgres the same. */
export interface UpkeepScripts {
  /** Claims reservations whose claims are over, oldest first. @returns their entries, and the claim to all of them */
  claimAbandoned(
    keys: SaleKeys,
    most: number,
  ): Promise<{ readonly claimedAtMs: number; readonly entries: readonly string[] }>;
  /** Gives up a claim. */
  unclaim(keys: SaleKeys, reservation: Omit<Reservation, 'saleId'>, claimedAtMs: number): Promise<void>;
  /** @returns whether this call opened the sale; false when it was open. */
  load(
    keys: SaleKeys,
    buyersKey: string,
    state: {
      remaining: number;
      segments: number;
      startsMs: number | null;
      endsMs: number | null;
      epoch: number;
      /** Numbers of restocks that `remaining` has and Redis has not heard of. */
      restocks: readonly string[];
      /** Reservations that Postgres has. */
      committed: readonly Reservation[];
    },
  ): Promise<boolean>;
  /**
   * @param restock its number; it is told once, however often this is called
   * @returns how many units were added (or, below zero, taken); 0 when a cut found too few; null when the sale is not in Redis
   */
  restock(keys: SaleKeys, units: number, epoch: number, restock?: string): Promise<number | null>;
  /** Whether an order is reserved in one of these sales. */
  findReservation(sales: readonly SaleKeys[], orderId: string): Promise<boolean>;
  /** What there is to be looked after, for each sale. */
  scan(sales: readonly SaleKeys[], epoch: number): Promise<readonly SaleDigest[]>;
  /** null: the sale is not in Redis. */
  snapshot(keys: SaleKeys, epoch: number): Promise<MirrorSnapshot | null>;
  /** @returns whether Redis was changed; null: the sale is not in Redis. */
  applyChange(
    keys: SaleKeys,
    move: Pick<MirrorChange, 'direction' | 'userId' | 'orderId'> & { readonly counter: string },
    epoch: number,
  ): Promise<boolean | null>;
  /** @returns whether Redis was changed; false when anything had happened since `seen`. */
  repair(keys: SaleKeys, buyersKey: string, seen: MirrorSnapshot, remaining: number): Promise<boolean>;
}

export interface LockScripts {
  renew(lockKey: string, token: string, ttlMs: number): Promise<boolean>;
  unlock(lockKey: string, token: string): Promise<boolean>;
}

/** The keys of one sale; one hash tag, so that they share a cluster slot. */
export interface SaleKeys {
  readonly state: string;
  /** Where the units are counted: the state's field `remaining`, or one field for each segment. */
  readonly counters: string;
  /** What `counters` is for a strategy with segments. */
  readonly segments: string;
  readonly buyers: string;
  readonly reservations: string;
  /** Numbers of the restocks that Redis was told. */
  readonly restocks: string;
}

/** What stands in the sorted set of a sale's reservations. No part of it holds a blank: see userIdOf in http/purchase-listener.ts. */
function entryOf({ userId, orderId, reservedAt }: Omit<Reservation, 'saleId'>): string {
  return `${userId} ${orderId} ${reservedAt}`;
}

/** The reservation that an entry records. */
export function readEntry(saleId: number, entry: string): Reservation {
  const [userId, orderId, reservedAt] = entry.split(' ') as [string, string, string];
  return { saleId, userId, orderId, reservedAt };
}

/** What changes when a unit is taken or comes back. */
const all = (keys: SaleKeys) => [keys.state, keys.counters, keys.buyers, keys.reservations];

/** Customers and their orders, in one string. */
function pairsOf(members: SaleAttempts['members']): string {
  let pairs = '';
  for (const { userId, orderId } of members) pairs += `${userId} ${orderId} `;
  return pairs;
}

/** @param asked the order id that the line answers */
function reserveReplyOf(line: string, asked: string): ReserveReply {
  const [word, orderId, reservedAt] = line.split(' ');
  return [word, orderId === '=' ? asked : orderId, reservedAt] as unknown as ReserveReply;
}

/** What ioredis says of a command that it did not send. */
export const NOT_SENT =
  /enableOfflineQueue|isn't writeable|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|^connect E|max number of clients reached/;

/** Whether Redis answered a command with an error, or did not get it: in either case it was not, and will not be, carried out. */
const isCertain = ({ name, message }: Error) => name === 'ReplyError' || NOT_SENT.test(message);

/** When a reservation was made, milliseconds since 1970. */
export function madeAtMs({ reservedAt }: Pick<Reservation, 'reservedAt'>): number {
  return Number.parseInt(reservedAt, 10);
}

/** Defines the scripts of an attempt on a connection. */
export function definePurchaseScripts(redis: Redis, clock: StoreClock): PurchaseScripts {
  const reserve = defineScript(redis, 'sale/reserve', 3);
  const reserveMany = defineScript(redis, 'sale/reserve-many');
  const soldOut = defineScript(redis, 'sale/sold-out');
  const fencedRead = defineScript(redis, 'sale/fenced-read', 2);
  const fencedDeduct = defineScript(redis, 'sale/fenced-deduct', 4);
  const release = defineScript(redis, 'sale/release', 4);
  const claim = defineScript(redis, 'sale/claim', 2);
  const acknowledge = defineScript(redis, 'sale/acknowledge');
  const putBack = defineScript(redis, 'sale/restore-buyers', 2);

  /** Sends a command that takes units, with its deadline: see late-requests.ts. */
  async function withDeadline<R>(send: (deadlineMs: number) => Promise<Reply>): Promise<R> {
    await clock.synchronize();
    const deadlineMs = Math.ceil(clock.nowMs()) + limits.redisCommandMs;
    try {
      return (await send(deadlineMs)) as R;
    } catch (error) {
      throw isCertain(error as Error) ? error : new UnansweredError(error, deadlineMs);
    }
  }

  return {
    reserve: (keys, userId, orderId, epoch) =>
      withDeadline<ReserveReply>((deadlineMs) =>
        reserve(keys.state, keys.buyers, keys.reservations, userId, orderId, epoch, deadlineMs),
      ),
    async reserveMany(sales, epoch) {
      const keys: string[] = [];
      const values: string[] = [];
      for (const { keys: of, members } of sales) {
        keys.push(of.state, of.buyers, of.reservations);
        values.push(pairsOf(members));
      }
      const reply = await withDeadline<string>((deadlineMs) =>
        reserveMany(keys.length, ...keys, epoch, deadlineMs, ...values),
      );
      const lines = reply.split('\n');
      const replies: ReserveReply[] = [];
      for (const { members } of sales) {
        for (const { orderId } of members) replies.push(reserveReplyOf(lines[replies.length]!, orderId));
      }
      return replies;
    },
    async soldOut(sales, epoch) {
      type Reply = readonly [generation: string, endsInMs: number] | readonly [];
      const states = sales.map(({ state }) => state);
      const replies = (await soldOut(states.length, ...states, epoch)) as readonly Reply[];
      return replies.map((reply) =>
        reply[0] === undefined ? null : { generation: reply[0], endsInMs: reply[1]! },
      );
    },
    fencedRead: async (keys, counter, { token, lock }, epoch) =>
      (await fencedRead(
        keys.state,
        keys.counters,
        counter,
        token ?? 0,
        lock,
        epoch,
      )) as unknown as FencedReadReply,
    fencedDeduct: (keys, counter, userId, orderId, fence, epoch) =>
      withDeadline<FencedDeductReply>((deadlineMs) =>
        fencedDeduct(...all(keys), counter, userId, orderId, fence.token ?? 0, fence.lock, epoch, deadlineMs),
      ),
    release: async (keys, r) =>
      (await release(
        ...all(keys),
        r.reservedAt,
        r.userId,
        r.orderId,
        r.discardUnit ? 1 : 0,
        r.ownerOrderId,
        r.claimedAtMs,
      )) === 1,
    async claim(keys, { userId, orderId, reservedAt }) {
      const record = `${orderId} ${reservedAt}`;
      const reply = (await claim(keys.buyers, keys.reservations, userId, record, limits.claimMs)) as number;
      if (reply > 0) return reply;
      return reply === 0 ? 'claimed-by-another' : 'released';
    },
    async acknowledge(committed, epoch) {
      const keys = committed.flatMap((sale) => [sale.keys.reservations, sale.keys.state]);
      const entries = committed.map(({ members }) => members.map(entryOf).join(' '));
      const incomplete = (await acknowledge(keys.length, ...keys, epoch, ...entries)) as readonly number[];
      for (const sale of incomplete) {
        const { keys, members } = committed[sale - 1]!;
        const told = members.flatMap(({ reservedAt, userId, orderId }) => [reservedAt, userId, orderId]);
        await putBack(keys.state, keys.buyers, ...told);
      }
    },
  };
}

/** Defines the scripts that look after a sale on a connection. */
export function defineUpkeepScripts(redis: Redis): UpkeepScripts {
  const claimAbandoned = defineScript(redis, 'sale/claim-abandoned', 1);
  const unclaim = defineScript(redis, 'sale/unclaim', 1);
  const load = defineScript(redis, 'sale/load', 7);
  const applyChange = defineScript(redis, 'sale/apply-change', 4);
  const restock = defineScript(redis, 'sale/restock', 3);
  const scan = defineScript(redis, 'sale/scan-sales');
  const findReservation = defineScript(redis, 'sale/find-reservation');
  const snapshot = defineScript(redis, 'sale/snapshot', 4);
  const repair = defineScript(redis, 'sale/repair', 5);
  return {
    async claimAbandoned({ reservations }, most) {
      const reply = (await claimAbandoned(reservations, limits.claimMs, most)) as [number, ...string[]];
      const [claimedAtMs, ...entries] = reply;
      return { claimedAtMs, entries };
    },
    async unclaim({ reservations }, reservation, claimedAtMs) {
      await unclaim(reservations, entryOf(reservation), claimedAtMs, madeAtMs(reservation));
    },
    load: async (keys, buyersKey, s) =>
      (await load(
        keys.state,
        keys.counters,
        keys.buyers,
        keys.reservations,
        keys.segments,
        keys.restocks,
        buyersKey,
        s.remaining,
        s.segments,
        s.startsMs ?? '',
        s.endsMs ?? '',
        s.epoch,
        s.restocks.join(' '),
        ...s.committed.map(entryOf),
      )) === 1,
    applyChange: async (keys, { direction, userId, orderId, counter }, epoch) => {
      const reply = (await applyChange(...all(keys), direction, userId, orderId, counter, epoch)) as number;
      return reply < 0 ? null : reply === 1;
    },
    restock: async (keys, units, epoch, number = '') =>
      (await restock(keys.state, keys.counters, keys.restocks, units, epoch, number)) as number | null,
    async findReservation(sales, orderId) {
      const keys = sales.map(({ reservations }) => reservations);
      return (await findReservation(keys.length, ...keys, orderId)) === 1;
    },
    async scan(sales, epoch) {
      const keys = sales.flatMap((s) => [s.state, s.counters, s.reservations, s.buyers]);
      const flat = (await scan(keys.length, ...keys, epoch)) as readonly (number | null)[];
      return sales.map((_, i) => {
        type Values = [free: number | null, pending: number, ageMs: number, buyers: number];
        const [free, pending, ageMs, buyers] = flat.slice(4 * i, 4 * i + 4) as Values;
        return { free, pending, ageMs, buyers };
      });
    },
    snapshot: async (keys, epoch) => {
      type Seen = readonly [remaining: number, pending: number, generation: string, buyers: number] | null;
      const seen = (await snapshot(keys.state, keys.counters, keys.reservations, keys.buyers, epoch)) as Seen;
      return seen && { remaining: seen[0], pending: seen[1], generation: seen[2], buyers: seen[3] };
    },
    repair: async (keys, buyersKey, seen, remaining) =>
      (await repair(
        keys.state,
        keys.counters,
        keys.reservations,
        keys.buyers,
        buyersKey,
        seen.remaining,
        seen.generation,
        remaining,
      )) === 1,
  };
}

/** Defines the scripts of a lock on a connection. */
export function defineLockScripts(redis: Redis): LockScripts {
  const renew = defineScript(redis, 'lock/renew', 1);
  const unlock = defineScript(redis, 'lock/release', 1);
  return {
    renew: async (lockKey, token, ttlMs) => (await renew(lockKey, token, ttlMs)) === 1,
    unlock: async (lockKey, token) => (await unlock(lockKey, token)) === 1,
  };
}
