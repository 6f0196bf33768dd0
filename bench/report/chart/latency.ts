/** Latency by percentile in an open loop. */
import { label } from '../../plan.ts';
import type { TrialResult } from '../../result.ts';
import type { RushRow, SummaryRow } from '../../summary.ts';
import { percent, rate, units } from '../page/numbers.ts';
import { ownShare } from '../page/share.ts';
import type { Results } from '../results.ts';
import { milliseconds } from '../table.ts';
import { type Figure, left, right } from './figure.ts';
import { extremes } from './finding.ts';
import { lineDrawing } from './lines.ts';
import { type Look, look, sample } from './look.ts';
import { logarithmic, percentiles } from './scale.ts';

interface Curve {
  readonly row: SummaryRow;
  readonly rush: RushRow;
  /** What is drawn of the row's curve. */
  readonly points: readonly (readonly [percent: number, ms: number])[];
}

/** The first quarters are as good as the median, and the slowest of all is chance. */
const drawn = { from: 50, to: 99.9 };
const columns = [50, 90, 99, 99.9];

export function latencyFigure(
  rows: readonly SummaryRow[],
  looks: ReadonlyMap<string, Look>,
  load: 'fixed' | 'share',
  results: Results,
): Figure | null {
  const curves = rows.flatMap((row) => curveOf(row, row.rush[load]));
  if (curves.length === 0) return null;
  const lines = curves.map(({ row, points }) => ({
    name: label(row),
    look: looks.get(label(row)) ?? look(0),
    points,
  }));
  const values = curves.flatMap(({ points }) => points.map(([, ms]) => ms));
  const drawing = {
    lines,
    x: percentiles,
    y: logarithmic(values, units),
    xName: 'percentile of accepted attempts',
    yName: 'ms, logarithmic',
    named: true,
  };
  return {
    id: `latency-${load}`,
    ...heading(curves, load, results),
    finding: finding(curves),
    legend: lines.map(({ name, look }) => ({ sample: sample(look), text: name })),
    legendAlways: false,
    data: dataOf(curves),
    draw: (frame, description) => lineDrawing(drawing, frame, description),
  };
}

function curveOf(row: SummaryRow, rush: RushRow | null): Curve[] {
  if (rush === null) return [];
  const points = rush.latencyCurve.filter(([percent]) => percent >= drawn.from && percent <= drawn.to);
  return points.length === 0 ? [] : [{ row, rush, points }];
}

function heading(
  curves: readonly Curve[],
  load: 'fixed' | 'share',
  results: Results,
): Pick<Figure, 'title' | 'caption'> {
  const rates = curves.map(({ rush }) => rush.perSecond.median);
  const [least, most] = [rate(Math.min(...rates)), rate(Math.max(...rates))];
  const share = ownShare(results) ?? 'a share';
  const reading = `${origin(results.trials, load)} p99 is what 1 of 100 accepted attempts exceeds.${slowest(results, load)} What is not correct is left out.`;
  if (load === 'fixed') {
    return {
      title: `Latency when every strategy has the same load: ${most} attempts/s`,
      caption: `Open loop. Attempts come at the same moments for every strategy, whether it keeps up or not. ${reading}`,
    };
  }
  return {
    title: `Latency when each strategy has ${share} of what it can do`,
    caption:
      `Open loop. Attempts come at ${share} of the rate that each strategy accepted in the closed loop, ` +
      `from ${least} to ${most} attempts/s. ${reading}`,
  };
}

/** From when latency counts: k6 does not tell when an attempt was due. */
function origin(trials: readonly TrialResult[], load: 'fixed' | 'share'): string {
  const due = trials.some((trial) => trial.load === 'open' && trial.rush?.rate === load);
  return `Latency counts from when an attempt was ${due ? 'due' : 'sent, as k6 tells it'}.`;
}

/** A warning where p99.9 is a single attempt; nothing where it is not. */
function slowest({ trials }: Results, load: 'fixed' | 'share'): string {
  const counts = trials.filter(({ rush, accepted }) => rush?.rate === load && accepted > 0);
  const fewest = Math.min(...counts.map(({ accepted }) => accepted));
  if (fewest >= 1_000) return '';
  return ` As few as ${units(fewest)} were accepted in a round: p99.9 is then the slowest one.`;
}

function finding(curves: readonly Curve[]): string {
  const known = new Map(curves.map(({ row, points }) => [row, at(points, 99)]));
  const rows = [...known].filter(([, ms]) => ms !== undefined).map(([row]) => row);
  const words = {
    most: 'takes longest',
    least: 'is quickest',
    text: (value: number) => `${milliseconds(value)}\u00a0ms`,
  };
  return `At p99 ${extremes(rows, (row) => known.get(row) ?? 0, words)}`;
}

function at(points: Curve['points'], percent: number): number | undefined {
  return points.find(([candidate]) => candidate === percent)?.[1];
}

function dataOf(curves: readonly Curve[]): Figure['data'] {
  const value = (ms: number | undefined): string => (ms === undefined ? '–' : milliseconds(ms));
  return {
    columns: [
      left('strategy'),
      right('attempts/s'),
      ...columns.map((percent) => right(`p${percent} ms`)),
      right('accepted'),
      right('turned down'),
      right('rounds'),
    ],
    rows: curves.map(({ row, rush, points }) => [
      label(row),
      rate(rush.perSecond.median),
      ...columns.map((percent) => value(at(points, percent))),
      percent(rush.acceptedShare.median),
      percent(rush.turnedDownShare.median),
      String(rush.rounds),
    ]),
  };
}
