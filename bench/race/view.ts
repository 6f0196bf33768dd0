/** Views of a race: types that the page, the run and `race.json` share. Times are ms since the start of the load. */

export interface RaceOptions {
  /** One lane for each, in this order. */
  readonly strategies: readonly string[];
  /** Customers of each lane: the same ones, in the same order, at the same times. */
  readonly customers: number;
  readonly units: number;
  /** Customers a second. */
  readonly rate: number;
  readonly seed: number;
}

/**
 *   idle ─start─▶ preparing ─▶ running ─▶ auditing ─▶ done ─start─▶ preparing
 *                     └───────────┴───────────┴─ stop ─▶ idle, or failure ─▶ failed ─start─▶ preparing
 */
export type Phase = 'idle' | 'preparing' | 'running' | 'auditing' | 'done' | 'failed';

/** A fault injected into all lanes. */
export interface Strike {
  readonly name: string;
  readonly title: string;
  readonly struckMs: number;
  /** Whether it has ended in all lanes. */
  readonly isHealed: boolean;
}

/** The effect of a strike on one lane. */
export interface Outage {
  /** When the fault of this lane ended; null: it lasts. */
  readonly healedMs: number | null;
  /**
   * From the strike until the lane answered accepted or sold out again. Null with `isStopped`: it has not yet; null without:
   * it never stopped.
   */
  readonly recoveredMs: number | null;
  readonly isStopped: boolean;
  /** Whether a pause that begins now would not be attributed to the strike. */
  readonly isOver: boolean;
}

/** `units left`: the audit found nothing wrong, and units are left. */
export type Word = 'exact' | 'units left' | 'oversold' | 'lost' | 'stranded' | 'broken' | 'not audited';

export interface LaneVerdict {
  readonly word: Word;
  /** Units or orders that `word` counts; 0 if it counts none. */
  readonly count: number;
  /** Orders in Postgres, including those whose responses were lost. */
  readonly sold: number;
  readonly sentence: string;
}

export interface LaneView {
  readonly strategy: string;
  readonly summary: string;
  /** Whether the strategy claims that it never oversells. */
  readonly isSafe: boolean;
  readonly isReady: boolean;
  readonly accepted: number;
  /** When the last unit was sold or the first customer refused; null: units are left. */
  readonly allSoldMs: number | null;
  readonly soldOut: number;
  readonly busy: number;
  /** Sent, with an unknown outcome. */
  readonly unknown: number;
  /** Not sent: no connection was available in time. */
  readonly unsent: number;
  /** Accepted attempts in each BIN_MS of the race. */
  readonly bins: readonly number[];
  /** In the order of the race's strikes. */
  readonly outages: readonly Outage[];
  readonly verdict: LaneVerdict | null;
}

export interface RaceView {
  readonly phase: Phase;
  readonly options: RaceOptions;
  /** 0 before the first customer; constant after the last answer. */
  readonly elapsedMs: number;
  /** When the last customer arrives. */
  readonly durationMs: number;
  readonly strikes: readonly Strike[];
  readonly lanes: readonly LaneView[];
  /** Why the race failed; null: it did not. */
  readonly problem: string | null;
}

/** The page draws one column per bin. */
export const BIN_MS = 500;

/** Units of a lane that were sold beyond the stock, in each bin. */
export function oversoldBins({ bins }: Pick<LaneView, 'bins'>, units: number): number[] {
  let sold = 0;
  return bins.map((count) => {
    const before = Math.max(0, sold - units);
    sold += count;
    return Math.max(0, sold - units) - before;
  });
}

/** "exact", "12 units left", "oversold by 12", "lost 3". */
export function verdictText({ word, count }: Pick<LaneVerdict, 'word' | 'count'>): string {
  const n = count.toLocaleString('en-US');
  if (word === 'units left') return `${n} ${word}`;
  return count === 0 ? word : `${word}${word === 'oversold' ? ' by' : ''} ${n}`;
}

/** Whether the audit found nothing wrong. */
export const isRight = ({ word }: Pick<LaneVerdict, 'word'>): boolean =>
  word === 'exact' || word === 'units left';

/** The effect of a strike on a lane, in words. */
export function recoveryText({ recoveredMs, isStopped, isOver }: Outage): string {
  if (isStopped) return 'stopped';
  if (recoveredMs !== null) return `recovered after ${(recoveredMs / 1_000).toFixed(1)} s`;
  return isOver ? 'kept answering' : 'still answers';
}

/** Choices that the page offers. */
export interface Choices {
  readonly strategies: readonly { readonly name: string; readonly summary: string }[];
  readonly faults: readonly { readonly name: string; readonly title: string; readonly happens: string }[];
  readonly bounds: Readonly<Record<'customers' | 'units' | 'rate' | 'seed', readonly [number, number]>> & {
    readonly lanes: number;
  };
}
