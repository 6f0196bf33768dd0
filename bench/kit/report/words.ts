/** The sentences of a report: the verdict of the run, its noise, its origin. */

import { shortCommit } from '../../../lab/kit/machine.ts';
import { number, plural, quantity } from '../../../lab/kit/text.ts';
import type { Results } from '../results.ts';
import type { Point } from '../suite.ts';
import type { RatioRow, SummaryRow } from '../summary.ts';
import { figure, range, when } from './numbers.ts';
import {
  axisOf,
  cellsIn,
  compared,
  findingsOf,
  groupsOf,
  hasRanking,
  isCorrect,
  isRanked,
  metricOf,
} from './rows.ts';

/** The run in two or three sentences: correctness, the first of the ranking. */
export function sentence(results: Results): string {
  if (results.summary.length === 0) return 'No trial was finished.';
  return [...acrossMatrices(results), audited(results), fastest(results)]
    .filter((text) => text !== '')
    .join(' ');
}

/** Names the rows without a bad cell. */
const acrossMatrices = ({ matrices = [] }: Results): string[] =>
  matrices.flatMap(({ noun, passed, rows }) => {
    if (passed === null || rows.length === 0) return [];
    const good = rows
      .filter(({ cells }) => cells.every(({ tone }) => tone !== 'bad'))
      .map(({ name }) => name);
    return `${good.length} of ${quantity(rows.length, noun)} ${passed}${good.length === 0 ? '' : `: ${good.join(', ')}`}.`;
  });

function audited(results: Results): string {
  const { summary, layout } = results;
  const rows = compared(summary).filter(({ verdict }) => verdict !== null);
  const all = cellsIn(rows).map((cell) => rows.filter((row) => row.cell === cell));
  // What did nothing at the leading step shows nothing that is correct.
  const idle = all.filter((own) => own.some(({ values }) => values[layout.lead]?.median === 0));
  const cells = all.filter((own) => !idle.includes(own));
  const safe = cells.filter((own) => own.every(({ unsafe }) => !unsafe));
  const passed = safe.filter((own) => own.every(({ verdict }) => verdict === 'pass')).length;
  const unsafe = cells.filter((own) => !safe.includes(own));
  const what = quantity(safe.length, `${unsafe.length > 0 ? 'safe ' : ''}${layout.audited ?? layout.noun}`);
  const parts = unsafe.map((own) => {
    const failed = own.filter(({ verdict }) => verdict?.startsWith('fail'));
    const found = failed.map((row) => worstCheck(row, results)).find((text) => text !== '');
    return failed.length === 0
      ? `${own[0]?.cell} must fail, but was not seen to: this load does not show the difference`
      : `${own[0]?.cell} failed, as it must${found === undefined ? '' : ` (${found})`}`;
  });
  if (safe.length > 0) parts.unshift(`${passed} of ${what} ${layout.passed ?? 'passed every check'}`);
  for (const [row] of idle) parts.push(`${row!.cell} had no ${layout.leadText.split(' a second')[0]}`);
  return parts.length === 0 ? '' : `${parts.join('; ')}.`;
}

/** The first of the ranking, its lead, and the first if each cell is taken at its best step of the ladder. */
function fastest(results: Results): string {
  const { layout, plan } = results;
  const groups = groupsOf(results);
  const rows = compared(groups[0]?.rows ?? []).filter(isCorrect);
  const leaders = rows.filter(({ rank }) => rank === 1);
  const [first] = leaders;
  const value = first?.values[layout.lead];
  if (groups.length > 1 || !isRanked(results) || first === undefined || value === undefined) return '';
  const { axis = '', lead = 0 } = plan.ladder ?? {};
  const at = plan.ladder === null ? '' : ` at ${number(lead)} ${axisOf(results, axis).title}`;
  const text = `${number(Math.round(value.median))} ${layout.leadText}${at}`;
  if (leaders.length > 1) return `Tied for first: ${cellsIn(leaders).join(', ')}, up to ${text}.`;
  const isAhead = first.toBaseline !== null && first.comparison === 'faster';
  const times = isAhead ? `, ${figure(first.toBaseline.median, '×')} times ${plan.baseline}` : '';
  const most = rows.find(({ best }) => best?.rank === 1);
  const isElsewhere = most !== undefined && (most !== first || most.best?.point[axis] !== lead);
  const atBest = isElsewhere ? ` Each at its best: ${most.cell} with ${bestText(most, results)}.` : '';
  return `First: ${first.cell} with ${text}${times}.${atBest}`;
}

/** "13,020 at 256": the leading metric where the cell does best on the ladder. */
export function bestText({ best }: SummaryRow, results: Results): string {
  const { layout, plan } = results;
  if (best === null || plan.ladder === null) return '–';
  const { unit } = metricOf(results, layout.lead);
  return `${figure(best.value.median, unit)} at ${number(best.point[plan.ladder.axis] ?? plan.ladder.lead)}`;
}

