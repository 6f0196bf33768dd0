/** report.md: the goals first, then what was measured and how, and every round's figures. */
import { number } from '../audit/check.ts';
import { markdownTable } from '../report/markdown.ts';
import { spread } from '../summary.ts';
import type { Layout } from './pin.ts';
import type { CellsResults, LimitsResults, MemoryResults, RunHeader } from './results.ts';
import { figure } from './summary.ts';
import {
  cellColumns,
  cellTexts,
  mebibytes,
  percent,
  ratioColumns,
  ratioTexts,
  readingColumns,
  readingTexts,
} from './table.ts';

export function toMarkdown(results: LimitsResults): string {
  const sections = results.kind === 'memory' ? memorySections(results) : cellsSections(results);
  return `${sections.filter((section) => section !== '').join('\n\n')}\n`;
}

const titles = {
  ratios: 'Stampede against the limits of its platform',
  flat: 'Whether the cost of an attempt stays flat',
};

function cellsSections(results: CellsResults): string[] {
  const { kind, ratios, cells } = results;
  return [
    `# ${titles[kind]}`,
    when(results),
    markdownTable(ratioColumns, ratios.map(ratioTexts)),
    'Each ratio is a quotient of two rates of the same round; the figures are the median, the lowest and the highest ' +
      'of the rounds, and the verdict is by the median.',
    missedText(results.missed),
    notesText(results),
    wrongs(results),
    `## What was measured\n\n${markdownTable(cellColumns, cells.map(cellTexts))}`,
    legend,
    cells.map(({ cell, summary, how }) => `- \`${cell}\`: ${summary} (${how})`).join('\n'),
    cellsPlan(results),
    roundsTable(results),
  ];
}

/** What the columns are. */
const legend =
  'Rates are medians over the rounds: answers of the expected kind, deductions that Redis holds afterwards, orders that ' +
  'Postgres has committed. p50 and p99 are as the generator tells them. processors: how busy each was, the first one ' +
  'first. other answers: such as `busy`, and requests without an answer; they count for nothing. audit: orders, ' +
  'counters, points and Redis agree, nobody has two orders, and no answer promised an order that is not there.';

function when({ startedAt, partial }: RunHeader): string {
  const text = `Measured ${startedAt.slice(0, 16).replace('T', ' ')} UTC.`;
  return partial ? `**Partial:** the run was interrupted. ${text}` : text;
}

function missedText(missed: readonly string[]): string {
  return missed.length === 0 ? '' : ['## Missed', '', ...missed.map((text) => `- ${text}`)].join('\n');
}

function notesText({ notes }: CellsResults): string {
  return notes.length === 0
    ? ''
    : ['## Rates that do not count', '', ...notes.map((text) => `- ${text}`)].join('\n');
}

function wrongs({ shortcomings }: LimitsResults): string {
  const lines = shortcomings.map((text) => `- **${text.replaceAll('\n', ' ')}**`);
  return lines.length === 0 ? '' : ['## What went wrong', '', ...lines].join('\n');
}

function cellsPlan(results: CellsResults): string {
  const { rounds, durationMs, warmupMs, connections } = results.plan;
  const busy = results.results.map(({ busyBefore }) => busyBefore);
  return [
    '## Plan and machine',
    '',
    `- ${rounds} ${rounds === 1 ? 'round' : 'rounds'}; each measures every cell once, and begins further on in the list`,
    `- ${durationMs / 1_000} s of each cell after ${warmupMs / 1_000} s of the same load, ${connections} connections; a ` +
      'new process, a new database and an empty Redis for each',
    ...(busy.length === 0 ? [] : [`- ${busyLine(busy)}`]),
    ...machineLines(results),
  ].join('\n');
}

/** What nobody would believe without knowing it. */
function busyLine(shares: readonly number[]): string {
  const { median, max } = spread(shares);
  const text = `other work kept the processors ${percent(median)} busy before a cell's turn (median), at most ${percent(max)}`;
  return median > 0.3 ? `**${text}: the figures are low, and far apart**` : text;
}

function machineLines({ generator, pin, commit, machine }: RunHeader): string[] {
  return [
    `- load: ${generator}`,
    `- processors: ${pinText(pin)}`,
    `- commit \`${commit}\``,
    `- ${machine.cores} × ${machine.cpu}, ${(machine.memoryBytes / 2 ** 30).toFixed(1)} GiB`,
    `- ${machine.os}, Node ${machine.node}, Redis ${machine.redis}, Postgres ${machine.postgres}; all as the service starts them`,
  ];
}

export function pinText({ kind, server, generator, stores, why }: Layout): string {
  if (kind === 'none') return `wherever the system puts processes${why === null ? '' : ` (${why})`}`;
  return `what is measured on ${server}, the load on ${generator}, the stores on ${stores}`;
}

function roundsTable({ results, ratios }: CellsResults): string {
  const rounds = [...new Set(results.map(({ round }) => round))].sort((a, b) => a - b);
  const names = [...new Set(results.map(({ cell }) => cell))];
  if (rounds.length === 0) return '';
  const titles = ['', ...rounds.map((round) => `round ${round}`)];
  const columns = titles.map((title, index): [string, 'left' | 'right'] => [
    title,
    index === 0 ? 'left' : 'right',
  ]);
  const rates = names.map((name) => [
    `${name}, per second`,
    ...rounds.map((round) => {
      const result = results.find((one) => one.cell === name && one.round === round);
      return result === undefined ? '–' : number(Math.round(result.perSecond));
    }),
  ]);
  const quotients = ratios.map(({ of, by, rounds: own }) => [
    `${of} ÷ ${by}`,
    ...rounds.map((round) => {
      const found = own.find((one) => one.round === round);
      return found === undefined ? '–' : figure(found.value);
    }),
  ]);
  return `## Every round\n\n${markdownTable(columns, [...rates, ...quotients])}`;
}

function memorySections(results: MemoryResults): string[] {
  const { plan, readings, accepted, refused, attemptsPerSecond } = results;
  const what =
    plan.variant === 'mixed'
      ? `${number(plan.stock)} of them could be sold, and were answered with 201 after the commit; the others were told sold-out`
      : 'all of them could be sold, and were answered with 202 before the commit (CONFIRM=accepted)';
  return [
    '# Memory of the service over many attempts',
    when(results),
    `${number(plan.attempts)} attempts with \`lua\` by as many customers, ${plan.connections} connections; ${what}.`,
    markdownTable(readingColumns, readings.map(readingTexts)),
    growthText(results),
    `${number(accepted)} attempts were accepted, ${number(refused)} refused, ${number(Math.round(attemptsPerSecond))} a second. ` +
      'Resident: what the process of the service holds in memory at that moment, under load.',
    missedText(results.missed),
    wrongs(results),
    ['## Machine', '', ...machineLines(results)].join('\n'),
  ];
}

/** The growth in words, for the terminal too. */
export function growthText({ growth, readings }: Pick<MemoryResults, 'growth' | 'readings'>): string {
  const [first, last] = [readings[1], readings.at(-1)];
  if (growth === null || first === undefined || last === undefined) return 'Too few readings to compare.';
  const change = growth.bytes < 0 ? 'less' : 'more';
  const verdict = growth.flat ? 'flat' : '**not flat**';
  return (
    `From ${number(first.attempts)} to ${number(last.attempts)} attempts: ${mebibytes(Math.abs(growth.bytes))} MiB ` +
    `(${percent(Math.abs(growth.share))}) ${change}: ${verdict}.`
  );
}
