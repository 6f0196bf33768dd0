/** `npm run bench -- locks`: the locks side by side: throughput, hand-off, cost, fairness and exclusion. */

import { chosenLocks, everyLock, type LockCell, namesOf, onValkey } from '../../../lab/clients/lock-cells.ts';
import { reasonOf } from '../../../lab/kit/text.ts';
import { bars, range, ranking } from '../../kit/charts.ts';
import { type Environment, MissingServersError } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { named, optionsOf, sized, usually } from '../../kit/options.ts';
import type { Metric, ReportLayout, Session, Suite, TrialBase } from '../../kit/suite.ts';
import { measure } from './measure.ts';
import type { Numbers } from './numbers.ts';
import { openServerRoom } from './servers.ts';

/** What `--locks all` means here. */
const compared = [...everyLock, ...onValkey];

const suiteOptions = optionsOf(
  {
    locks: usually(
      named(namesOf(compared), 'lock', 'what is measured; none locks nothing'),
      'all',
      'redis,redis-semaphore,none',
    ),
    duration: usually(sized('seconds', 0.1, 600, 'seconds of each of the three shapes'), '2', '0.3'),
    warmup: usually(sized('seconds', 0, 60, 'seconds of the same load before each'), '0.5', '0.1'),
    waiters: usually(sized('whole', 2, 10_000, 'waiters on one resource'), '64'),
    processes: usually(sized('whole', 2, 64, 'processes the waiters are divided among'), '4', '2'),
  },
  ({ duration: durationMs, warmup: warmupMs, ...others }, _common, mistakes) => {
    const { processes, waiters } = others;
    if (processes > waiters)
      mistakes.push(`--processes ${processes} exceeds --waiters ${waiters}: every process has at least one`);
    return { ...others, durationMs, warmupMs };
  },
);
type LocksOptions = ReturnType<typeof suiteOptions.read>;

/** One waiter; all waiters in one process; waiters in several processes. */
const shapes = {
  solo: { title: 'solo', of: () => ({ processes: 1, waiters: 1 }) },
  'one-process': { title: 'one process', of: ({ waiters }: LocksOptions) => ({ processes: 1, waiters }) },
  'several-processes': {
    title: 'several processes',
    of: ({ processes, waiters }: LocksOptions) => ({ processes, waiters }),
  },
} as const;
type ShapeName = keyof typeof shapes;
const shapeNames = Object.keys(shapes) as readonly ShapeName[];

/** One lock in one shape. */
interface LockResult extends TrialBase, Numbers {
  readonly shape: ShapeName;
}

const solo: readonly MetricRow<LockResult>[] = [
  ['perSecond', 'grants/s', '/s', '+', (r) => r.perSecond],
  ['requests', 'requests', '', '-', (r) => r.requestsPerGrant],
  ['commands', 'commands', '', '-', (r) => r.commandsPerGrant],
];
const contended: readonly MetricRow<LockResult>[] = [
  ...solo,
  ['handOffP50Ms', 'hand-off p50', 'ms', '-', (r) => r.handOffMs?.p50],
  ['handOffP99Ms', 'hand-off p99', 'ms', '-', (r) => r.handOffMs?.p99],
  ['toAnother', 'to another waiter', '%', '', (r) => r.toAnother],
  ['waitP50Ms', 'wait p50', 'ms', '-', (r) => r.waitMs?.p50],
  ['waitP99Ms', 'wait p99', 'ms', '-', (r) => r.waitMs?.p99],
  ['longestWaitMs', 'longest wait', 'ms', '-', (r) => r.longestWaitMs],
  ['order', 'order', '', '', (r) => r.fairness?.order], // has a sign, so it has no quotients
  ['jain', 'Jain index', '', '+', (r) => r.fairness?.jain],
];
const help: Readonly<Record<string, string>> = {
  perSecond: 'Acquisitions a second.',
  requests: 'Requests of clients for a grant.',
  commands: 'Commands of the servers for a grant, those in scripts included.',
  handOffP50Ms: 'From release to the next grant, median.',
  handOffP99Ms: 'From release to the next grant, 99th percentile.',
  toAnother: 'Share of hand-offs to another waiter.',
  waitP99Ms: 'From acquire to grant, 99th percentile.',
  longestWaitMs: 'Waiters without a grant at the end included.',
  order: 'Kendall’s tau of grants and requests: 1 is first come, first served.',
  jain: 'Jain’s index of grants per waiter: 1 when all have as many.',
};

