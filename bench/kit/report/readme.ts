/**
 * `npm run readme`: writes the generated parts of README.md and docs between their marks, and the reports of the committed
 * results. Tables of guarantees come from what strategies and locks declare, figures from bench/results/canonical. A part
 * whose results are not committed in the present format stays as it is, and is named.
 * With `--check` it writes nothing, and exits with 1 when a file differs from its sources.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { LOCK_CAPABILITIES } from '../../../src/locks/lock.ts';
import { locks } from '../../../src/locks/registry.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import type { Results } from '../results.ts';
import { chartFile } from './chart-file.ts';
import { htmlReport, markdownReport } from './index.ts';
import { markdownTable } from './markdown.ts';
import { quantity } from './numbers.ts';
import { compared, groupsOf } from './rows.ts';
import { extraTables, goalsTable, mainTable, sweepTable, type Table } from './table.ts';
import { noiseText, originText } from './words.ts';

const root = new URL('../../../', import.meta.url);
const folder = 'bench/results/canonical';
/** Committed runs, each with its reports beside it. */
const runs = ['strategies', 'locks', 'limits', 'flat', 'memory', 'overload', 'profile'] as const;
const axes = ['rtt', 'connections', 'sales'] as const;

/** Null: there is none, or it has an older schema. */
function committed(name: string): Results | null {
  const file = new URL(`${folder}/${name}.json`, root);
  if (!existsSync(file)) return null;
  const results = JSON.parse(readFileSync(file, 'utf8')) as Results;
  return results.schema === 2 ? results : null;
}

const sweeps = (): Results[] => axes.flatMap((axis) => committed(`sweep-${axis}`) ?? []);

const yesNo = (columns: readonly string[], rows: readonly (readonly string[])[]): string =>
  markdownTable({ columns: columns.map((title) => [title, 'left']), rows });

const GUARANTEES: readonly (readonly [keyof (typeof declared)[number]['guarantees'], string])[] = [
  ['neverOversells', 'never oversells'],
  ['neverLoses', 'never loses an order'],
  ['onePerCustomer', 'one per customer'],
  ['neverStrands', 'strands no unit'],
  ['pointsOnce', 'points once'],
  ['survivesRedisLoss', 'survives Redis losing its memory'],
];
const declared = [...strategies.values()].map(({ description }) => description);

function guaranteeMatrix(): string {
  return yesNo(
    ['`STRATEGY=`', 'how it decides', ...GUARANTEES.map(([, title]) => title)],
    declared.map(({ name, summary, guarantees }) => [
      `\`${name}\``,
      summary,
      ...GUARANTEES.map(([key]) => (guarantees[key] ? 'yes' : '**no**')),
    ]),
  );
}

function strategyTable(): string {
  const columns = ['`STRATEGY=`', 'how it decides', 'where', 'round trips', '`LOCK`', 'does not promise'];
  return yesNo(
    columns,
    declared.map(({ name, summary, store, roundTrips, usesLock, guarantees }) => [
      `\`${name}\``,
      summary,
      { redis: 'Redis', postgres: 'Postgres' }[store],
      String(roundTrips),
      usesLock ? 'yes' : '–',
      GUARANTEES.flatMap(([key, title]) => (guarantees[key] ? [] : [title])).join(', ') || '–',
    ]),
  );
}

function capabilityTable(): string {
  return yesNo(
    ['`LOCK=`', 'servers', ...LOCK_CAPABILITIES.map((capability) => capability.replaceAll('-', ' '))],
    [...locks.values()].map(({ description: { name, needs, capabilities } }) => [
      `\`${name}\``,
      `\`${needs}\``,
      ...LOCK_CAPABILITIES.map((capability) => (capabilities.includes(capability) ? 'yes' : '–')),
    ]),
  );
}

function flawTable(): string {
  return yesNo(
    ['`LOCK=`', 'how it works', 'known flaw'],
    [...locks.values()].map(({ description: { name, summary, flaw } }) => [
      `\`${name}\``,
      summary,
      flaw ?? 'none beyond the capabilities it lacks',
    ]),
  );
}

