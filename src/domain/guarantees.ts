/**
 * The guarantees of a strategy, as data: `GET /strategies`, the documentation and the contract suite read them, so a printed
 * guarantee is a tested one.
 */
export interface Guarantees {
  /** P1: active orders never exceed the stock. */
  readonly neverOversells: boolean;
  /** P2: an order answered with 201 is committed in Postgres. */
  readonly neverLoses: boolean;
  /** P3: at most one active order for a (sale, user); a repeat gets the same order. */
  readonly onePerCustomer: boolean;
  /** P4: no "sold out" answer while a unit is free. */
  readonly neverStrands: boolean;
  /** P5: exactly one points entry for each order. */
  readonly pointsOnce: boolean;
  /** The guarantees hold when Redis loses its data in the middle of a sale. */
  readonly survivesRedisLoss: boolean;
}

/** The description of a strategy. */
export interface StrategyDescription {
  readonly name: string;
  /** One sentence. */
  readonly summary: string;
  /** The store that assigns units. */
  readonly store: 'redis' | 'postgres';
  /** Whether `LOCK` chooses a lock for it. */
  readonly usesLock: boolean;
  /** Round trips of one accepted attempt to the deciding store, without the commit that follows. */
  readonly roundTrips: number;
  readonly guarantees: Guarantees;
}
