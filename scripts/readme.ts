/**
 * `npm run readme`: writes the generated parts of README.md and docs between their marks, and the reports of the committed
 * results. Tables of guarantees come from what strategies and locks declare, figures from bench/results/canonical. A part
 * whose results are not committed stays as it is, and is named.
 * With `--check` it writes nothing, and exits with 1 when a file differs from its sources.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { htmlReport } from '../bench/kit/report/html.ts';
import { gridFile, pictureFile } from '../bench/kit/report/matrix.ts';
import type { Table } from '../bench/kit/report/table.ts';
import { markdownReport, markdownTable } from '../bench/kit/report/text.ts';
import { noiseText, originText } from '../bench/kit/report/words.ts';
import type { Results } from '../bench/kit/results.ts';
import { shortCommit } from '../lab/kit/machine.ts';
import { number, quantity } from '../lab/kit/text.ts';
import { unknownOption } from '../src/config/suggest.ts';
import { type Problem, problems, repeats } from '../src/http/problems.ts';
import { LOCK_CAPABILITIES } from '../src/locks/lock.ts';
import { locks } from '../src/locks/registry.ts';
import { strategies } from '../src/strategies/registry.ts';
import { routeTable } from './api-table.ts';
import { chartFile } from './chart-file.ts';
import { choicesTable, raceResult } from './front-page.ts';
import { machinesTable } from './machines-table.ts';
import { worksheet } from './worksheet.ts';

const root = new URL('../', import.meta.url);
const folder = 'bench/results/canonical';
/** Committed runs, each with its reports beside it. */
const runs = [
  ...['strategies', 'locks', 'limits', 'flat', 'memory', 'scale'],
  ...['overload', 'faults', 'points', 'tasks', 'innodb', 'refusals'],
];
const axes = { rtt: 'rttMs', connections: 'connections', sales: 'sales' } as const;

/** Null: there is none, or it has an older schema. */
function committed(name: string): Results | null {
  const file = new URL(`${folder}/${name}.json`, root);
  const results = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Results) : null;
  return results?.schema === 2 ? results : null;
}

const sweeps = (): Results[] => Object.keys(axes).flatMap((axis) => committed(`sweep-${axis}`) ?? []);

const GUARANTEES = {
  neverOversells: 'never oversells',
  neverLoses: 'never loses an order',
  onePerCustomer: 'one per customer',
  neverStrands: 'strands no unit',
  pointsOnce: 'points once',
  survivesRedisLoss: "survives the loss of Redis's data",
} as const;
const guarantees = Object.entries(GUARANTEES) as [keyof typeof GUARANTEES, string][];
const declared = [...strategies.values()].map(({ description }) => description);
const rungs = [...locks.values()].map(({ description }) => description);

/** The first column is a name, as code. */
function listed<T extends { readonly name: string }>(
  all: readonly T[],
  titles: string[],
  cells: (one: T) => string[],
) {
  const rows = all.map((one) => [`\`${one.name}\``, ...cells(one)]);
  return markdownTable({ columns: titles.map((title) => [title, 'left']), rows });
}

const costs = ['where', 'round trips', '`LOCK`', 'does not promise'];
const strategyTable = (): string =>
  listed(declared, ['`STRATEGY=`', 'how it decides', ...costs], (one) => [
    one.summary,
    { redis: 'Redis', postgres: 'Postgres' }[one.store],
    String(one.roundTrips),
    one.usesLock ? 'yes' : '–',
    guarantees.flatMap(([key, title]) => (one.guarantees[key] ? [] : title)).join(', ') || '–',
  ]);
const capabilityTitles = LOCK_CAPABILITIES.map((capability) => capability.replaceAll('-', ' '));
const capabilityTable = (): string =>
  listed(rungs, ['`LOCK=`', 'servers', ...capabilityTitles], ({ needs, capabilities }) => [
    `\`${needs}\``,
    ...LOCK_CAPABILITIES.map((capability) => (capabilities.includes(capability) ? 'yes' : '–')),
  ]);
const flawTable = (): string =>
  listed(rungs, ['`LOCK=`', 'how it works', 'known flaw'], ({ summary, flaw }) => [
    summary,
    flaw ?? 'none beyond the capabilities it lacks',
  ]);

