/** The measured parts of the README's first screen. */
import { shortTable, type Table } from '../bench/kit/report/table.ts';
import type { Results } from '../bench/kit/results.ts';
import { shortCommit } from '../lab/kit/machine.ts';
import { number } from '../lab/kit/text.ts';

/** The part of a race's result that is shown. */
interface Race {
  readonly commit: string;
  readonly options: { readonly customers: number; readonly units: number };
  readonly lanes: readonly { readonly strategy: string; readonly verdict: { readonly sold: number } }[];
}

/** The strategies that the README names, and when to use each. */
const CHOICES = {
  'group-commit': 'the default: a rush for one sale or many, on Postgres alone',
  lua: 'the same, and you run Redis, for answers before the commit (`CONFIRM=accepted`)',
  'conditional-update': 'Postgres alone, up to about a thousand orders a second: one short SQL statement',
  'skip-locked': 'each unit has to be a row, to which your own code adds a serial number or a key',
} as const;

/** @param refusals the cells of `limits` whose one unit is sold, at 64 connections; null: not committed */
export function choicesTable(results: Results, refusals: Results | null): Table {
  const summary = results.summary.filter(({ cell }) => cell in CHOICES);
  const { columns, rows } = shortTable({ ...results, summary }, ['p99Ms']);
  const use = ([name]: readonly string[]) => CHOICES[name as keyof typeof CHOICES];
  const refused = (name: string) => {
    if (refusals === null) return [];
    const cell = name === 'lua' ? 'sold-out' : `sold-out-${name}`;
    const { perSecond, lastMiB } = refusals.summary.find((one) => one.cell === cell)?.values ?? {};
    return [perSecond, lastMiB].map((value) => (value ? number(Math.round(value.median)) : '–'));
  };
  const isAudit = (n: number) => n === columns.length - 1;
  const added: Table['columns'] = refusals
    ? [
        ['refused/s once sold out', 'right'],
        ['memory (MiB)', 'right'],
      ]
    : [];
  return {
    title: '',
    columns: [
      columns[0]!,
      ['use it when', 'left'],
      ...columns.slice(1).flatMap((one, n) => (isAudit(n + 1) ? [...added, one] : [one])),
    ],
    rows: Object.keys(CHOICES).flatMap((name) =>
      rows
        .filter(([first]) => first === name)
        .map((row) => [name, use(row), ...row.slice(1, -1), ...refused(name), row.at(-1)!]),
    ),
  };
}

/** What the lanes of the committed race sold: first those that did not sell exactly their units. */
export function raceResult({ lanes, options, commit }: Race): string {
  const { units, customers } = options;
  const wrong = lanes.filter(({ verdict }) => verdict.sold !== units);
  const said = wrong.map(({ strategy, verdict: { sold } }) => {
    const over = sold - units;
    return `\`${strategy}\` sold ${sold}${over > 0 ? `, ${over} too many` : ''}`;
  });
  const exact = lanes.filter((lane) => !wrong.includes(lane)).map(({ strategy }) => `\`${strategy}\``);
  if (exact.length > 0) said.push(`${list(exact)} sold exactly ${units}`);
  return `Each strategy sells ${units} units to the same ${number(customers)} customers, on its own servers; after five seconds, Redis loses its data. ${said.join('; ')} (\`npm run race -- --headless --fault redis-emptied@5\`, commit ${shortCommit(commit)}). \`npm run race\` shows it as a page.`;
}

const list = (names: readonly string[]): string => new Intl.ListFormat('en-GB').format(names);
