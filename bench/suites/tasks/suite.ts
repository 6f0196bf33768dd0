/**
 * `npm run bench -- tasks`: several processes share the tasks of one database, by SKIP LOCKED or one at a time under a lock.
 *
 *   services start ─▶ due tasks are written ─▶ half are delivered: one service is killed and replaced ─▶ all are delivered
 *
 * The receiver counts the deliveries of each task. A killed service may have delivered tasks without recording it; these are
 * delivered again once they are reclaimed, 30 s later.
 */

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { eventually } from '../../../lab/kit/eventually.ts';
import { programEntry } from '../../../lab/kit/processes.ts';
import { withPostgres } from '../../../lab/servers/stores.ts';
import { type Service, serviceEntry, startService } from '../../../lab/service.ts';
import { ranking, sweep } from '../../kit/charts.ts';
import { type Environment, needBuild } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { named, optionsOf, sized, usually } from '../../kit/options.ts';
import type { Bare, CellBase, Suite, Trial, TrialBase } from '../../kit/suite.ts';

interface TasksResult extends TrialBase {
  /** Tasks delivered per second, from the first until half are. */
  readonly perSecond: number;
  /** Deliveries of tasks that had been delivered before. */
  readonly repeats: { readonly beforeKill: number; readonly afterKill: number };
  /** Tasks that are not done at the end. */
  readonly left: number;
  /** From the kill to the last delivery. */
  readonly lastAfterMs: number;
}

interface TasksCell extends CellBase {
  readonly pick: 'skip-locked' | 'lock';
}
const cell = (pick: TasksCell['pick'], summary: string): TasksCell => {
  return { name: pick, pick, summary, unsafe: false, control: false };
};
const cells = [
  cell('skip-locked', 'Each worker skips the rows that another has locked.'),
  cell('lock', 'Workers take turns under LOCK=redis.'),
];
const entries = { 'skip-locked': serviceEntry, lock: programEntry('service-under-lock') };
const names = cells.map(({ name }) => name);
const suiteOptions = optionsOf(
  {
    pick: usually(named(names, '', 'which ways to claim tasks'), names.join()),
    tasks: usually(sized('whole', 10, 100_000, 'tasks of a trial'), '6000', '200'),
    processes: usually(sized('wholes', 1, 16, 'how many processes'), '1,2,4', '2'),
  },
  (values) => values,
);
type Options = ReturnType<typeof suiteOptions.read>;
const patienceMs = 120_000;

