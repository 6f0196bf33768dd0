/**
 * `npm run readme`: puts the guarantee matrix (from the strategies' own declarations) and the canonical result (from
 * bench/results/canonical/results.json) between their marks in README.md, what the strategies declare of themselves
 * between those in docs/strategies.md, what the locks do and how they compare in docs/locks.md, sweeps and limits in
 * docs/benchmarks.md, so that nothing of it is typed
 * by hand; and bench/results/canonical's reports and chart.
 * With `--check` it only tells whether the pages are up to date.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import type { LockCapabilities } from '../../src/locks/lock.ts';
import { locks } from '../../src/locks/registry.ts';
import { strategies } from '../../src/strategies/registry.ts';
import { number } from '../audit/check.ts';
import { type Machine, shortCommit } from '../kit/machine.ts';
import { growthText } from '../limits/markdown.ts';
import type { OverloadReport } from '../limits/overload.ts';
import type { ProfileResults } from '../limits/profile-main.ts';
import { profileText } from '../limits/profile-text.ts';
import type { CellsResults, MemoryResults } from '../limits/results.ts';
import * as limitsTable from '../limits/table.ts';
import { legend as locksLegend } from '../locks/markdown.ts';
import type { LocksResults } from '../locks/results.ts';
import * as locksTable from '../locks/table.ts';
import { chartFile } from './chart/standalone.ts';
import { toHtml } from './html.ts';
import { markdownTable, toMarkdown } from './markdown.ts';
import type { Results } from './results.ts';
import { axisTitles, sweepTable } from './sweep-table.ts';
import { cells, columns, noiseText } from './table.ts';

const root = new URL('../../', import.meta.url);

const GUARANTEES: readonly (readonly [keyof typeof words, string])[] = [
  ['neverOversells', 'never oversells'],
  ['neverLoses', 'never loses an order'],
  ['onePerCustomer', 'one per customer'],
  ['neverStrands', 'strands no unit'],
  ['pointsOnce', 'points once'],
  ['survivesRedisLoss', 'survives Redis losing its memory'],
];
const words = [...strategies.values()][0]!.description.guarantees;

function guaranteeMatrix(): string {
  return markdownTable(
    [
      ['`STRATEGY=`', 'left'],
      ['how it decides', 'left'],
      ...GUARANTEES.map(([, title]): [string, 'left'] => [title, 'left']),
    ],
    [...strategies.values()].map(({ description }) => [
      `\`${description.name}\``,
      description.summary,
      ...GUARANTEES.map(([key]) => (description.guarantees[key] ? 'yes' : '**no**')),
    ]),
  );
}

function strategyTable(): string {
  return markdownTable(
    [
      ['`STRATEGY=`', 'left'],
      ['how it decides', 'left'],
      ['where', 'left'],
      ['round trips', 'right'],
      ['`LOCK`', 'left'],
      ['does not promise', 'left'],
    ],
    [...strategies.values()].map(({ description }) => {
      const { name, summary, store, roundTrips, usesLock, guarantees } = description;
      const lacks = GUARANTEES.filter(([key]) => !guarantees[key]).map(([, title]) => title);
      const where = { redis: 'Redis', postgres: 'Postgres' }[store];
      return [
        `\`${name}\``,
        summary,
        where,
        String(roundTrips),
        usesLock ? 'yes' : '–',
        lacks.join(', ') || '–',
      ];
    }),
  );
}

function resultTable(): string {
  const results = canonicalResults();
  const { plan, summary } = results;
  const table = markdownTable(columns, summary.map(cells));
  const how =
    `Closed loop: ${number(plan.attempts)} attempts by ${number(plan.buyers)} customers for ${number(plan.stock)} units, ` +
    `${plan.connections} connections, at most ${plan.durationMs / 1_000} s; rush: ${number(plan.ratePerSecond)} arrivals/s in an open ` +
    `loop; ${plan.rounds} rounds, ${origin(results)}. Medians over the rounds with their 95 % interval, and as a ` +
    'multiple of the baseline in the same round; the audit shows the worst round; `1=` is a tie. Round trips are those to ' +
    `Redis + Postgres of a lone attempt; CPU is that of service, Redis and Postgres. ${noiseText(results)} ` +
    'All of it: [report](bench/results/canonical/report.md), [raw figures](bench/results/canonical/results.json).';
  return `${table}\n\n${how}`;
}

/** In the order in which they are asked for when a lock is chosen. */
const CAPABILITIES: Readonly<Record<keyof LockCapabilities, string>> = {
  expires: 'a dead holder is got rid of',
  checksOwner: 'a late holder releases nothing',
  settlesLostAnswers: 'a lost answer locks nobody out',
  renews: 'long work keeps it',
  signalsLoss: 'loss is told before',
  fenced: 'fencing token',
  reentrant: 'same owner again',
  waitsByEvent: 'waits without polling',
  fair: 'first come, first served',
  survivesFailover: 'survives losing a server',
};