/** "sold-out ÷ bare: sold-out answers, against fixed answers, 128 connections". */
export function ratioName({ of, over, what, at = {} }: RatioRow): string {
  const where = Object.entries(at).map(([axis, value]) => `, ${number(value)} ${axis}`);
  return `${of} ÷ ${over}: ${what}${where.join('')}`;
}

/** How far apart two identical rows of the run were. */
export function noiseText({ noise, layout }: Results): string {
  if (noise?.control == null || noise.control.rounds < 2)
    return 'No baseline was measured twice in two rounds or more: how noisy this run was is unknown.';
  const { median, rounds } = noise.control;
  return (
    `Noise: ${noise.baseline} ran twice in each of ${quantity(rounds, 'round')} (A/A control). The second run reached ` +
    `${figure(median, '×')} of the first (95 %: ${range(noise.control, '×')}); the typical difference within a round is ` +
    `${figure(noise.floor, '%')}. A smaller difference between two ${plural(layout.noun)} is a tie.`
  );
}

const names: Readonly<Record<string, string>> = {
  postgres: 'Postgres',
  redis: 'Redis',
  valkey: 'Valkey',
  zookeeper: 'ZooKeeper',
  mariadb: 'MariaDB',
};

/** Time, commit and machine of the run. */
export function originText({ startedAt, commit, machine, generator, later = [] }: Results): string {
  const { cores, cpu, memoryBytes, os, node, ...servers } = machine;
  const versions = Object.entries(servers).map(([name, version]) => `${names[name] ?? name} ${version}`);
  return (
    `${when(startedAt)}, commit ${shortCommit(commit)}, ${quantity(cores, 'core')} (${cpu}, ${Math.round(memoryBytes / 2 ** 30)} GiB) for load, ` +
    `service and stores together, ${os}, Node ${node}, ${versions.join(', ')}; load by ${generator}.` +
    later
      .map(
        (one) =>
          ` ${one.cells.join(', ')}: ${when(one.startedAt)}, commit ${shortCommit(one.commit)}, ${one.machine.cpu}.`,
      )
      .join('')
  );
}

/** Warnings about the whole run, to be read before any figure. */
export function notices(results: Results): string[] {
  const { partial, smoke, plan, trials, summary, failures, broken } = results;
  const all: string[] = [];
  if (partial) {
    const keys = trials.map(({ cell, round, startedAt }) => `${cell} ${round} ${startedAt}`);
    const done = number(Math.min(new Set(keys).size, plan.trials)); // a trial may have several results
    all.push(`Partial run: ${done} of ${quantity(plan.trials, 'trial')} finished.`);
  }
  if (smoke) all.push('Smoke run: it shows that everything works. Its one round ranks nothing.');
  else if (plan.rounds === 1 && summary.length > 0 && hasRanking(results))
    all.push('One round: it cannot separate differences from noise, so nothing is ranked.');
  const reasons = broken.map(({ cell, round, reason }) => `${cell}, round ${round}: ${reason}`);
  return [...all, ...failures, ...reasons];
}

/** The parts of a report that are lists of sentences, without empty ones. */
export function prose(results: Results): (readonly [title: string, items: readonly string[]])[] {
  const { layout, summary, noise } = results;
  const found = findingsOf(summary);
  const findings = found.flatMap(({ cell, findings }) => findings.map((text) => `${cell}: ${text}`));
  const parts = [
    ['Findings', findings],
    ['How it was measured', layout.notes],
    ['What it does not show', layout.limits ?? []],
    ['Origin', [originText(results), ...(noise === null ? [] : [noiseText(results)])]],
  ] as const;
  return parts.filter(([, items]) => items.length > 0);
}

/** The first check that a row fails, such as "323 oversold"; empty: it fails none. */
export function worstCheck(row: SummaryRow, { checks }: Pick<Results, 'checks'>): string {
  const found = checks.find(({ key }) => (row.checks[key] ?? 0) > 0);
  return found === undefined ? '' : `${number(row.checks[found.key] ?? 0)} ${found.title}`;
}

export function rankText({ rank, tie }: SummaryRow): string {
  return rank === null ? '–' : `${rank}${tie ? '=' : ''}`;
}

/** "2 ms added to each round trip, 64 connections". */
export function pointText(results: Results, point: Point): string {
  const parts = Object.entries(point).map(([axis, value]) => {
    const { title } = axisOf(results, axis);
    return `${number(value)} ${value === 1 ? title.replace(/(?<=ss)es$|s$/, '') : title}`;
  });
  return parts.join(', ');
}