const problemTable = (): string =>
  listed(
    Object.entries<Problem>(problems).map(([name, problem]) => ({ name, ...problem })),
    ['slug', 'status', 'meaning', 'repeat'],
    ({ status, meaning, repeat }) => [String(status), meaning, repeat === undefined ? 'no' : repeats[repeat]],
  );

/** The other pages are generated on request, by `--report`: committed results stay small. */
const hasPage = (name: string): boolean => name === 'strategies' || name === 'locks';

/** Tables of a committed run, with its origin below. */
function measured(name: string, tables: (results: Results) => Table[], up = '../../'): string | null {
  const results = committed(name);
  if (results === null) return null;
  const origin = `${results.matrices ? '' : 'Medians of '}${quantity(results.plan.rounds, 'round')}. Measured ${originText(results)}`;
  const noise = results.noise === null ? '' : ` ${noiseText(results)}`;
  const page = hasPage(name)
    ? `[page](${up}${folder}/${name}.html)`
    : `and as a page by \`npm run bench -- --report ${folder}/${name}.json\``;
  const reports = `The whole report: [${name}.md](${up}${folder}/${name}.md), ${page}.`;
  const shown = tables(results).filter(({ rows }) => rows.length > 0);
  if (shown.length === 0) return null;
  return [...shown.map(markdownTable), `${origin}${noise} ${reports}`].join('\n\n');
}

interface Failover {
  readonly commit: string;
  readonly fault: string;
  readonly strategy: string;
  readonly pauseMs: number;
}

/** How long nothing was sold, by failover: see test/support/failover.ts. */
function failovers(): string | null {
  const file = `${folder}/failovers.jsonl`;
  if (!existsSync(new URL(file, root))) return null;
  const lines = readFileSync(new URL(file, root), 'utf8').trim().split('\n');
  const all = lines.map((line) => JSON.parse(line) as Failover);
  const faults = [...new Set(all.map(({ fault }) => fault))];
  const second = (ms: number) => (ms / 1_000).toFixed(ms < 10_000 ? 2 : 1);
  const rows = faults.map((name) => {
    const some = all.filter(({ fault }) => fault === name);
    const pauses = some.map(({ pauseMs }) => pauseMs).sort((a, b) => a - b);
    const at = (share: number) => second(pauses[Math.floor(share * (pauses.length - 1))]!);
    const by = [...new Set(some.map(({ strategy }) => `\`${strategy}\``))];
    return [
      name,
      by.length > 3 ? `all ${by.length} safe ones` : by.join(', '),
      String(pauses.length),
      at(0.5),
      at(0.9),
      at(1),
    ];
  });
  const titles = ['failover', 'strategies', 'failovers', 'median (s)', '90 % (s)', 'longest (s)'];
  const table = markdownTable({ columns: titles.map((title, n) => [title, n < 2 ? 'left' : 'right']), rows });
  const commits = [...new Set(all.map(({ commit }) => commit))].join(', ');
  return `${table}\n\nMeasured with commit ${commits}: [failovers.jsonl](../../${file}) has each of them.`;
}

/** The strategies that the README names, with what they do once everything is sold. */
function pick(): string | null {
  const refusals = committed('refusals');
  const table = measured('strategies', (one) => [choicesTable(one, refusals)], '');
  if (refusals === null || table === null) return table;
  const bare = refusals.summary.find(({ cell }) => cell === 'bare')!.values.perSecond!.median;
  const origin = `Refusals and memory are of another run, in which a bare server answered ${number(Math.round(bare))}/s (${refusals.machine.cpu})`;
  return `${table} ${origin}: commit ${shortCommit(refusals.commit)}, 64 connections, [refusals.md](${folder}/refusals.md).`;
}

/** What the rates of docs/explanation/scaling.md need. */
function machines(): string | null {
  const limits = committed('limits');
  return limits && measured('scale', (scale) => [machinesTable(scale, limits)]);
}