function capabilityTable(): string {
  const claims = Object.entries(CAPABILITIES) as [keyof LockCapabilities, string][];
  return markdownTable(
    [
      ['`LOCK=`', 'left'],
      ['its servers', 'left'],
      ...claims.map(([, title]): [string, 'left'] => [title, 'left']),
    ],
    [...locks.values()].map(({ description }) => [
      `\`${description.name}\``,
      `\`${description.needs}\``,
      ...claims.map(([key]) => (description.capabilities[key] ? 'yes' : '–')),
    ]),
  );
}

function flawTable(): string {
  return markdownTable(
    [
      ['`LOCK=`', 'left'],
      ['what it is', 'left'],
      ['known flaw', 'left'],
    ],
    [...locks.values()].map(({ description: { name, summary, flaw } }) => [
      `\`${name}\``,
      summary,
      flaw ?? 'none beyond what it does not claim above',
    ]),
  );
}

function canonical<T>(file: string): T {
  return JSON.parse(readFileSync(new URL(`bench/results/canonical/${file}`, root), 'utf8')) as T;
}

interface Origin {
  readonly startedAt: string;
  readonly commit: string;
  readonly machine: Machine;
}

/** When, and of what and on what, a result was measured. */
function origin({ startedAt, commit, machine }: Origin): string {
  const { cores, node, postgres, redis } = machine;
  return `on ${startedAt.slice(0, 10)} at commit ${shortCommit(commit)} with ${cores} cores for load, service and stores together (Node ${node}, Postgres ${postgres}, Redis ${redis})`;
}

function locksComparison(): string {
  const results = canonical<LocksResults>('locks.json');
  const { summary } = results;
  const table = markdownTable(locksTable.columns, summary.map(locksTable.cells));
  return `${table}\n\n${locksLegend(results)} Measured ${origin(results)}. Spreads and the other figures: [locks.md](../bench/results/canonical/locks.md).`;
}

const sweeps = ['rtt', 'connections', 'sales'] as const;

function sweepResults(): readonly Results[] {
  return sweeps.map((sweep) => canonical<Results>(`sweep-${sweep}.json`));
}

function sweepTables(): string {
  return sweepResults()
    .flatMap((results) => {
      const { plan } = results;
      const { sweep, rounds } = plan;
      if (sweep === null) return [];
      const [point] = plan.points;
      const others = {
        rtt: `${point?.connections} connections`,
        connections: 'one sale',
        sales: `${number(plan.stock)} units shared out among the sales, ${point?.connections} connections`,
      }[sweep];
      return [
        `### accepted/s by ${axisTitles[sweep]}`,
        markdownTable(...sweepTable(results, sweep)),
        `Medians of ${rounds} rounds, closed loop, ${others}, ${origin(results)}.`,
      ];
    })
    .join('\n\n');
}

function limitsComparison(): string {
  const results = canonical<CellsResults>('limits.json');
  const { ratios, cells, plan, generator } = results;
  return [
    markdownTable(limitsTable.ratioColumns, ratios.map(limitsTable.ratioTexts)),
    markdownTable(limitsTable.cellColumns, cells.map(limitsTable.cellTexts)),
    `${plan.rounds} rounds, ${plan.connections} connections, ${plan.warmupMs / 1_000} s of warm-up and ${plan.durationMs / 1_000} s ` +
      `for each cell and round, load by ${generator}, ${origin(results)}. Every round's figures: ` +
      '[limits.md](../bench/results/canonical/limits.md).',
  ].join('\n\n');
}