/** Tables of a committed run, with its origin below. */
function measured(
  name: string,
  tables: (results: Results) => readonly Table[],
  up = '../../',
): string | null {
  const results = committed(name);
  if (results === null) return null;
  const origin = [
    `Medians of ${quantity(results.plan.rounds, 'round')}. Measured ${originText(results)}`,
    ...(results.noise === null ? [] : [noiseText(results)]),
  ];
  const reports = `The whole report: [${name}.md](${up}${folder}/${name}.md), [page](${up}${folder}/${name}.html).`;
  return [
    ...tables(results)
      .filter(({ rows }) => rows.length > 0)
      .map(markdownTable),
    [...origin, reports].join(' '),
  ].join('\n\n');
}

/** In six columns, without the A/A control. */
const ranking = (results: Results): Table[] => [
  mainTable(results, compared(groupsOf(results)[0]?.rows ?? []), [results.layout.lead]),
];
const comparison = (results: Results): Table[] =>
  groupsOf(results).map(({ rows }) => mainTable(results, rows));
const goalsAndCells = (results: Results): Table[] => [goalsTable(results), ...comparison(results)];

function sweepTables(): string | null {
  const all = sweeps();
  if (all.length < axes.length) return null;
  const tables = ['rttMs', 'connections', 'sales'].flatMap(
    (axis) => sweepTable(all, axis, all[0]!.layout.lead) ?? [],
  );
  const text = tables.map((table) => `### ${table.title}\n\n${markdownTable(table)}`);
  return [...text, `Measured ${originText(all[0]!)}`].join('\n\n');
}

/** The generated parts of each page, by the name of their marks; null: nothing is committed to make them from. */
const pages: Readonly<Record<string, Readonly<Record<string, () => string | null>>>> = {
  'README.md': {
    guarantees: guaranteeMatrix,
    results: () => measured('strategies', ranking, ''),
  },
  'docs/reference/strategies.md': { strategies: strategyTable },
  'docs/reference/locks.md': { capabilities: capabilityTable, flaws: flawTable },
  'docs/reference/measurements.md': {
    measured: () => measured('locks', comparison),
    sweeps: sweepTables,
    limits: () => measured('limits', goalsAndCells),
    profile: () => measured('profile', (results) => [...comparison(results), ...extraTables(results)]),
    overload: () => measured('overload', (results) => [goalsTable(results)]),
    memory: () => measured('memory', (results) => [goalsTable(results), ...extraTables(results)]),
    flat: () => measured('flat', (results) => [goalsTable(results)]),
  },
};

function withBlock(page: string, text: string, name: string, content: string): string {
  const [open, close] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const from = text.indexOf(open);
  const to = text.indexOf(close);
  if (from < 0 || to < from) throw new Error(`${page} has no block ${open} … ${close}`);
  return `${text.slice(0, from + open.length)}\n${content}\n${text.slice(to)}`;
}

function put(path: string, made: string): void {
  const file = new URL(path, root);
  if (!process.argv.includes('--check')) writeFileSync(file, made);
  else if (!existsSync(file) || readFileSync(file, 'utf8') !== made) {
    process.stderr.write(`${path} differs from its sources: npm run readme writes it\n`);
    process.exitCode = 1;
  }
}

for (const [page, blocks] of Object.entries(pages)) {
  let made = readFileSync(new URL(page, root), 'utf8');
  for (const [name, content] of Object.entries(blocks)) {
    const block = content();
    if (block === null)
      process.stdout.write(`${page}: ${name} stays, no results of schema 2 are committed\n`);
    else made = withBlock(page, made, name, block);
  }
  put(page, made);
}
for (const name of runs) {
  const results = committed(name);
  if (results === null) continue;
  const others = name === 'strategies' ? sweeps() : [];
  put(`${folder}/${name}.md`, markdownReport(results, others));
  put(`${folder}/${name}.html`, htmlReport(results, others));
  if (name === 'strategies') put(`${folder}/chart.svg`, chartFile(results));
}
