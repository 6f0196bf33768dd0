/** What the run says: one sentence, the ranking of what was correct, and what was not and why. */
import { isDeepStrictEqual } from 'node:util';
import { quantity } from '../../audit/check.ts';
import { label } from '../../plan.ts';
import type { Point } from '../../result.ts';
import type { SummaryRow } from '../../summary.ts';
import type { Results } from '../results.ts';
import { type Cell, html, listOf, type Markup, nothing, tableOf } from './markup.ts';
import { rate, units } from './numbers.ts';
import { rankingTable } from './ranking.ts';

/** Whether the row may be ranked. The twin of the baseline is not ranked: it shows the noise. */
export function isCorrect({ verdict, unsafe, twin }: SummaryRow): boolean {
  return verdict === 'pass' && !unsafe && !twin;
}

/** "12 of 12 safe strategies sold exactly the stock and passed every other check; unsafe oversold by 700." */
export function verdictSentence({ summary, trials }: Results): string {
  const safe = summary.filter(({ unsafe, twin }) => !unsafe && !twin);
  const names = [...new Set(safe.map(label))];
  const passed = names.filter((name) => safe.every((row) => label(row) !== name || row.verdict === 'pass'));
  if (names.length === 0 && summary.length === 0) return 'No trial was finished.';
  const closed = trials.filter((trial) => trial.load === 'closed' && passed.includes(label(trial)));
  const soldOut = closed.length > 0 && closed.every(({ timeToSellOutMs }) => timeToSellOutMs !== null);
  const did = soldOut ? 'sold exactly the stock and passed every other check' : 'passed every check';
  const safeText =
    passed.length === 0
      ? `None of ${quantity(names.length, 'safe strategy', 'safe strategies')} passed every check`
      : `${passed.length} of ${quantity(names.length, 'safe strategy', 'safe strategies')} ${did}`;
  const sentences = [
    names.length === 0 ? 'No safe strategy was measured' : safeText,
    ...unsafeTexts(summary),
  ];
  return `${sentences.join('; ')}.`;
}

function unsafeTexts(summary: readonly SummaryRow[]): string[] {
  const unsafe = summary.filter((row) => row.unsafe && !row.twin);
  return [...new Set(unsafe.map(label))].map((name) => {
    const worst = Math.max(
      ...unsafe.filter((row) => label(row) === name).map((row) => row.worst.oversold ?? 0),
    );
    return worst > 0 ? `${name} oversold by ${units(worst)}` : `${name} was not seen to oversell`;
  });
}

/** The rankings, one for each point that was measured, and below each what was not correct. */
export function verdicts(results: Results): Markup {
  const points = pointsOf(results);
  const sections = points.map((point) => {
    const rows = results.summary.filter((row) => isDeepStrictEqual(row.point, point));
    const heading = points.length === 1 ? nothing : html`<h3>${pointText(point)}</h3>`;
    const where = points.length === 1 ? '' : `, ${pointText(point)}`;
    return html`${heading}${ranking(rows, results, where)}${wrongs(rows, where)}`;
  });
  return html`${sections}${leftOut(results.summary)}`;
}

/** Where there are rows, in their order of the axis. */
export function pointsOf({ summary }: Results): Point[] {
  const points: Point[] = [];
  for (const { point } of summary) {
    if (!points.some((known) => isDeepStrictEqual(known, point))) points.push(point);
  }
  return points.sort((a, b) => a.rttMs - b.rttMs || a.connections - b.connections || a.sales - b.sales);
}

/** "64 connections, 1 sale, 2 ms added to each round trip". */
export function pointText({ rttMs, connections, sales }: Point): string {
  const delay = rttMs === 0 ? [] : [`${rttMs} ms added to each round trip`];
  return [quantity(connections, 'connection'), quantity(sales, 'sale'), ...delay].join(', ');
}

function ranking(summary: readonly SummaryRow[], results: Results, where: string): Markup {
  const rows = summary.filter(isCorrect);
  if (rows.length === 0) return html`<p>No strategy has a rank${where}: none passed its audit.</p>`;
  return rankingTable(rows, results, `Correct strategies, ranked${where}`);
}

/** Findings of one row that are shown at once; the others unfold. */
const shownFindings = 3;

function wrongs(summary: readonly SummaryRow[], where: string): Markup {
  const rows = summary.filter((row) => row.verdict !== 'pass' || (row.unsafe && !row.twin));
  if (rows.length === 0) return nothing;
  const columns = [
    { title: 'strategy', align: 'left' },
    { title: 'verdict', align: 'left' },
    { title: 'oversold', align: 'right' },
    { title: 'accepted/s', align: 'right' },
    { title: 'what went wrong', align: 'left' },
  ] as const;
  const body = rows.map((row) => [
    label(row),
    verdictText(row),
    row.worst.oversold === null ? '?' : units(row.worst.oversold),
    row.acceptedInterval === null ? '–' : rate(row.acceptedInterval.median),
    findings(row),
  ]);
  const heading = rows.every(({ verdict }) => verdict === 'fail')
    ? 'Not correct'
    : 'Not correct, or not known to be';
  return html`<h3>${heading}${where}</h3>
<p>These have no rank: a rate counts only with its audit.</p>
${tableOf({ columns, rows: body }, `Strategies that are not correct${where}`)}`;
}

/** Why a row has no rank, in a few words. */
export function wrongWords({ verdict, unsafe }: SummaryRow): string {
  if (verdict === 'fail') return 'not correct';
  return unsafe ? 'declared unsafe' : 'not known to be correct';
}

function verdictText({ verdict, unsafe, worst }: SummaryRow): string {
  if (!unsafe) return verdict === 'unknown' ? 'not known' : verdict;
  return (worst.oversold ?? 0) > 0
    ? `${verdict} (declared unsafe)`
    : `${verdict} (declared unsafe, should oversell)`;
}

function findings(row: SummaryRow): Cell {
  const shown = row.findings.slice(0, shownFindings);
  const rest = row.findings.slice(shownFindings);
  if (shown.length === 0) {
    return row.unsafe
      ? 'Declared unsafe, but this load did not make it oversell.'
      : 'The audit does not say; the service may have ended by itself.';
  }
  const more =
    rest.length === 0
      ? nothing
      : html`<details><summary>${rest.length} more</summary>${listOf(rest)}</details>`;
  return html`${listOf(shown)}${more}`;
}

/** Rounds that are in no figure, because the generator was the bottleneck; nothing where there are none. */
function leftOut(summary: readonly SummaryRow[]): Markup {
  const texts = summary.flatMap((row) => {
    const loads = [
      [row.invalid, 'of the closed loop'],
      [row.rush.fixed?.invalid ?? 0, 'of the open loop at the same rate'],
      [row.rush.share?.invalid ?? 0, 'of the open loop at its own share'],
    ] as const;
    const parts = loads
      .filter(([count]) => count > 0)
      .map(([count, load]) => `${quantity(count, 'round')} ${load}`);
    return parts.length === 0 ? [] : [`${label(row)}: ${parts.join(', ')}`];
  });
  if (texts.length === 0) return nothing;
  return html`<h3>Left out</h3>
<p>In these rounds the load generator was the bottleneck. They say more about it than about the strategy, and are in no figure.</p>
${listOf(texts)}`;
}
