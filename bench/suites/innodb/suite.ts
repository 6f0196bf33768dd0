/**
 * `npm run bench -- innodb`: what InnoDB locks, next to Postgres in the same run.
 *
 * A trial is one server under one isolation level, with a database that no other trial uses: the rows that FOR UPDATE locks,
 * the deadlocks that unique keys cause, and a hot row sold in three ways.
 */

import { rm } from 'node:fs/promises';
import { temporaryFolder } from '../../../lab/kit/temporary-folder.ts';
import { type Mariadb, openMariadb, whyNoMariadb } from '../../../lab/servers/mariadb.ts';
import { ranking, sweep } from '../../kit/charts.ts';
import { type Environment, MissingServersError } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { optionsOf, sized, usually } from '../../kit/options.ts';
import { figure } from '../../kit/report/numbers.ts';
import { median } from '../../kit/statistics.ts';
import type { Bare, CellBase, ExtraTable, Session, Suite, Trial, TrialBase } from '../../kit/suite.ts';
import { makeSale, measureRate, type Rate, type Way, ways } from './hot-row.ts';
import {
  type Deadlocks,
  makeItems,
  measureDeadlocks,
  measureRowLocks,
  probes,
  ROWS,
  type RowLocks,
  type Search,
  searches,
} from './row-locks.ts';
import { connectMariadb, connectPostgres, type Sql } from './sql.ts';

interface InnodbCell extends CellBase {
  readonly server: 'mariadb' | 'postgres';
  readonly isolation: 'REPEATABLE READ' | 'READ COMMITTED';
}

interface InnodbResult extends TrialBase {
  readonly rates: Readonly<Record<Way, Rate>>;
  /** Null: only the first point has them. */
  readonly rowLocks: RowLocks | null;
  readonly deadlocks: Deadlocks | null;
}

const suiteOptions = optionsOf(
  {
    connections: usually(sized('wholes', 1, 200, 'on the hot row'), '1,16', '4'),
    duration: usually(sized('seconds', 0.1, 60, 'seconds of each way to sell it'), '3', '0.3'),
  },
  ({ connections, duration: durationMs }) => ({ connections, durationMs }),
);
type Options = ReturnType<typeof suiteOptions.read>;

const cell = (server: InnodbCell['server'], isolation: InnodbCell['isolation'], summary: string) => {
  const name = `${server === 'mariadb' ? 'InnoDB' : 'Postgres'}, ${isolation}`;
  return { name, server, isolation, summary, unsafe: false, control: false };
};
const cells: readonly InnodbCell[] = [
  cell('postgres', 'READ COMMITTED', 'The default of Postgres.'),
  cell('mariadb', 'REPEATABLE READ', 'The default of MariaDB and MySQL.'),
  cell('mariadb', 'READ COMMITTED', 'MariaDB as Postgres is by default.'),
];

type Connect = () => Promise<Sql>;

async function measure(
  connect: Connect,
  isMariadb: boolean,
  { point, cell: { control } }: Trial<InnodbCell>,
  { durationMs, connections: counts }: Options,
  onStep: (step: string) => void,
): Promise<Bare<InnodbResult>> {
  const sessions: Sql[] = [];
  try {
    for (let n = 0; n < Math.max(3, point.connections!); n++) sessions.push(await connect());
    const [first, second, third] = sessions as [Sql, Sql, Sql];
    await makeItems(first);
    await makeSale(first, isMariadb);
    const hasLocks = !control && point.connections === counts[0];
    if (hasLocks) onStep('row locks');
    const rowLocks = hasLocks ? await measureRowLocks(first, second) : null;
    const deadlocks = hasLocks ? await measureDeadlocks([first, second, third]) : null;
    const measured: [Way, Rate][] = [];
    for (const [n, way] of ways.entries()) {
      onStep(way);
      const buying = sessions.slice(0, point.connections);
      measured.push([way, await measureRate(buying, { way, durationMs, first: n * 100_000_000 })]);
    }
    const rates = Object.fromEntries(measured) as Record<Way, Rate>;
    const drifting = measured.filter(([, { drift }]) => drift > 0);
    const findings = drifting.map(([way, { drift }]) => `${way}: ${drift} units or orders too many`);
    return { point, rates, rowLocks, deadlocks, invalid: [], findings };
  } finally {
    await Promise.all(sessions.map((session) => session.end().catch(() => {})));
  }
}

async function open(options: Options, environment: Environment): Promise<Session<InnodbCell, InnodbResult>> {
  const { postgres } = (await environment.stores()).versions;
  const why = await whyNoMariadb();
  const folder = await temporaryFolder('stampede-bench-mariadb-');
  const clear = () => rm(folder, { recursive: true, force: true });
  const mariadb: Mariadb | null =
    why === null
      ? await openMariadb(folder).catch(async (error) => {
          await clear();
          throw error;
        })
      : null;
  const run = Date.now().toString(36);
  return {
    generator: 'connections of one process',
    versions: { postgres, ...(mariadb && { mariadb: mariadb.version }) },
    async runTrial(trial, onStep) {
      const { server, isolation } = trial.cell;
      if (server === 'postgres') {
        await using stores = await (await environment.stores()).fresh(String(trial.number));
        const connect = () => connectPostgres(stores.databaseUrl, isolation);
        return await measure(connect, false, trial, options, onStep);
      }
      if (mariadb === null) throw new MissingServersError(why!);
      const name = `stampede_bench_${run}_${trial.number}`;
      await using _ = await mariadb.database(name);
      const connect = () => connectMariadb(mariadb, name, isolation);
      return await measure(connect, true, trial, options, onStep);
    },
    async close() {
      await mariadb?.[Symbol.asyncDispose]();
      await clear();
    },
  };
}

