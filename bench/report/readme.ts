/**
 * `npm run readme`: puts the guarantee matrix (from the strategies' own declarations) and the canonical result (from
 * bench/results/canonical/results.json) between their marks in README.md, so that no figure there is typed by hand.
 * With `--check` it only tells whether README.md is up to date.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { strategies } from '../../src/strategies/registry.ts';
import { number } from '../audit/check.ts';
import { markdownTable } from './markdown.ts';
import type { Results } from './results.ts';
import { cells, columns } from './table.ts';

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

function resultTable(): string {
  const text = readFileSync(new URL('bench/results/canonical/results.json', root), 'utf8');
  const { plan, machine, summary, startedAt } = JSON.parse(text) as Results;
  const table = markdownTable(
    columns.map(({ title, align }) => [title, align]),
    summary.map(cells),
  );
  const how =
    `${number(plan.attempts)} attempts by ${number(plan.buyers)} customers for ${number(plan.stock)} units, ` +
    `${plan.connections} connections, at most ${plan.durationMs / 1_000} s a trial, ${plan.rounds} rounds, ` +
    `on ${startedAt.slice(0, 10)} with ${machine.cores} cores for load, service and stores together ` +
    `(Node ${machine.node}, Postgres ${machine.postgres}, Redis ${machine.redis}). ` +
    'Medians over the rounds; the audit shows the worst round; `1=` is a tie. ' +
    'Raw figures: [bench/results/canonical](bench/results/canonical/report.md).';
  return `${table}\n\n${how}`;
}

function withBlock(readme: string, name: string, content: string): string {
  const [open, close] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const from = readme.indexOf(open);
  const to = readme.indexOf(close);
  if (from < 0 || to < from) throw new Error(`README.md has no block ${open} … ${close}`);
  return `${readme.slice(0, from + open.length)}\n${content}\n${readme.slice(to)}`;
}

const file = new URL('README.md', root);
const present = readFileSync(file, 'utf8');
const made = withBlock(withBlock(present, 'guarantees', guaranteeMatrix()), 'results', resultTable());
if (!process.argv.includes('--check')) writeFileSync(file, made);
else if (made !== present) {
  process.stderr.write('README.md is not what its sources say: run npm run readme\n');
  process.exitCode = 1;
}
