/**
 * When a customer's turn in a sale begins.
 *
 *   before the start ──▶ a random instant of the sale's lottery: [startsAt, startsAt + spreadS)
 *   after it ──▶ the next free instant: as many a second as the service serves, less those of the lottery
 *
 * The instant of the lottery depends only on the sale's secret seed and the customer: neither coming earlier nor asking again
 * changes it. Redis keeps each customer's turn, so a customer cannot collect several. Without Redis no turn is given.
 */
import { createHmac } from 'node:crypto';
import { limits } from '../config/limits.ts';
import type { Sale } from '../domain/sale.ts';
import type { RedisStore } from '../store/redis/connection.ts';
import { keysOf } from '../store/redis/sale-keys.ts';
import { defineScript } from '../store/redis/script.ts';

export interface WaitingRoom {
  /**
   * @param seed the sale's secret
   * @returns the turn, milliseconds since 1970; never before the start
   * @throws what ioredis throws; the customer may have the turn then, and gets the same one on the next request
   */
  turn(sale: Sale, seed: string, customer: string, nowMs: number): Promise<number>;
}

/**
 * @param perSecond turns a second that the service can serve, at least 1
 * @param validMs how long a ticket is valid from its turn on; the customer keeps the turn for that time
 */
export function createWaitingRoom(
  { redis }: RedisStore,
  perSecond: () => number,
  validMs: number,
): WaitingRoom {
  const takeTurn = defineScript<string>(redis, 'sale/take-turn', 1);
  return {
    async turn({ id, startsAt, spreadS = 0 }, seed, customer, nowMs) {
      const startMs = startsAt === null ? nowMs : Date.parse(startsAt);
      const spreadMs = spreadS * 1_000;
      const drawn =
        nowMs < startMs ? startMs + Math.floor(fraction(seed, `${id}.${customer}`) * spreadMs) : '';
      const { keepMs } = limits.tickets;
      const { turns } = keysOf(id, 0);
      return Number(
        await takeTurn(
          ...[turns, customer, nowMs, drawn, startMs, spreadMs, Math.max(1, perSecond()), validMs, keepMs],
        ),
      );
    },
  };
}

/** A number in [0, 1) that only the holder of the seed can predict. */
function fraction(seed: string, text: string): number {
  const hash = createHmac('sha256', seed).update(text).digest();
  return hash.readUIntBE(0, 6) / 2 ** 48;
}
