/** Two holders at once. */

/** The time of a hold, in any unit. */
export interface Held {
  readonly from: number;
  readonly to: number;
}

export interface Overlap<T extends Held> extends Held {
  /** The earlier one. */
  readonly one: T;
  readonly other: T;
}

/** All pairs that overlap, in the order in which the overlaps begin. */
export function* overlapsOf<T extends Held>(spans: readonly T[]): Generator<Overlap<T>> {
  let held: T[] = [];
  for (const other of spans.toSorted((a, b) => a.from - b.from)) {
    held = held.filter(({ to }) => to > other.from);
    for (const one of held) yield { one, other, from: other.from, to: Math.min(one.to, other.to) };
    held.push(other);
  }
}
