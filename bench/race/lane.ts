/** What one lane of a race has seen: its answers by time, what faults did to it, and the verdict. Independent of clocks. */
import type { StrategyDescription } from '../../src/domain/guarantees.ts';
import type { AuditReport } from '../audit/audit.ts';
import type { AttemptOutcome } from '../kit/history.ts';
import { number } from '../kit/text.ts';
import { BIN_MS, type LaneVerdict, type LaneView, type Outage } from './view.ts';

/**
 * A pause between two decided answers that is the fault's: so many of the lane's mean gaps before it, and at least so long. A fault
 * lasts 2 s; the start of ten servers on two cores alone keeps every lane waiting for a second.
 */
const STALL_GAPS = 20;
const STALL_MS = 1_500;
/** A pause that begins so long after the heal is not the fault's. */
const AFTER_HEAL_MS = 3_000;

/** Whether a pause that begins then is the fault's. */
const isOfFault = ({ healedMs }: Struck, atMs: number): boolean =>
  healedMs === null || atMs < healedMs + AFTER_HEAL_MS;

interface Struck {
  readonly atMs: number;
  readonly stallMs: number;
  healedMs: number | null;
  recoveredMs: number | null;
}

export class Lane {
  isReady = false;
  #verdict: LaneVerdict | null = null;
  readonly #description: StrategyDescription;
  readonly #units: number;
  readonly #counts = { accepted: 0, soldOut: 0, busy: 0, unknown: 0, unsent: 0 };
  readonly #bins: number[] = [];
  readonly #struck: Struck[] = [];
  /** When the last attempt was accepted, or refused because all is sold. */
  #decidedMs = 0;
  #decided = 0;
  #allSoldMs: number | null = null;
  /** The last answer has come. */
  #isOver = false;

  constructor(description: StrategyDescription, units: number) {
    this.#description = description;
    this.#units = units;
  }

  get isSafe(): boolean {
    return this.#description.guarantees.neverOversells;
  }

  answered(outcome: AttemptOutcome, atMs: number): void {
    const counts = this.#counts;
    if (outcome === 'accepted') {
      counts.accepted += 1;
      if (counts.accepted >= this.#units) this.#allSoldMs ??= Math.round(atMs);
      const bin = Math.floor(atMs / BIN_MS);
      while (this.#bins.length <= bin) this.#bins.push(0);
      this.#bins[bin]! += 1;
    } else if (outcome === 'sold-out') {
      counts.soldOut += 1;
      this.#allSoldMs ??= Math.round(atMs);
    } else if (outcome === 'busy') counts.busy += 1;
    else if (outcome !== 'replayed') counts.unknown += 1;
    if (outcome === 'accepted' || outcome === 'replayed' || outcome === 'sold-out') this.#decide(atMs);
  }

  missing(wasSent: boolean): void {
    this.#counts[wasSent ? 'unknown' : 'unsent'] += 1;
  }

  struck(atMs: number): void {
    const stallMs = Math.max(STALL_MS, (STALL_GAPS * atMs) / Math.max(1, this.#decided));
    this.#struck.push({ atMs, stallMs, healedMs: null, recoveredMs: null });
  }

  healed(atMs: number): void {
    const last = this.#struck.at(-1);
    if (last) last.healedMs = atMs;
  }

  /** No answer comes any more. */
  ended(): void {
    this.#isOver = true;
  }

  /** @param sold orders in Postgres */
  judged(report: AuditReport, sold: number): void {
    this.#verdict = verdictOf(report, this.#units, sold);
  }

  #decide(atMs: number): void {
    this.#decided += 1;
    const last = this.#struck.at(-1);
    if (last) {
      const sinceMs = Math.max(this.#decidedMs, last.atMs);
      const isPause = atMs - sinceMs > last.stallMs && isOfFault(last, sinceMs);
      if (isPause) last.recoveredMs = Math.round(atMs - last.atMs);
    }
    this.#decidedMs = atMs;
  }

  /** @param nowMs of the race */
  view(nowMs: number): LaneView {
    const { name, summary } = this.#description;
    const outage = (struck: Struck, n: number): Outage => {
      const { atMs, healedMs, recoveredMs } = struck;
      const sinceMs = Math.max(this.#decidedMs, atMs);
      const mayStop = n === this.#struck.length - 1 && isOfFault(struck, sinceMs) && !this.#isOver;
      return { healedMs, recoveredMs, isStopped: mayStop && nowMs - sinceMs > struck.stallMs };
    };
    return {
      ...{ strategy: name, summary, isSafe: this.isSafe, isReady: this.isReady },
      ...this.#counts,
      allSoldMs: this.#allSoldMs,
      bins: [...this.#bins],
      outages: this.#struck.map(outage),
      verdict: this.#verdict,
    };
  }
}

/** What the audit says, in a word, a number and a sentence. */
function verdictOf(report: AuditReport, units: number, sold: number): LaneVerdict {
  const { verdict, oversold, lost, undersold, findings } = report;
  if (verdict === 'pass') {
    const all = `${number(sold)} of ${number(units)} units sold`;
    return {
      word: 'exact',
      count: 0,
      sold,
      sentence: `${all}; none is lost or doubled.`,
    };
  }
  const [first = ''] = findings;
  const sentence = `${first.charAt(0).toUpperCase()}${first.slice(1)}.`;
  if (verdict === 'unknown') return { word: 'not audited', count: 0, sold, sentence };
  const words = [
    ['oversold', oversold],
    ['lost', lost],
    ['stranded', undersold],
  ] as const;
  const [word, count] = words.find(([, found]) => found !== null && found > 0) ?? ['broken', 0];
  return { word, count: count ?? 0, sold, sentence };
}
