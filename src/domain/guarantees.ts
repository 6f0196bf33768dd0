/**
 * What a strategy promises, as data: `GET /strategies`, the documentation and the contract suite all read this,
 * so that a promise that is printed is a promise that is tested.
 */
export interface Guarantees {
  /** P1: active orders never exceed the stock. */
  readonly neverOversells: boolean;
  /** P2: what was answered with 201 is committed in Postgres. */
  readonly neverLoses: boolean;
  /** P3: at most one active order for a (sale, user); a repeat gets the same order. */
  readonly onePerCustomer: boolean;
  /** P4: nobody is told "sold out" while a unit is free. */
  readonly neverStrands: boolean;
  /** P5: exactly one points entry for each order. */
  readonly pointsOnce: boolean;
  /** The promises hold when Redis loses its memory in the middle of a sale. */
  readonly survivesRedisLoss: boolean;
}

/** A strategy as people read about it. */
export interface StrategyDescription {
  readonly name: string;
  /** One sentence. */
  readonly summary: string;
  /** The store that decides who gets a unit. */
  readonly store: 'redis' | 'postgres';
  /** Whether `LOCK` chooses a lock for it. */
  readonly usesLock: boolean;
  /** Round trips of one sold attempt to the store that decides, counted without the commit that follows. */
  readonly roundTrips: number;
  readonly guarantees: Guarantees;
}
