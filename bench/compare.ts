/**
 * `npm run bench -- --compare`: did a change make something faster or slower, beyond noise?
 *
 * Two runs were made at different times, when a shared machine was not equally fast, so figures of the one do not stand
 * beside figures of the other. What stands is how a strategy did beside the baseline of its own run, round by round:
 *
 *   before: strategy ÷ baseline of each round ─▶ median ┐
 *                                                       ├─▶ after ÷ before, with a 95 % interval by the bootstrap of both
 *   after:  strategy ÷ baseline of each round ─▶ median ┘
 *
 * The interval is widened by the noise that the twins of both runs show, on average. A change is told when the wider
 * interval does not span 1, and the change is larger than a margin. In 1,500 simulated pairs of runs with five rounds and
 * 3 % noise in each trial, 0.3 % of identical strategies were told as changed, and 95 % of those that became 15 % slower.
 * Rejected: an interval that is not widened (2 % of the identical ones, which is one in every other run with a dozen
 * strategies), and one that is widened by the sum of both noises (80 % of the slower ones).
 */
import type { Verdict } from './audit/audit.ts';
import { number } from './audit/check.ts';
import { exitCodes, refuse } from './command.ts';
import { helpText, parseCompareOptions } from './compare-options.ts';
import { differences, weaknesses } from './compare-warnings.ts';
import { shortCommit } from './kit/machine.ts';
import { type Interval, meanOf, median, noiseFloor, quotientOfMedians, quotients } from './kit/statistics.ts';
import { baselineOf, type Contender, label } from './plan.ts';
import { readResults } from './report/again.ts';
import type { Results } from './report/results.ts';
import { type Column, terminalTable } from './report/terminal-table.ts';
import type { Point, TrialResult } from './result.ts';

/** A figure in both runs. */
export interface Change {
  /** Medians over the rounds. */
  readonly before: number;
  readonly after: number;
  /** after ÷ before. */
  readonly quotient: Interval;
  readonly verdict: 'better' | 'worse' | 'tie';
}

/** A strategy (and lock, and point of a sweep) in both runs. */
export interface StrategyChange {
  readonly name: string;
  /** What the others are divided by. */
  readonly isBaseline: boolean;
  /** Null: it is in both runs. */
  readonly onlyIn: 'before' | 'after' | null;
  /** accepted/s of the closed loop as it is: the speed of the machine is in it, and it is no finding. Null: not measured. */
  readonly acceptedPerSecond: Change | null;
  /** accepted/s of the closed loop ÷ that of the baseline. Null: it is the baseline, or not measured in both. */
  readonly throughput: Change | null;
  /** p99 of accepted attempts in the rush that all strategies meet ÷ that of the baseline. Null as above. */
  readonly p99: Change | null;
  /** The worst of all rounds and loads. */
  readonly verdict: { readonly before: Verdict | null; readonly after: Verdict | null };
  /** From pass to anything else, or from unknown to fail; never of a strategy that is declared unsafe. */
  readonly auditWorse: boolean;
}

export interface ComparisonReport {
  /** Commit and start of each run. */
  readonly runs: readonly [before: string, after: string];
  readonly marginPercent: number;
  /** What makes the two runs less comparable, in words. */
  readonly warnings: readonly string[];
  /** Null: no strategy is in both runs. */
  readonly baseline: string | null;
  /** False: the baseline's own accepted/s differs beyond noise, so that figures as they are say little. */
  readonly sameSpeed: boolean;
  readonly rows: readonly StrategyChange[];
}

type Side = 'before' | 'after';
type Both<T> = Readonly<Record<Side, T>>;

/** A strategy at a point in one run. */
interface Row extends Contender {
  /** With its point where the runs have several. */
  readonly name: string;
  readonly at: string;
  readonly trials: readonly TrialResult[];
  /** The same strategy measured once more in each round; none: it is not the baseline. */
  readonly twins: readonly TrialResult[];
}

