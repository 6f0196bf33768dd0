/**
 * The interface of every strategy: the algorithm that decides whether an attempt gets a unit.
 *
 * A strategy answers with a value; only what nobody foresaw throws. There are two kinds. One *reserves* in Redis and
 * leaves the commit to `orders/order-committer.ts`; its `reservations` tells where they are kept. The other *commits* order,
 * count and points itself, in Postgres, and has no reservations.
 */
import type { StrategyDescription } from '../domain/guarantees.ts';
import type { Attempt } from '../domain/order.ts';
import type { ClaimedReservation, ReserveOutcome } from '../domain/outcome.ts';
import type { Sale } from '../domain/sale.ts';
import type { Lock } from '../locks/lock.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import type { RedisStore } from '../store/redis/connection.ts';
import type { RedisEpochs } from '../store/redis/epochs.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import type { SoldOutLatch } from './redis/sold-out-latch.ts';

export interface Strategy {
  readonly description: StrategyDescription;
  /** Where reservations wait for their commit; null for a strategy that commits by itself. */
  readonly mirror: SaleMirror | null;
  /** What this process knows of sales that are sold out; null for a strategy that asks its store each time. */
  readonly latch: SoldOutLatch | null;
  /** How many attempts it decides at a time, at most. */
  readonly maxBatch: number;
  /** Makes the strategy's store ready for a sale. Calling it again changes nothing. */
  load(sale: Sale): Promise<void>;
  /** Decides one attempt. The same attempt (same orderId) asked again takes no second unit. */
  reserve(attempt: Attempt): Promise<ReserveOutcome>;
  /**
   * Releases a reservation, exactly once.
   * @param options.discardUnit when Postgres has no such unit, so that it must not be offered again
   * @param options.ownerOrderId the order that the customer has instead
   * @returns whether this call released it; false when it was settled before, or another process has claimed it
   */
  release(
    reservation: ClaimedReservation,
    options?: { discardUnit?: boolean; ownerOrderId?: string },
  ): Promise<boolean>;
  /**
   * Adds units to a sale or cuts free ones.
   * @returns the sale; `below-sold`; `busy`: nothing was changed, and another try may help; null when there is no such sale
   */
  restock(saleId: number, units: number): Promise<Sale | 'below-sold' | 'busy' | null>;
  /** Units that the strategy would still sell; null when its store does not know the sale. */
  remaining(saleId: number): Promise<number | null>;
}

/** What a strategy is made from. */
export interface StrategyContext {
  readonly postgres: PostgresStore;
  readonly redis: RedisStore;
  readonly epochs: RedisEpochs;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
  /** The lock that `LOCK` names. */
  readonly lock: Lock;
  readonly segments: number;
  readonly lockTtlMs: number;
  readonly lockWaitMs: number;
  readonly paymentWindowS: number;
  /** Told of the size of each batch that a strategy makes of attempts. */
  readonly onBatch: (size: number) => void;
  /** Told of failures that change no answer. */
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

export interface StrategyEntry {
  readonly description: StrategyDescription;
  create(context: StrategyContext): Strategy;
}

/** All the promises of the project: what every strategy gives that is not the unsafe control. */
export const ALL_GUARANTEES = {
  neverOversells: true,
  neverLoses: true,
  onePerCustomer: true,
  neverStrands: true,
  pointsOnce: true,
  survivesRedisLoss: true,
} as const;
