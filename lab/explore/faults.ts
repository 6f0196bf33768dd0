/** What goes wrong in a schedule: events like the others, each at a step that the seed chooses. */
import type { Random } from '../kit/random.ts';

/** How often each is chosen, compared with others, and where it can happen. */
const FAULTS = {
  'cut a connection': { weight: 2 },
  'silence a connection': { weight: 3 },
  'end a process': { weight: 1 },
  'freeze a process': { weight: 1.5 },
  'time passes': { weight: 2 },
  'empty Redis': { weight: 1.5, where: 'redis' },
  'restore Redis from a snapshot': { weight: 1, where: 'redis' },
  'promote a copy of Redis': { weight: 1.5, where: 'redis' },
  'lead a process to another Redis': { weight: 2.5, where: 'redis' },
  'cancel a statement': { weight: 1 },
  'promote the standby of Postgres': { weight: 1 },
  'the standby is away': { weight: 2, where: 'synchronous' },
} as const satisfies Readonly<Record<string, FaultOptions>>;

interface FaultOptions {
  readonly weight: number;
  /** Undefined: everywhere. */
  readonly where?: 'redis' | 'synchronous';
}

export type FaultKind = keyof typeof FAULTS;

export interface Fault {
  readonly kind: FaultKind;
  /** The step at which it happens, or the first one after it at which it can. */
  readonly step: number;
  /** Chooses the process, the link or the moment, 0 ≤ n < 1. */
  readonly which: number;
  /** Steps until what it began ends: a frozen process goes on, a dead one is started again. */
  readonly lasts: number;
}

/** Where faults happen. */
export interface Exposed {
  /** Whether the strategy uses Redis. */
  readonly isReserving: boolean;
  /** Whether Postgres has a synchronous standby. */
  readonly isSynchronous: boolean;
}

export function kindsOf({ isReserving, isSynchronous }: Exposed): readonly FaultKind[] {
  const isThere = { redis: isReserving, synchronous: isSynchronous };
  return (Object.keys(FAULTS) as FaultKind[]).filter((kind) => {
    const { where }: FaultOptions = FAULTS[kind];
    return where === undefined || isThere[where];
  });
}

/** How many a schedule has, each as likely as the others. */
const COUNTS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3];

/** Of a schedule, up to three. @param steps within which they begin */
export function faultsOf(random: Random, exposed: Exposed, steps: number): Fault[] {
  const kinds = kindsOf(exposed);
  const total = kinds.reduce((sum, kind) => sum + FAULTS[kind].weight, 0);
  const kindOf = (chosen: number) => {
    let left = chosen * total;
    for (const kind of kinds) {
      left -= FAULTS[kind].weight;
      if (left < 0) return kind;
    }
    return kinds.at(-1)!;
  };
  const count = COUNTS[Math.floor(random() * COUNTS.length)]!;
  return Array.from({ length: count }, () => ({
    kind: kindOf(random()),
    step: Math.floor(random() * steps),
    which: random(),
    lasts: 5 + Math.floor(random() ** 2 * 100),
  })).sort((a, b) => a.step - b.step);
}