export function compareResults(before: Results, after: Results, marginPercent: number): ComparisonReport {
  const at = pointText([before, after]);
  const rows: Both<readonly Row[]> = { before: rowsOf(before, at), after: rowsOf(after, at) };
  const names = [...new Set([...rows.before, ...rows.after].map(({ name }) => name))];
  const pairs = names.map((name) => ({
    name,
    before: rows.before.find((row) => row.name === name),
    after: rows.after.find((row) => row.name === name),
  }));
  const common = pairs.flatMap(({ before, after }) => (before && after ? [before] : []));
  const baseline = baselineOf(common, before.plan.baseline);
  const changes = pairs.map((pair) => changeOf(pair, rows, baseline, marginPercent));
  const own = changes.filter(({ isBaseline }) => isBaseline);
  const sameSpeed = own.every(({ acceptedPerSecond }) => (acceptedPerSecond?.verdict ?? 'tie') === 'tie');
  const warnings = [
    ...differences(before, after),
    ...weaknesses('before', before),
    ...weaknesses('after', after),
    ...pairs.flatMap(({ name, before, after }) => {
      if (before && after) return [];
      return [`${name} is only in the run ${before ? 'before' : 'after'}`];
    }),
    ...(baseline === null ? ['no strategy is in both runs'] : suspicion(changes, label(baseline))),
  ];
  return {
    runs: [runText(before), runText(after)],
    marginPercent,
    warnings,
    baseline: baseline === null ? null : label(baseline),
    sameSpeed,
    rows: changes,
  };
}

/** What became slower, or whose audit became worse. */
export function regressions({ rows }: ComparisonReport): readonly StrategyChange[] {
  return rows.filter((row) => told(row, 'worse') || row.auditWorse);
}

const told = ({ throughput, p99 }: StrategyChange, verdict: Change['verdict']): boolean =>
  throughput?.verdict === verdict || p99?.verdict === verdict;

/** Names a point by the axes along which one of the runs has several. */
function pointText(runs: readonly Results[]): (point: Point) => string {
  const several = (axis: keyof Point): boolean =>
    runs.some(({ trials }) => new Set(trials.map(({ point }) => point[axis])).size > 1);
  const [far, clients, sales] = [several('rttMs'), several('connections'), several('sales')];
  return (point) =>
    [
      far ? `, ${point.rttMs} ms away` : '',
      clients ? `, ${point.connections} connections` : '',
      sales ? `, ${point.sales} sales` : '',
    ].join('');
}

function rowsOf({ trials }: Results, at: (point: Point) => string): Row[] {
  const rows = new Map<string, Row & { trials: TrialResult[]; twins: TrialResult[] }>();
  for (const trial of trials) {
    const { strategy, lock, unsafe, twin } = trial;
    const name = `${label({ strategy, lock, twin: false })}${at(trial.point)}`;
    const row = rows.get(name) ?? {
      ...{ strategy, lock, unsafe, twin: false },
      ...{ name, at: at(trial.point), trials: [], twins: [] },
    };
    rows.set(name, row);
    (twin ? row.twins : row.trials).push(trial);
  }
  return [...rows.values()].filter((row) => row.trials.length > 0);
}

/** A figure of each round that counts. */
type Figure = (trials: readonly TrialResult[]) => ReadonlyMap<number, number>;

const acceptedPerSecond: Figure = (trials) =>
  new Map(
    trials
      .filter(({ load, invalid }) => load === 'closed' && invalid.length === 0)
      .map((trial) => [trial.round, trial.acceptedPerSecond]),
  );

const rushP99Ms: Figure = (trials) =>
  new Map(
    trials.flatMap(({ round, load, rush, invalid, acceptedLatencyMs }) =>
      load === 'open' && rush?.rate === 'fixed' && invalid.length === 0 && acceptedLatencyMs !== null
        ? [[round, acceptedLatencyMs.p99]]
        : [],
    ),
  );