const metricsIn = (shape: ShapeName): Metric<LockResult>[] =>
  metricsOf(shape === 'solo' ? solo : contended, help).map(({ key, title, read, ...metric }) => ({
    ...metric,
    key: `${shape}.${key}`,
    title: `${title}, ${shapes[shape].title}`,
    read: (result) => (result.shape === shape ? read(result) : null),
  }));

const several = (...keys: string[]): string[] => keys.map((key) => `several-processes.${key}`);

const report: ReportLayout = {
  title: 'Locks compared',
  lead: 'several-processes.perSecond',
  leadText: 'grants a second under contention from several processes',
  noun: 'lock',
  passed: 'never admitted two holders, without faults',
  columns: [
    ...['solo.perSecond', 'one-process.perSecond'],
    ...several('perSecond', 'handOffP50Ms', 'waitP99Ms', 'requests', 'order'),
  ],
  sections: [
    {
      title: 'Throughput under contention',
      text: 'All waiters want one resource; holders release at once.',
      charts: [
        ranking('several-processes.perSecond'),
        bars('Without contention', 'solo.perSecond'),
        bars('All waiters in one process', 'one-process.perSecond'),
      ],
    },
    {
      title: 'Latency',
      text: 'Waiters are in several processes.',
      charts: [
        range('Hand-off', ...several('handOffP50Ms', 'handOffP99Ms')),
        range('Wait', ...several('waitP50Ms', 'waitP99Ms')),
      ],
    },
    {
      title: 'Cost and fairness',
      text: 'Requests of clients for a grant, and the order in which waiters were served.',
      charts: [
        bars('Requests for a grant', ...several('requests')),
        bars('Order of service', ...several('order')),
      ],
    },
  ],
  notes: [
    'Each lock has fresh servers on this machine in each round, and is measured solo, with all waiters in one process, and with the waiters in several processes. A holder yields to the event loop once and releases.',
    'Two holders at once are counted from the holders’ own clocks: a grant is seen after the server made it, and a release before the server carries it out, so that a correct lock has no overlap.',
    'The libraries have their defaults, but wait long enough that no waiter gives up.',
  ],
};

async function open(
  options: LocksOptions,
  { say, signal }: Pick<Environment, 'say' | 'signal'>,
): Promise<Session<LockCell, LockResult>> {
  const { warmupMs, durationMs } = options;
  const room = await openServerRoom(say);
  return {
    generator: 'waiters in processes of the bench',
    versions: room.versions,
    async runTrial({ cell: { lock, servers: kind }, number, point }, onStep) {
      onStep('servers');
      await using servers = await room.open(kind).catch((cause: unknown) => {
        throw new MissingServersError(reasonOf(cause), { cause });
      });
      const results = [];
      for (const shape of shapeNames) {
        onStep(shapes[shape].title);
        const load = { resource: `bench-${number}-${shape}`, warmupMs, durationMs, signal };
        const numbers = await measure({ lock, servers, ...shapes[shape].of(options), ...load });
        results.push({ point, shape, ...numbers, invalid: [], findings: findingsOf(numbers, shape) });
      }
      return results;
    },
    close: async () => room[Symbol.asyncDispose](),
  };
}

function findingsOf({ overlaps, grants, refusals }: Numbers, shape: ShapeName): string[] {
  const { title } = shapes[shape];
  const refused = Object.entries(refusals).map(
    ([reason, count]) => `${title}: ${count} acquisitions refused: ${reason}`,
  );
  if (overlaps === 0) return refused;
  return [`${title}: ${overlaps} times two holders at once, in ${grants} grants`, ...refused];
}

export const locks: Suite<LocksOptions, LockCell, LockResult> = {
  name: 'locks',
  title:
    'Compares the locks, and three libraries beside them: throughput, hand-off, cost, fairness and exclusion.',
  help: `There are ${compared.map(({ name }) => name).join(', ')}.
Every server is started by the bench and ends with it; locks whose servers are not installed are left out.`,
  ...suiteOptions,
  rounds: 5,
  async plan(options) {
    const cells = chosenLocks(options.locks, compared);
    const baseline = cells.some(({ name }) => name === 'redis') ? 'redis' : null;
    return { cells, points: [{}], baseline, control: true, ladder: null, shown: { ...options } };
  },
  open,
  metrics: shapeNames.flatMap(metricsIn),
  checks: [
    {
      ...{ key: 'overlaps', title: 'two holders', help: 'Grants while an earlier holder had not released.' },
      read: ({ overlaps }) => overlaps,
    },
  ],
  verdict: ({ overlaps }) => (overlaps === 0 ? 'pass' : 'fail'),
  report,
};
