/** State of one lane of a race: answers by time, the effects of faults, and the verdict. Reads no clock. */

import type { AuditReport } from '../../lab/audit/audit.ts';
import type { AttemptOutcome } from '../../lab/history.ts';
import { number } from '../../lab/kit/text.ts';
import type { StrategyDescription } from '../../src/domain/guarantees.ts';
import { BIN_MS, type LaneVerdict, type LaneView, type Outage } from './view.ts';

/**
 * A pause between two decided answers counts as an outage if it is at least this many mean gaps of the lane, and at least this
 * long. A fault lasts 2 s; on two cores, starting ten servers already delays every lane by a second.
 */
const STALL_GAPS = 20;
const STALL_MS = 1_500;
/** A pause that begins later than this after the heal is not attributed to the fault. */
const AFTER_HEAL_MS = 3_000;

/** Whether a pause that begins at `atMs` is attributed to the fault. */
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
  /** When the last attempt was accepted, replayed or sold out. */
  #decidedMs = 0;
  #decided = 0;
  #allSoldMs: number | null = null;
  /** When the last answer had arrived. */
  #endedMs: number | null = null;

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

  /** Called after the last answer. */
  ended(atMs: number): void {
    this.#endedMs = atMs;
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
      const isLast = n === this.#struck.length - 1;
      const untilMs = Math.min(nowMs, this.#endedMs ?? nowMs);
      const isStopped = isLast && isOfFault(struck, sinceMs) && untilMs - sinceMs > struck.stallMs;
      const isOver = !isLast || this.#endedMs !== null || !isOfFault(struck, nowMs);
      return { healedMs, recoveredMs, isStopped, isOver };
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

/** The audit's verdict as a word, a number and a sentence. */
function verdictOf(report: AuditReport, units: number, sold: number): LaneVerdict {
  const { verdict, oversold, lost, undersold, findings } = report;
  if (verdict === 'pass') {
    const all = `${number(sold)} of ${number(units)} units sold`;
    const left = Math.max(0, units - sold);
    const sentence = `${all}; none is lost or doubled.`;
    return { word: left === 0 ? 'exact' : 'units left', count: left, sold, sentence };
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