function changeOf(
  pair: { readonly name: string } & Partial<Both<Row | undefined>>,
  rows: Both<readonly Row[]>,
  baseline: Contender | null,
  marginPercent: number,
): StrategyChange {
  const { name, before, after } = pair;
  const bare = {
    name,
    isBaseline: false,
    onlyIn: before ? (after ? null : ('before' as const)) : ('after' as const),
    ...{ acceptedPerSecond: null, throughput: null, p99: null, auditWorse: false },
    verdict: { before: before ? worstVerdict(before) : null, after: after ? worstVerdict(after) : null },
  };
  if (!before || !after) return bare;
  const ownOf = (side: Side): Row | undefined =>
    rows[side].find(
      (row) => row.at === before.at && row.strategy === baseline?.strategy && row.lock === baseline.lock,
    );
  const own = { before: ownOf('before'), after: ownOf('after') };
  const isBaseline = own.before === before;
  const change = (figure: Figure, higherIsBetter: boolean, divided: boolean): Change | null => {
    const values = (row: Row, base: Row | undefined): readonly number[] => {
      const own = figure(row.trials);
      const under = meanOf(figure(base?.trials ?? []), figure(base?.twins ?? []));
      return divided ? quotients(own, under) : [...own.values()];
    };
    const both = { before: values(before, own.before), after: values(after, own.after) };
    const noise = divided ? (noiseAt(rows.before, figure) + noiseAt(rows.after, figure)) / 2 : 0;
    return judge(both, noise, marginPercent, higherIsBetter);
  };
  return {
    ...bare,
    isBaseline,
    acceptedPerSecond: change(acceptedPerSecond, true, false),
    throughput: isBaseline ? null : change(acceptedPerSecond, true, true),
    p99: isBaseline ? null : change(rushP99Ms, false, true),
    auditWorse: !before.unsafe && badness[bare.verdict.after!] > badness[bare.verdict.before!],
  };
}

/** What the twins of a run say of a figure; 0: there are none. */
function noiseAt(rows: readonly Row[], figure: Figure): number {
  return noiseFloor(rows.flatMap(({ trials, twins }) => quotients(figure(twins), figure(trials))));
}

function judge(
  { before, after }: Both<readonly number[]>,
  noise: number,
  marginPercent: number,
  higherIsBetter: boolean,
): Change | null {
  const plain = quotientOfMedians(after, before);
  if (plain === null) return null;
  const quotient = { ...plain, low: plain.low * (1 - noise), high: plain.high * (1 + noise) };
  const spansOne = quotient.low <= 1 && quotient.high >= 1;
  const small = Math.abs(quotient.median - 1) <= marginPercent / 100;
  const better = quotient.median > 1 === higherIsBetter ? 'better' : 'worse';
  const verdict = quotient.rounds < 2 || spansOne || small ? 'tie' : better;
  return { before: median(before), after: median(after), quotient, verdict };
}

const badness: Readonly<Record<Verdict, number>> = { pass: 0, unknown: 1, fail: 2 };

/** Also of trials whose figures do not count, and of the twin, which is the same strategy. */
function worstVerdict({ trials, twins }: Row): Verdict {
  const verdicts = [...trials, ...twins].map(({ audit, serviceDied }): Verdict => {
    return serviceDied && audit.verdict === 'pass' ? 'unknown' : audit.verdict;
  });
  return verdicts.reduce((worst, verdict) => (badness[verdict] > badness[worst] ? verdict : worst), 'pass');
}

/** When everything moves alike, it is what it is divided by that moved. */
function suspicion(changes: readonly StrategyChange[], baseline: string): string[] {
  const verdicts = changes.flatMap(({ throughput }) => (throughput === null ? [] : [throughput.verdict]));
  const [first] = verdicts;
  if (verdicts.length < 2 || first === 'tie' || verdicts.some((verdict) => verdict !== first)) return [];
  const other = first === 'worse' ? 'faster' : 'slower';
  return [`every strategy changed the same way: rather than they, ${baseline} may have become ${other}`];
}

const runText = ({ commit, startedAt }: Results): string =>
  `${shortCommit(commit)} of ${startedAt.slice(0, 16).replace('T', ' ')} UTC`;

const columns: readonly Column[] = [
  ['strategy', 'left'],
  ['accepted/s', 'right'],
  ['× base', 'right'],
  ['change (95 %)', 'right'],
  ['rush p99 × base', 'right'],
  ['change (95 %)', 'right'],
  ['audit', 'left'],
  ['finding', 'left'],
];

