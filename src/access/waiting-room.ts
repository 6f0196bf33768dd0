/**
 * When a customer's turn in a sale begins.
 *
 *   before the start ──▶ a random instant of the sale's lottery: [startsAt, startsAt + spreadS)
 *   during the lottery ──▶ the same random number, as an instant of what is left of it: never earlier than in the whole one
 *   after it ──▶ the next free instant: as many a second as the service serves, behind the lottery's
 *
 * The instant of the lottery depends only on the sale's secret seed and the customer: neither coming earlier nor asking again
 * changes it, and coming later makes it later. A store keeps each customer's turn, so a customer cannot collect several. Without the store no turn is given.
 */
import { createHmac } from 'node:crypto';
import type { Sale } from '../domain/sale.ts';

export interface WaitingRoom {
  /**
   * @param seed the sale's secret
   * @param nowMs by the clock of Postgres, like all times of tickets
   * @returns the turn, milliseconds since 1970; never before the start
   * @throws what the store throws; the customer may have the turn then, and gets the same one on the next request
   */
  turn(sale: Sale, seed: string, customer: string, nowMs: number): Promise<number>;
}

/** Keeps the turns of all sales: turns.ts. */
export interface TurnStore {
  /**
   * In one step: returns the turn that the customer has and whose ticket is valid, or gives the one drawn, or the next free one.
   * Customers of a process get the free ones in the order of their calls.
   */
  take(request: TurnRequest): Promise<number>;
}

/** Times are milliseconds since 1970, by the clock of Postgres. */
export interface TurnRequest {
  readonly saleId: number;
  readonly customer: string;
  readonly nowMs: number;
  /** In the lottery; null: after it. */
  readonly drawnMs: number | null;
  readonly startMs: number;
  /** Length of the lottery. */
  readonly spreadMs: number;
  readonly perSecond: number;
  /** How long a ticket is valid from its turn on. */
  readonly validMs: number;
}

/**
 * @param perSecond turns a second that the service can serve, at least 1
 * @param validMs how long a ticket is valid from its turn on; the customer keeps the turn for that time
 */
export function createWaitingRoom(
  turns: TurnStore,
  perSecond: () => number,
  validMs: (sale: Sale) => number,
): WaitingRoom {
  return {
    turn(sale, seed, customer, nowMs) {
      const { id, startsAt, spreadS = 0 } = sale;
      const startMs = startsAt === null ? nowMs : Date.parse(startsAt);
      const spreadMs = spreadS * 1_000;
      const [fromMs, endMs] = [Math.max(startMs, nowMs), startMs + spreadMs];
      const isDrawn = nowMs < Math.max(endMs, startMs) && startsAt !== null;
      return turns.take({
        saleId: id,
        customer,
        nowMs,
        drawnMs: isDrawn ? fromMs + Math.floor(fraction(seed, `${id}.${customer}`) * (endMs - fromMs)) : null,
        startMs,
        spreadMs,
        perSecond: Math.max(1, perSecond()),
        validMs: validMs(sale),
      });
    },
  };
}

/** A number in [0, 1) that only the holder of the seed can predict. */
function fraction(seed: string, text: string): number {
  const hash = createHmac('sha256', seed).update(text).digest();
  return hash.readUIntBE(0, 6) / 2 ** 48;
}