const keyOf = (way: Way): string => way.replace('-update', '');
const rows: MetricRow<InnodbResult>[] = [
  ...ways.map(
    (way): MetricRow<InnodbResult> => [
      ...([keyOf(way), `${way}, purchases/s`, '/s', '+'] as const),
      (r) => r.rates[way].perSecond,
    ],
  ),
  ['tries', 'optimistic, tries', '', '-', (r) => r.rates.optimistic.tries],
];
const metrics = metricsOf(rows, {
  for: 'SELECT … FOR UPDATE, UPDATE, INSERT and COMMIT: five statements with BEGIN.',
  conditional: 'UPDATE … WHERE sold < stock, INSERT and COMMIT: four statements with BEGIN.',
  optimistic: 'SELECT, then UPDATE … WHERE version is as it was, INSERT and COMMIT; again when it was not.',
  tries: 'Tries for each purchase.',
});

/** All rounds of a cell, without the control. */
type OfCell = readonly [name: string, results: readonly InnodbResult[]];
const byCell = (results: readonly InnodbResult[]): OfCell[] =>
  cells.map(({ name }) => [name, results.filter((one) => one.cell === name && one.rowLocks !== null)]);

function lockTable(groups: readonly OfCell[]): ExtraTable {
  const names = Object.keys(searches) as Search[];
  const rowsOf = names.flatMap((search) =>
    groups.map(([name, results]) => {
      const all = results.map(({ rowLocks }) => rowLocks![search]);
      const took = Object.keys(probes).map((probe) => median(all.map(({ tookMs }) => tookMs[probe]!)));
      const locked = Math.max(...all.map((one) => one.locked));
      return [search, name, `${locked} of ${ROWS}`, ...took.map((ms) => figure(ms, 'ms'))];
    }),
  );
  const columns = [
    'FOR UPDATE by',
    'server',
    'rows locked',
    ...Object.keys(probes).map((one) => `${one} (ms)`),
  ];
  return { title: 'Which rows wait for 300 ms', columns, rows: rowsOf };
}

function deadlockTable(groups: readonly OfCell[]): ExtraTable {
  const names = Object.keys(groups[0]?.[1][0]?.deadlocks ?? {}) as (keyof Deadlocks)[];
  const rowsOf = names.flatMap((name) =>
    groups.map(([server, results]) => {
      const all = results.map(({ deadlocks }) => deadlocks![name]);
      const endings = all[0]!.map((_, n) => {
        const seen = new Set(all.map((one) => one[n]!.outcome));
        return `${[...seen].join(' or ')} (${figure(median(all.map((one) => one[n]!.tookMs)), 'ms')} ms)`;
      });
      return [name, server, ...endings];
    }),
  );
  return {
    title: 'Deadlocks by a unique key',
    columns: ['case', 'server', 'one insert', 'the other'],
    rows: rowsOf,
  };
}

export const innodbSuite: Suite<Options, InnodbCell, InnodbResult> = {
  name: 'innodb',
  title: 'Shows what InnoDB locks, its deadlocks by unique keys, and a hot row beside Postgres.',
  help: `It starts a MariaDB, or uses that of MARIADB_URL, whose user may create databases. Postgres as for npm run bench.`,
  ...suiteOptions,
  rounds: 5,
  async plan({ connections, durationMs }) {
    const points = connections.map((count) => ({ connections: count }));
    return { cells, points, baseline: cells[0]!.name, control: true, ladder: null, shown: { durationMs } };
  },
  open,
  metrics,
  checks: [
    {
      ...{ key: 'drift', title: 'drift', help: 'Units sold without an order, or orders without a unit.' },
      read: ({ rates }) => ways.reduce((sum, way) => sum + rates[way].drift, 0),
    },
  ],
  verdict: ({ findings }) => (findings.length === 0 ? 'pass' : 'fail'),
  report: {
    title: 'Row locks of InnoDB',
    lead: 'conditional',
    leadText: 'purchases a second by a conditional update',
    noun: 'server',
    columns: metrics.map(({ key }) => key),
    passed: 'sold as many units as it wrote orders',
    axes: { connections: { title: 'connections', unit: '' } },
    sections: [
      {
        title: 'A hot row',
        text: 'One row of stock; every purchase is a transaction that takes a unit and writes an order.',
        charts: [ranking('conditional'), sweep('By connections', 'conditional', 'connections')],
      },
    ],
    notes: [
      'Both servers have the settings that they ship with: each commit is on disk before it is acknowledged. The clients are mysql2 and pg, with prepared statements.',
    ],
  },
  tables(results) {
    const groups = byCell(results).filter(([, all]) => all.length > 0);
    return groups.length === 0 ? [] : [lockTable(groups), deadlockTable(groups)];
  },
};