/** For a terminal: what to beware of, the table, and what was found. */
export function comparisonText(report: ComparisonReport): string {
  const { runs, warnings, baseline, sameSpeed, rows, marginPercent } = report;
  const ratio = (change: Change | null): string => pairText(change, (value) => value.toFixed(2));
  const body = rows.map((row) => [
    row.name,
    `${pairText(row.acceptedPerSecond, (value) => number(Math.round(value)))}${sameSpeed ? '' : ' *'}`,
    row.isBaseline ? 'base' : ratio(row.throughput),
    changeText(row.throughput),
    row.isBaseline ? 'base' : ratio(row.p99),
    changeText(row.p99),
    row.onlyIn === null ? auditText(row) : `only ${row.onlyIn}`,
    findingText(row),
  ]);
  const foot = [
    ...(sameSpeed
      ? []
      : [
          `* not the same machine speed, or ${baseline} itself changed: its own accepted/s differs beyond noise; the quotients count`,
        ]),
    `× base: divided by ${baseline ?? 'nothing'} in the same round. Change: after ÷ before, its interval widened by the noise of ` +
      `the twins; told beyond it and beyond ${marginPercent} %.`,
  ];
  return [
    `before: ${runs[0]}\nafter:  ${runs[1]}`,
    ...(warnings.length === 0 ? [] : [warnings.map((warning) => `! ${warning}`).join('\n')]),
    terminalTable(columns, body),
    foot.join('\n'),
    conclusion(report),
  ].join('\n\n');
}

function pairText(change: Change | null, text: (value: number) => string): string {
  return change === null ? '–' : `${text(change.before)} → ${text(change.after)}`;
}

function changeText(change: Change | null): string {
  if (change === null) return '–';
  const { median: middle, low, high, rounds } = change.quotient;
  return rounds < 2 ? percent(middle) : `${percent(middle)} (${percent(low)} … ${percent(high)})`;
}

/** 0.85 → "−15 %". */
function percent(quotient: number): string {
  const change = Math.round((quotient - 1) * 100);
  return `${change > 0 ? '+' : change < 0 ? '−' : '±'}${Math.abs(change)} %`;
}

function auditText({ verdict: { before, after } }: StrategyChange): string {
  return before === after ? `${after}` : `${before} → ${after}`;
}

function findingText({ throughput, p99, auditWorse }: StrategyChange): string {
  const word = { better: ['faster', 'lower p99'], worse: ['slower', 'higher p99'], tie: ['', ''] } as const;
  const parts = [
    auditWorse ? 'audit worse' : '',
    word[throughput?.verdict ?? 'tie'][0],
    word[p99?.verdict ?? 'tie'][1],
  ];
  return parts.filter((part) => part !== '').join(', ') || '–';
}

function conclusion(report: ComparisonReport): string {
  const list = (rows: readonly StrategyChange[]): string =>
    rows.map((row) => `${row.name} (${findingText(row)})`).join('; ');
  const worse = regressions(report);
  const better = report.rows.filter((row) => told(row, 'better') && !worse.includes(row));
  if (worse.length + better.length === 0) return 'Nothing changed beyond noise.';
  return [
    worse.length === 0 ? 'No regression.' : `Regression: ${list(worse)}.`,
    ...(better.length === 0 ? [] : [`Better: ${list(better)}.`]),
  ].join('\n');
}

/** @param args what stands behind --compare. @returns the exit code */
export async function compareCommand(args: readonly string[]): Promise<number> {
  const parsed = parseCompareOptions(args);
  if (parsed.kind === 'help') {
    process.stdout.write(helpText());
    return exitCodes.success;
  }
  if (parsed.kind === 'mistakes') return refuse(parsed.mistakes);
  const { before, after, failOnRegression, marginPercent } = parsed.options;
  const [old, now] = await Promise.all([readResults(before), readResults(after)]);
  if (typeof old === 'string' || typeof now === 'string')
    return refuse([old, now].filter((one) => typeof one === 'string'));
  const report = compareResults(old, now, marginPercent);
  process.stdout.write(`${comparisonText(report)}\n`);
  return failOnRegression && regressions(report).length > 0 ? exitCodes.failure : exitCodes.success;
}
