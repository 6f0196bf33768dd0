/**
 * The scripts of an attempt (lua/sale): for each its keys, its arguments, and what its reply means. The others: sale-mirror.ts.
 *
 * The scripts that take a unit carry a deadline (see late-requests.ts). When no reply arrives, they return `unanswered`,
 * because Redis may execute the command until the deadline. The others throw what ioredis throws.
 */
import type { Redis } from 'ioredis';
import { trace } from '../../concurrency/trace.ts';
import { limits } from '../../config/limits.ts';
import type { Attempt } from '../../domain/order.ts';
import type { NotOpen, Unanswered } from '../../domain/outcome.ts';
import { scriptText } from '../../locks/adapters/scripts.ts';
import type { Call, Reply } from '../../locks/clients.ts';
import { expectedRedisFailure, hasNoEffect } from '../failures/redis.ts';
import { type SaleKeys, unitKeys } from './sale-records.ts';
import type { RedisServer } from './server.ts';

/** What the adapter of the locks needs to send commands and scripts on a connection. */
export const requestsBy = (redis: Redis) => ({
  redis,
  script: (name: string, numberOfKeys: number) => defineScript(redis, name, numberOfKeys),
  explain: expectedRedisFailure,
});

/**
 * Loads a script from lua/ and defines it as a command on one connection. ioredis sends a script's hash, and its text when the server does not
 * know it (after a restart), so a call does not depend on Redis's script cache.
 * @param numberOfKeys undefined: it is the call's first argument
 */
export function defineScript<R extends Reply = Reply>(
  redis: Redis,
  name: string,
  numberOfKeys?: number,
): Call<R> {
  const command = `${name}/${numberOfKeys ?? 'n'}`; // a script may be called with different numbers of keys
  redis.defineCommand(command, {
    ...(numberOfKeys !== undefined && { numberOfKeys }),
    lua: scriptText(name),
  });
  const call = (redis as unknown as Record<string, Call<R>>)[command]!;
  return (...keysAndArguments) => trace({ name }, () => call.apply(redis, keysAndArguments));
}

export type ReserveReply =
  | readonly ['reserved' | 'held', orderId: string, reservedAt: string]
  | readonly ['not-enough-units' | 'over-limit', units: string]
  | readonly ['sold-out' | NotOpen | 'not-loaded' | 'late'];
export type FencedReadReply =
  | readonly ['loaded', units: string, buyer: string, ...terms: string[]]
  | readonly ['fenced' | 'not-loaded'];
export type FencedDeductReply =
  | readonly ['reserved', reservedAt: string]
  | readonly ['held', reservedAt: string, orderId: string]
  | readonly ['empty' | 'fenced' | 'not-loaded' | 'late'];

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

export type SaleScripts = ReturnType<typeof attemptScripts>;

/** Defines them on a connection. */
export function attemptScripts(redis: Redis, serverOf: (key: string) => RedisServer) {
  const reserve = defineScript(redis, 'sale/reserve', 3);
  const reserveMany = defineScript<string>(redis, 'sale/reserve-many');
  const fencedRead = defineScript(redis, 'sale/fenced-read', 3);
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
    reserve: (keys: SaleKeys, { userId, orderId, quantity, isEarly }: Attempt, epoch: number) =>
      withDeadline<ReserveReply>(keys, (deadlineMs) => {
        const asked = [userId, orderId, epoch, deadlineMs, quantity, isEarly === true ? '1' : ''] as const;
        return reserve(keys.state, keys.buyers, keys.reservations, ...asked);
      }),

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

    fencedRead: async (
      { state, counters, buyers }: SaleKeys,
      { userId }: Attempt,
      counter: string,
      { token, lock }: Fence,
      epoch: number,
    ) => {
      const ofLease = [counter, token ?? 0, lock, epoch] as const;
      return (await fencedRead(state, counters, buyers, ...ofLease, userId)) as unknown as FencedReadReply;
    },

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
  for (const { userId, orderId, quantity, isEarly } of members) {
    pairs += quantity === 1 ? `${userId} ${orderId}` : `${userId} ${orderId}x${quantity}`;
    pairs += isEarly === true ? 'e ' : ' ';
  }
  return pairs;
}

/** @param ownOrderId the order id of the attempt that the line answers */
function reserveReplyOf(line: string, ownOrderId: string): ReserveReply {
  const [word, orderId, reservedAt] = line.split(' ');
  return [word, orderId === '=' ? ownOrderId : orderId, reservedAt] as unknown as ReserveReply;
}