function profileTables(): string {
  const results = canonical<ProfileResults>('profile.json');
  return `${profileText(results)}\n\nMeasured ${origin(results)}.`;
}

/** What bench/limits/overload-main.ts wrote. */
type OverloadResults = OverloadReport & Origin;

function overloadTable(): string {
  const results = canonical<OverloadResults>('overload.json');
  const { options, capacityPerSecond, ratePerSecond, goals } = results;
  const rate = (value: number): string => number(Math.round(value));
  return [
    markdownTable(
      [
        ['what', 'left'],
        ['found', 'left'],
        ['goal', 'left'],
        ['', 'left'],
      ],
      goals.map(({ what, found, goal, reached }) => [what, found, goal, reached ? 'reached' : '**missed**']),
    ),
    `\`${options.strategy}\`: ${rate(ratePerSecond)} attempts/s for ${options.durationMs / 1_000} s, on a service that accepted ` +
      `${rate(capacityPerSecond)}/s before, ${origin(results)}.`,
  ].join('\n\n');
}

function memoryTable(): string {
  const results = canonical<MemoryResults>('limits-memory.json');
  const { plan, readings, growth } = results;
  return [
    markdownTable(limitsTable.readingColumns, readings.map(limitsTable.readingTexts)),
    `${growthText({ growth, readings })} \`lua\`, ${plan.connections} connections; ${number(plan.stock)} of ${number(plan.attempts)} attempts ` +
      `could be sold; ${origin(results)}.`,
  ].join('\n\n');
}

function flatTable(): string {
  const results = canonical<CellsResults>('limits-flat.json');
  const { ratios, plan } = results;
  return [
    markdownTable(limitsTable.ratioColumns, ratios.map(limitsTable.ratioTexts)),
    `Speed as a share, ${plan.rounds} rounds, ${plan.connections} connections, ${origin(results)}.`,
  ].join('\n\n');
}

/** The generated parts of each page, by the name of their marks. */
const pages: Readonly<Record<string, Readonly<Record<string, () => string>>>> = {
  'README.md': { guarantees: guaranteeMatrix, results: resultTable },
  'docs/strategies.md': { strategies: strategyTable },
  'docs/benchmarks.md': {
    sweeps: sweepTables,
    limits: limitsComparison,
    profile: profileTables,
    overload: overloadTable,
    memory: memoryTable,
    flat: flatTable,
  },
  'docs/locks.md': { capabilities: capabilityTable, flaws: flawTable, measured: locksComparison },
};

function withBlock(page: string, text: string, name: string, content: string): string {
  const [open, close] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const from = text.indexOf(open);
  const to = text.indexOf(close);
  if (from < 0 || to < from) throw new Error(`${page} has no block ${open} … ${close}`);
  return `${text.slice(0, from + open.length)}\n${content}\n${text.slice(to)}`;
}

/** Whole files that are made from the canonical results. */
const files: Readonly<Record<string, () => string>> = {
  'bench/results/canonical/report.md': () => toMarkdown(canonicalResults(), sweepResults()),
  'bench/results/canonical/report.html': () => toHtml(canonicalResults(), sweepResults()),
  'bench/results/canonical/chart.svg': () => chartFile(canonicalResults()),
};

function canonicalResults(): Results {
  return canonical<Results>('results.json');
}

function put(path: string, made: string): void {
  const file = new URL(path, root);
  if (!process.argv.includes('--check')) writeFileSync(file, made);
  else if (!existsSync(file) || readFileSync(file, 'utf8') !== made) {
    process.stderr.write(`${path} is not what its sources say: run npm run readme\n`);
    process.exitCode = 1;
  }
}

for (const [page, blocks] of Object.entries(pages)) {
  let made = readFileSync(new URL(page, root), 'utf8');
  for (const [name, content] of Object.entries(blocks)) made = withBlock(page, made, name, content());
  put(page, made);
}
for (const [path, make] of Object.entries(files)) put(path, make());