/** Confirms every task at once. */
async function openReceiver() {
  const deliveries = new Map<string, number>();
  const times: number[] = [];
  const server = createServer((request, response) => {
    request.resume();
    const key = String(request.headers['idempotency-key']);
    deliveries.set(key, (deliveries.get(key) ?? 0) + 1);
    times.push(performance.now());
    response.writeHead(204).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    deliveries,
    /** When each delivery came, in ms. */
    times,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const writeTasks = (url: string, count: number) =>
  withPostgres(url, (client) =>
    client.query(
      `INSERT INTO tasks (kind, key, payload) SELECT 'ship', 'ship:' || n, '{}' FROM generate_series(1, $1::int) AS n`,
      [count],
    ),
  );

const unfinished = async (url: string): Promise<number> => {
  const count = `SELECT count(*)::int AS left FROM tasks WHERE state <> 'done'`;
  return (await withPostgres(url, (client) => client.query(count))).rows[0].left;
};

async function runTrial(
  { cell: { pick }, point, number }: Trial<TasksCell>,
  { tasks }: Options,
  { stores: allStores, signal }: Environment,
  onStep: (step: string) => void,
): Promise<Bare<TasksResult>> {
  await using stores = await (await allStores()).fresh(String(number));
  await using receiver = await openReceiver();
  const env = { TASK_WEBHOOK_URL: receiver.url };
  const services: Service[] = [];
  const start = async () => {
    const settings = { strategy: 'for-update', lock: null, ...stores, env };
    services.push(await startService(settings, { entry: entries[pick], signal }));
  };
  const delivered = async (count: number) => {
    signal.throwIfAborted();
    return receiver.deliveries.size >= count;
  };
  const { deliveries, times } = receiver;
  const yes = (is: boolean) => is;
  try {
    for (let n = 0; n < point.processes!; n++) await start();
    onStep('delivering');
    await writeTasks(stores.databaseUrl, tasks);
    await eventually(() => delivered(tasks / 2), yes, patienceMs);
    const [count, distinct, killedMs] = [times.length, deliveries.size, performance.now()];
    process.kill(services[0]!.pid!, 'SIGKILL');
    await start();
    onStep('delivering after a kill');
    await eventually(() => delivered(tasks), yes, patienceMs);
    const left = await eventually(
      () => unfinished(stores.databaseUrl),
      (n) => n === 0,
      patienceMs,
    ).catch(() => unfinished(stores.databaseUrl));
    return {
      point,
      perSecond: (count - 1) / ((times[count - 1]! - times[0]!) / 1_000),
      repeats: {
        beforeKill: count - distinct,
        afterKill: times.length - count - (deliveries.size - distinct),
      },
      left,
      lastAfterMs: times.at(-1)! - killedMs,
      invalid: [],
      findings: left === 0 ? [] : [`${left} tasks are not done`],
    };
  } finally {
    await Promise.all(services.map((service) => service[Symbol.asyncDispose]()));
  }
}

const rows: readonly MetricRow<TasksResult>[] = [
  ['perSecond', 'tasks/s', '/s', '+', (r) => r.perSecond],
  ['repeats', 'repeats', '', '-', (r) => r.repeats.beforeKill],
  ['repeatsAfterKill', 'repeats after the kill', '', '-', (r) => r.repeats.afterKill],
  ['lastAfterMs', 'all delivered after', 'ms', '-', (r) => r.lastAfterMs],
];
const metrics = metricsOf(rows, {
  perSecond: 'Tasks delivered a second, from the first one until half of them are.',
  repeats: 'Deliveries of a task that had been delivered, before the kill.',
  repeatsAfterKill: 'The same after it. The killed process had up to 8 tasks in progress.',
  lastAfterMs:
    'From the kill to the last delivery. What the killed process had in progress is reclaimed after 30 s.',
});

export const tasksSuite: Suite<Options, TasksCell, TasksResult> = {
  name: 'tasks',
  title: 'Compares task claims by SKIP LOCKED and under a lock, with a process killed in the middle.',
  help: 'Stores as for npm run bench. LOCK is redis.',
  ...suiteOptions,
  rounds: 5,
  async plan({ processes, pick, ...shown }) {
    const chosen = cells.filter(({ name }) => pick.includes(name));
    const points = processes.map((count) => ({ processes: count }));
    return { cells: chosen, points, baseline: chosen[0]!.name, control: true, ladder: null, shown };
  },
  async open(options, environment) {
    await needBuild();
    return {
      generator: 'rows in Postgres; one receiver of the deliveries',
      runTrial: (trial, onStep) => runTrial(trial, options, environment, onStep),
    };
  },
  metrics,
  verdict: ({ left, repeats }) => (left === 0 && repeats.beforeKill === 0 ? 'pass' : 'fail'),
  report: {
    title: 'Tasks under a lock and with SKIP LOCKED',
    lead: 'perSecond',
    leadText: 'tasks delivered a second',
    noun: 'mode',
    columns: metrics.map(({ key }) => key),
    passed: 'delivered every task, and none twice before the kill',
    axes: { processes: { title: 'processes', unit: '' } },
    sections: [
      {
        title: 'Tasks a second',
        text: 'Every process is a whole service, with a worker that performs 8 tasks at a time.',
        charts: [ranking('perSecond'), sweep('Tasks a second by processes', 'perSecond', 'processes')],
      },
    ],
    notes: [
      'Half of the tasks are delivered when one process is killed with SIGKILL and replaced. A task that it had delivered and not recorded is delivered again with the same idempotency key: at least once is what an outbox can promise.',
    ],
  },
};
