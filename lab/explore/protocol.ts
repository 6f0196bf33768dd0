/** What the command and its explorers say to each other. */
import type { Target } from './process.ts';

/** Seeds are played from `seed` on, every `stride`-th, each with every target: a world for each. With `exhaustive`, `seed` is the part of `stride` parts. */
export interface Explore {
  readonly kind: 'explore';
  readonly targets: readonly Target[];
  readonly seed: number;
  readonly stride: number;
  /** Worlds, each with the schedules of several sales; null: until it is stopped. */
  readonly count: number | null;
  /** Plays every schedule of a small case with at most so many events out of order, instead of seeds. */
  readonly exhaustive: number | null;
}

export interface Finding {
  readonly kind: 'finding';
  readonly target: Target;
  readonly seed: number;
  readonly what: readonly string[];
  /** The events of the smallest schedule that still shows it. */
  readonly timeline: readonly string[];
  /** Of the smallest schedule: faults, requests of clients, events that were not the oldest. */
  readonly size: Readonly<Record<'sales' | 'faults' | 'requests' | 'deviations', number>>;
}

export type FromExplorer =
  | { readonly kind: 'ready' }
  | Finding
  /** Since the last one. */
  | {
      readonly kind: 'progress';
      readonly schedules: Readonly<Record<string, number>>;
      readonly events: number;
      /** How many worlds had each fault. */
      readonly faults: Readonly<Record<string, number>>;
      /** The events of the last schedule, when it was the only one. */
      readonly timeline?: readonly string[];
    }
  | { readonly kind: 'done' };
