/** What goes wrong in a schedule: events like the others, each at a step that the seed chooses. */
import type { Random } from '../kit/random.ts';

export type FaultKind = (typeof FAULTS)[number];

export interface Fault {
  readonly kind: FaultKind;
  /** The step at which it happens, or the first one after it at which it can. */
  readonly step: number;
  /** Chooses the process, the link or the moment, 0 ≤ n < 1. */
  readonly which: number;
  /** Steps until what it began ends: a frozen process goes on, a dead one is started again. */
  readonly lasts: number;
}

const FAULTS = [
  'cut a connection',
  'silence a connection',
  'end a process',
  'freeze a process',
  'time passes',
  'empty Redis',
  'restore Redis from a snapshot',
  'promote a copy of Redis',
  'two copies of Redis',
  'cancel a statement',
  'promote the standby of Postgres',
] as const;

const OF_REDIS: ReadonlySet<FaultKind> = new Set([
  'empty Redis',
  'restore Redis from a snapshot',
  'promote a copy of Redis',
  'two copies of Redis',
]);

/** @param isReserving whether the strategy uses Redis */
export const kindsOf = (isReserving: boolean): readonly FaultKind[] =>
  FAULTS.filter((kind) => isReserving || !OF_REDIS.has(kind));

/** Of a schedule, up to three. @param isReserving whether the strategy uses Redis */
export function faultsOf(random: Random, isReserving: boolean, steps: number): Fault[] {
  const kinds = kindsOf(isReserving);
  const count = Math.floor(random() * 4);
  return Array.from({ length: count }, () => ({
    kind: kinds[Math.floor(random() * kinds.length)]!,
    step: Math.floor(random() * steps),
    which: random(),
    lasts: 5 + Math.floor(random() * 60),
  })).sort((a, b) => a.step - b.step);
}
