/** Judges a sale under a fault: the audit, the consistency of its answers, and their times. */
import { type AuditReport, checkNames } from '../../../lab/audit/audit.ts';
import { type Consistency, consistencyOf, type SaleRead } from '../../../lab/audit/consistency.ts';
import type { StrategyFault } from '../../../lab/faults/strategy-fault.ts';
import type { AttemptOutcome, HistoryRecord } from '../../../lab/history.ts';
import type { Judgement } from '../../../lab/sale-trial.ts';
import type { Lanes } from '../../kit/suite.ts';

export type StrategyTrial = Readonly<ReturnType<typeof judgeSale>>;

export interface Sold {
  readonly stock: number;
  readonly history: readonly HistoryRecord[];
  readonly reads: readonly SaleRead[];
}

export interface Struck {
  readonly fault: StrategyFault;
  readonly isControl: boolean;
  /** From strike to heal, in ms since the load began. */
  readonly band: Lanes['band'];
}

/** How long customers arrive steadily. */
export const STEADY_MS = 8_000;
const BUCKET_MS = 100;
/** A picture shows only longer pauses. */
const GAP_MS = 200;

const unexplained = (found: Consistency | null): string[] =>
  found?.verdict === 'inconsistent'
    ? [`no order of the requests explains ${JSON.stringify(found.step)}`]
    : [];

export function judgeSale(
  { stock, history, reads }: Sold,
  { fault, isControl, band }: Struck,
  { report, settledMs, orders }: Judgement,
) {
  const buyers = new Set(orders.map(({ userId }) => userId));
  const isLeftOut = isControl || fault.loses || report.verdict === 'unknown';
  const consistency = isLeftOut ? null : consistencyOf(stock, history, reads, orders);
  const unknown = history.filter(({ result }) => result === 'info');
  return {
    word: consistency?.verdict === 'inconsistent' ? 'broken' : wordOf(report, fault.loses === true),
    /** The longest time between two accepted attempts while customers came steadily. */
    silentMs: longestSilence(history),
    /** From the end of the load until no reservation and no change for Redis was pending. */
    settledMs,
    /** Attempts without a known outcome, and how many of them became orders. */
    unknown: unknown.length,
    unknownPlaced: unknown.filter(({ userId }) => buyers.has(userId)).length,
    /** 5xx other than 503. */
    errors: history.filter(({ status }) => status !== null && status >= 500 && status !== 503).length,
    /** How consistent the answers were; null: the control, a fault that loses orders, or no audit. */
    consistency: consistency?.verdict ?? null,
    findings: [...report.findings, ...unexplained(consistency)],
    picture: pictureOf(history, band),
  } as const;
}

/** @returns lost: the fault loses accepted orders (`mayLose`), and nothing else is wrong */
export function wordOf(
  report: AuditReport,
  mayLose: boolean,
): 'kept' | 'lost' | 'oversold' | 'broken' | 'not audited' {
  if (report.verdict === 'pass') return 'kept';
  if (report.verdict === 'unknown') return 'not audited';
  if (mayLose && checkNames.every((name) => name === 'lost' || report[name] === 0)) return 'lost';
  return report.oversold !== null && report.oversold > 0 ? 'oversold' : 'broken';
}

/** The longest time without an accepted attempt in the steady phase. */
function longestSilence(history: readonly HistoryRecord[]): number {
  const accepted = history
    .filter(({ outcome, completedUs }) => outcome === 'accepted' && completedUs! < STEADY_MS * 1_000)
    .map(({ completedUs }) => completedUs! / 1_000)
    .sort((a, b) => a - b);
  return Math.round(Math.max(0, ...[...accepted, STEADY_MS].map((ms, n) => ms - (accepted[n - 1] ?? 0))));
}

const LANES: readonly (readonly [name: string, outcomes: readonly AttemptOutcome[]])[] = [
  ['accepted', ['accepted', 'replayed']],
  ['sold out', ['sold-out']],
  ['busy', ['busy']],
  ['unknown', ['unknown', 'unexpected']],
];

/** When attempts had each outcome; those without an answer are at their start. */
function pictureOf(history: readonly HistoryRecord[], band: Lanes['band']): Lanes {
  const at = ({ completedUs, invokedUs }: HistoryRecord): number => (completedUs ?? invokedUs) / 1_000;
  return {
    endMs: Math.round(Math.max(STEADY_MS, ...history.map(at))),
    band: [Math.round(band[0]), Math.round(band[1])],
    exclusive: false,
    lanes: LANES.map(([name, outcomes]) => {
      const found = history
        .filter(({ outcome }) => outcomes.includes(outcome))
        .map((one) => Math.floor(at(one) / BUCKET_MS));
      const spans: [number, number][] = [];
      for (const bucket of [...new Set(found)].sort((a, b) => a - b)) {
        const last = spans.at(-1);
        if (last && bucket * BUCKET_MS - last[1] <= GAP_MS) last[1] = (bucket + 1) * BUCKET_MS;
        else spans.push([bucket * BUCKET_MS, (bucket + 1) * BUCKET_MS]);
      }
      return { name, spans, marks: [] };
    }),
  };
}