/** By fault, the lock whose history docs/explanation/how-locks-fail.md shows. */
const histories = {
  'holder killed': 'redis-setnx',
  'holder paused': 'redis-owner',
  'work longer than the lease': 'redis-no-owner',
  'answer lost': 'redis-setnx-expire',
  'network silent': 'redis-semaphore',
  'server back empty': 'redlock-5',
  'server back with its file': 'redis',
  'split brain': 'redis',
  'clock ahead': 'redis-owner',
  'a node back empty': 'redlock',
  'a node back empty, late': 'redlock',
  'leader cut off': 'zookeeper',
  'the holder’s server cut off': 'zookeeper',
  'standby promoted': 'postgres-row',
  'synchronous standby promoted': 'postgres-advisory',
} as const;

const pictureName = (fault: string): string => `fault-${fault.replaceAll(/[^a-z]+/g, '-')}.svg`;

/** What each fault is, and the picture of one lock under it. */
function faultTable({ matrices }: Results): Table {
  const rows = matrices![0]!.columns.map(({ title, help }) => {
    const lock = histories[title as keyof typeof histories];
    return [title, help, `[\`${lock}\`](../../${folder}/${pictureName(title)})`];
  });
  return { title: '', columns: ['fault', 'what happens', 'picture'].map((name) => [name, 'left']), rows };
}

/** The generated parts of each page, by the name of their marks; null: nothing is committed to make them from. */
const pages: Readonly<Record<string, Readonly<Record<string, () => string | null>>>> = {
  'README.md': {
    race: () => raceResult(JSON.parse(readFileSync(new URL(`${folder}/race.json`, root), 'utf8'))),
    pick,
  },
  'docs/explanation/how-locks-fail.md': {
    matrix: () => measured('faults', (one) => [faultTable(one)]),
  },
  'docs/explanation/scaling.md': { machines },
  'docs/how-to/deploy.md': { worksheet: () => measured('memory', worksheet) },
  'docs/how-to/operate.md': { failovers },
  'docs/reference/api.md': { routes: routeTable, problems: problemTable },
  'docs/reference/strategies.md': { strategies: strategyTable },
  'docs/reference/locks.md': { capabilities: capabilityTable, flaws: flawTable },
};

function withBlock(page: string, text: string, name: string, content: string): string {
  const [open, close] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const [before, rest] = text.split(open);
  const after = rest?.split(close)[1];
  if (after === undefined) throw new Error(`${page} has no block ${open} … ${close}`);
  return `${before}${open}\n${content}\n${close}${after}`;
}

const words = process.argv.slice(2);
const isCheck = words.includes('--check');
const unknown = words.find((word) => word !== '--check');
if (unknown !== undefined) {
  process.stderr.write(`${unknownOption(unknown, ['check'])}\n`);
  process.exit(2);
}

function put(path: string, made: string): void {
  const file = new URL(path, root);
  if (!isCheck) writeFileSync(file, made);
  else if (!existsSync(file) || readFileSync(file, 'utf8') !== made) {
    process.stderr.write(`${path} differs from its sources: npm run readme writes it\n`);
    process.exitCode = 1;
  }
}

for (const [page, blocks] of Object.entries(pages)) {
  let made = readFileSync(new URL(page, root), 'utf8');
  for (const [name, content] of Object.entries(blocks)) {
    const block = content();
    if (block === null) process.stdout.write(`${page}: ${name} stays, no results of it are committed\n`);
    else made = withBlock(page, made, name, block);
  }
  put(page, made);
}
for (const name of runs) {
  const results = committed(name);
  if (results === null) continue;
  const others = name === 'strategies' ? sweeps() : [];
  put(`${folder}/${name}.md`, markdownReport(results, others));
  if (hasPage(name)) put(`${folder}/${name}.html`, htmlReport(results, others));
  if (name === 'strategies') put(`${folder}/chart.svg`, chartFile(results));
}
const matrix = committed('faults')?.matrices?.[0];
if (matrix) put(`${folder}/faults.svg`, gridFile(matrix));
for (const [fault, lock] of Object.entries(histories)) {
  const picture = matrix && pictureFile(matrix, lock, fault);
  if (picture) put(`${folder}/${pictureName(fault)}`, picture);
}
