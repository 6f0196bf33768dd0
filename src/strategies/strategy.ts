/**
 * The interface of every strategy: the algorithm that decides whether an attempt gets a unit.
 *
 * A strategy with a mirror reserves a unit in Redis; orders/order-committer.ts commits the reservation afterwards. A strategy without
 * one commits order, count and points by itself. A strategy returns its decision as a value and throws only for defects.
 */
import type { StrategyDescription } from '../domain/guarantees.ts';
import type { Attempt } from '../domain/order.ts';
import type { Decision } from '../domain/outcome.ts';
import type { Sale } from '../domain/sale.ts';
import type { Lock } from '../locks/lock.ts';
import type { IdempotencyKey } from '../store/postgres/idempotency.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import type { RedisStore } from '../store/redis/connection.ts';
import type { RedisEpochs } from '../store/redis/epochs.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';

/**
 * What a purchase locks first in Postgres: the row of the sale, or the customer's entry in the unique index of active orders. Late
 * payments follow it, because whoever has one and waits for the other could wait for a purchase that does the opposite.
 */
export type LocksFirst = 'sale' | 'customer';

/** The sales that this process knows to be sold out. */
export interface KnownSoldOut {
  /** Whether "sold out" is the answer to this customer, without a query. */
  isSoldOut(saleId: number, userId: string): boolean;
  /** An attempt was answered "sold out": from when the sale is found to be, it is known. */
  markSoldOut(saleId: number): void;
  /** Units of a sale have returned: it is not known any more. */
  forget(saleId: number): void;
  /** Known sales. */
  readonly size: number;
  close(): void;
}

export interface Strategy {
  readonly description: StrategyDescription;
  readonly locksFirst: LocksFirst;
  /** The maximum number of attempts that it decides at once. */
  readonly maxBatch: number;
  /** Where its reservations are until the committer has committed them. Null: it commits by itself. */
  readonly mirror: SaleMirror | null;
  readonly knownSoldOut?: KnownSoldOut;
  /** Resolves once it can decide: no request is served before. Its attempts report a failure. */
  readonly ready?: Promise<unknown>;
  /** Prepares the strategy's store for a sale. Idempotent. Absent: nothing to prepare. */
  load?(sale: Pick<Sale, 'id'>): Promise<void>;
  /**
   * Takes over the terms of a sale (window, pause, limit, offer) that Postgres has committed. Absent: it reads them in Postgres. Once it has
   * resolved, no process decides by older ones. @throws what the stores throw
   */
  setTerms?(sale: Pick<Sale, 'id'>): Promise<void>;
  /** Decides one attempt. Idempotent by order id: the same attempt takes one unit at most. */
  decide(attempt: Attempt): Promise<Decision>;
  /**
   * Adds units to a sale, or cuts free ones (below zero).
   * @param key of a request that has one: it happens once, and a repeat gets the same sale
   * @returns the sale; `below-sold`: too few are free, or too many would be; `busy`: nothing was changed, retry; null: no such sale
   * @throws KeyReusedError; what the stores throw
   */
  restock(saleId: number, units: number, key?: IdempotencyKey | null): Promise<RestockResult>;
}

export type RestockResult = Sale | 'below-sold' | 'busy' | null;

/** The dependencies of a strategy that decides in Postgres. */
export interface StrategyContext {
  readonly postgres: PostgresStore;
  readonly sales: SaleTable;
  readonly orders: OrderTable;
  readonly paymentWindowS: number;
  /** Receives the size of each batch of attempts. */
  readonly onBatch: (size: number) => void;
  /** Receives failures that do not affect an outcome. @param doing the operation, such as 'load-sale' */
  readonly onError: (doing: string, error: unknown, ids: object) => void;
}

/** What a strategy that decides in Redis needs besides. */
export interface RedisParts {
  readonly redis: RedisStore;
  readonly epochs: RedisEpochs;
  /** The lock that `LOCK` names. */
  readonly lock: Lock;
  readonly segments: number;
  readonly lockTtlMs: number;
  readonly lockWaitMs: number;
  /** What an accepted attempt waits for: see `CONFIRM`. */
  readonly confirm: 'durable' | 'accepted';
}

export type RedisStrategyContext = StrategyContext & RedisParts;

export interface StrategyEntry {
  readonly description: StrategyDescription;
  /** @param redis null: the service has no Redis @throws StartError when the strategy needs it */
  create(context: StrategyContext, redis: RedisParts | null): Strategy;
}

/** The guarantees of every strategy but the unsafe control. */
export const ALL_GUARANTEES = {
  neverOversells: true,
  neverLoses: true,
  onePerCustomer: true,
  neverStrands: true,
  pointsOnce: true,
  survivesRedisLoss: true,
} as const;
