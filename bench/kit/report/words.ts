/** What a report says in sentences: the verdict of the run, its noise, its origin. */
import { shortCommit } from '../machine.ts';
import type { Results } from '../results.ts';
import type { Point, Unit } from '../suite.ts';
import type { GoalRow, SummaryRow } from '../summary.ts';
import { number } from '../text.ts';
import { figure, plural, quantity, range, when, withUnit } from './numbers.ts';
import { axisOf, compared, groupsOf, hasRanking, isCorrect, isRanked, metricOf } from './rows.ts';

/** What the run shows, in two or three sentences: correctness, the first of the ranking, goals. */
export function sentence(results: Results): string {
  if (results.summary.length === 0) return 'No trial was finished.';
  return [audited(results), fastest(results), goalsReached(results)].filter((text) => text !== '').join(' ');
}

function audited(results: Results): string {
  const { summary, layout } = results;
  const rows = compared(summary).filter(({ verdict }) => verdict !== null);
  const cells = [...new Set(rows.map(({ cell }) => cell))].map((cell) =>
    rows.filter((row) => row.cell === cell),
  );
  const safe = cells.filter((own) => own.every(({ unsafe }) => !unsafe));
  const unsafe = cells.filter((own) => !safe.includes(own));
  const passed = safe.filter((own) => own.every(({ verdict }) => verdict === 'pass')).length;
  const what = quantity(safe.length, `${unsafe.length > 0 ? 'safe ' : ''}${layout.noun}`);
  const parts = [
    ...(safe.length === 0 ? [] : [`${passed} of ${what} ${layout.passed ?? 'passed every check'}`]),
    ...unsafe.map((own) => {
      const failed = own.filter(({ verdict }) => verdict?.startsWith('fail'));
      const found = failed.map((row) => worstCheck(row, results)).find((text) => text !== '');
      return failed.length === 0
        ? `${own[0]?.cell} must fail, but was not seen to: this load does not show the difference`
        : `${own[0]?.cell} failed, as it must${found === undefined ? '' : ` (${found})`}`;
    }),
  ];
  return parts.length === 0 ? '' : `${parts.join('; ')}.`;
}

/** The first of the ranking, and how far ahead it is; empty where nothing is ranked. */
function fastest(results: Results): string {
  const { layout, plan } = results;
  const groups = groupsOf(results);
  const [group] = groups;
  if (group === undefined || groups.length > 1 || !isRanked(results)) return '';
  const rows = compared(group.rows).filter(isCorrect);
  const leaders = rows.filter(({ rank }) => rank === 1);
  const [first] = leaders;
  const value = first?.values[layout.lead];
  if (first === undefined || value === undefined) return '';
  const text = `${number(Math.round(value.median))} ${layout.leadText}`;
  const at =
    plan.ladder === null ? '' : ` at ${number(plan.ladder.lead)} ${axisOf(results, plan.ladder.axis).title}`;
  if (leaders.length > 1)
    return `Tied for first: ${leaders.map(({ cell }) => cell).join(', ')}, up to ${text}${at}.`;
  const times =
    first.toBaseline !== null && first.comparison === 'faster'
      ? `, ${figure(first.toBaseline.median, '×')} times ${plan.baseline}`
      : '';
  return `First: ${first.cell} with ${text}${at}${times}.${best(results, rows)}`;
}

/** Which cell leads when each has the step of the ladder that suits it. */
function best(results: Results, rows: readonly SummaryRow[]): string {
  const first = rows.find((row) => row.best?.rank === 1);
  if (first?.best == null || results.plan.ladder === null) return '';
  const { axis, lead } = results.plan.ladder;
  const step = first.best.point[axis] ?? lead;
  if (step === lead && first.rank === 1) return '';
  return ` Each at its best: ${first.cell} with ${number(Math.round(first.best.value.median))} at ${number(step)}.`;
}

/** A smoke run is too small to judge a goal. */
function goalsReached({ goals, smoke }: Results): string {
  if (goals.length === 0 || smoke) return '';
  const missed = goals.filter(({ verdict }) => verdict !== 'reached');
  const list = missed.map(goalName).join(', ');
  return `${goals.length - missed.length} of ${quantity(goals.length, 'goal')} reached${missed.length === 0 ? '' : `; not reached: ${list}`}.`;
}

/** "lua-durable ÷ bare", "sold-out ÷ bare, 128 connections", "for-update: p99 of admitted attempts". */
export function goalName({ of, over, what, at = {} }: GoalRow): string {
  const where = Object.entries(at).map(([axis, value]) => `, ${number(value)} ${axis}`);
  return `${over === null ? `${of}: ${what}` : `${of} ÷ ${over}`}${where.join('')}`;
}

/** "at least 0.40", "0.85 … 1.15". */
export function goalBound(goal: GoalRow, unit: Unit): string {
  const { atLeast, atMost } = goal;
  const text = (value: number): string => (goal.over === null ? withUnit(value, unit) : figure(value, '×'));
  if (atLeast !== null && atMost !== null) return `${text(atLeast)} … ${text(atMost)}`;
  if (atLeast !== null) return `at least ${text(atLeast)}`;
  return atMost === null ? '–' : `at most ${text(atMost)}`;
}

/** The unit of a goal's value: a ratio has none of its metric. */
export function goalUnit(results: Results, { metric, over }: GoalRow): Unit {
  return over === null ? metricOf(results, metric).unit : '×';
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

const serverNames: Readonly<Record<string, string>> = {
  postgres: 'Postgres',
  redis: 'Redis',
  zookeeper: 'ZooKeeper',
};

/** When, at which commit and on which machine the run was made. */
export function originText({ startedAt, commit, machine, generator }: Results): string {
  const { cores, cpu, memoryBytes, os, node, ...servers } = machine;
  const versions = Object.entries(servers).map(
    ([name, version]) => `${serverNames[name] ?? name} ${version}`,
  );
  return (
    `${when(startedAt)}, commit ${shortCommit(commit)}, ${quantity(cores, 'core')} (${cpu}, ${Math.round(memoryBytes / 2 ** 30)} GiB) for load, ` +
    `service and stores together, ${os}, Node ${node}, ${versions.join(', ')}; load by ${generator}.`
  );
}

/** What limits the meaning of the whole run, to be read before any figure. */
export function notices(results: Results): string[] {
  const { partial, smoke, plan, trials, summary, failures, broken } = results;
  const finished = new Set(
    trials.map(({ cell, round, startedAt }) => JSON.stringify([cell, round, startedAt])),
  ).size;
  const rounds = Math.max(0, ...summary.map((row) => row.trials));
  return [
    ...(partial
      ? [
          `Partial run: ${number(Math.min(finished, plan.trials))} of ${quantity(plan.trials, 'trial')} finished in ${quantity(rounds, 'round')}.`,
        ]
      : []),
    ...(smoke
      ? ['Smoke run: it shows that everything works. Its one round ranks nothing.']
      : rounds === 1 && plan.rounds === 1 && hasRanking(results)
        ? ['One round: it cannot separate differences from noise, so nothing is ranked.']
        : []),
    ...failures,
    ...broken.map(({ cell, round, reason }) => `${cell}, round ${round}: ${reason}`),
  ];
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
  return Object.entries(point)
    .map(
      ([axis, value]) =>
        `${number(value)} ${value === 1 ? axisOf(results, axis).title.replace(/s$/, '') : axisOf(results, axis).title}`,
    )
    .join(', ');
}
