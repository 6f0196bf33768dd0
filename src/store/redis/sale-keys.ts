/** The keys of a sale in Redis. What they hold: docs/reference/data.md. */
/** The keys of one sale; they share a hash tag, and so a cluster slot. */
export interface SaleKeys {
  /** Hash: remaining, startsMs, endsMs, epoch, loadedMs, generation, and the fences of locks. */
  readonly state: string;
  /** The hash that counts the units: the state, or `segments`. */
  readonly counters: string;
  /** Hash: segment → units, for a strategy with segments. */
  readonly segments: string;
  /** Hash: user id → "<order id> <reserved at>". */
  readonly buyers: string;
  /** Sorted set of reservations that Postgres does not have yet: "<user id> <order id> <reserved at>", scored by their claims. */
  readonly reservations: string;
  /** Set: numbers of the restocks that Redis has applied. */
  readonly restocks: string;
}

/** @param segments how many counters a sale has; 0 for a single one */
export function keysOf(saleId: number, segments: number): SaleKeys {
  const prefix = `stampede:{sale:${saleId}}`;
  const keys = {
    state: `${prefix}:state`,
    segments: `${prefix}:segments`,
    buyers: `${prefix}:buyers`,
    reservations: `${prefix}:reservations`,
    restocks: `${prefix}:restocks`,
  };
  return { ...keys, counters: segments > 0 ? keys.segments : keys.state };
}

/** What changes when a unit is taken or returned. */
export const unitKeys = (keys: SaleKeys) =>
  [keys.state, keys.counters, keys.buyers, keys.reservations] as const;

/** A sale, and the epoch in which it must have been loaded. */
export interface SaleInEpoch {
  readonly keys: SaleKeys;
  readonly epoch: number;
}

/** Groups sales by script call: all in one or, in a cluster, where a script may name keys of one slot only, one each. */
export function callsFor<S>(sales: readonly S[], isCluster: boolean): readonly (readonly S[])[] {
  return isCluster ? sales.map((sale) => [sale]) : [sales];
}

/** Sales of one call are on one server. The last one has its newest epoch: in an older one no sale is loaded. */
export const lastEpochOf = (sales: readonly { readonly epoch: number }[]): number => sales.at(-1)!.epoch;
