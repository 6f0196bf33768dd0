/**
 * `npm run bench -- faults`: what every lock and every strategy does under every fault, from recorded histories.
 *
 * A trial is one lock or strategy in one round: each fault strikes it on servers of its own; a few faults run side by
 * side. A cell of a matrix shows the worst of its trials.
 */
import { join } from 'node:path';
import { chosenLocks, everyLock, namesOf } from '../../../lab/clients/lock-cells.ts';
import { type LockFault, TTL_MS } from '../../../lab/faults/fault.ts';
import { lockFaults } from '../../../lab/faults/lock-faults.ts';
import type { StrategyFault } from '../../../lab/faults/strategy-fault.ts';
import { strategyFaults } from '../../../lab/faults/strategy-faults.ts';
import { reasonOf } from '../../../lab/kit/text.ts';
import { buildClock } from '../../../lab/servers/open.ts';
import { whyNoValkey } from '../../../lab/servers/valkey.ts';
import { whyNoZookeeper } from '../../../lab/servers/zookeeper-server.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { matrixOf } from '../../kit/charts.ts';
import { type Environment, MissingServersError, needBuild } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { named, optionsOf, sized, usually } from '../../kit/options.ts';
import type { Bare, Session, Suite, Trial } from '../../kit/suite.ts';
import type { LockTrial } from './history.ts';
import { matricesOf } from './matrix.ts';
import {
  type FaultResult,
  type LabCell,
  lockTrials,
  NOT_RUN,
  type Order,
  type StrategyCell,
  strategyTrials,
} from './result.ts';
import type { StrategyTrial } from './sale-verdict.ts';
import { runStrategyTrial } from './strategy-trial.ts';
import { Clients, runLockTrial } from './trial.ts';

const smokeLocks = ['redis-setnx', 'redis-owner', 'redis'];
const smokeStrategies = ['unsafe', 'lua'];
const smokeFaults = ['holder-killed', 'holder-paused', 'split-brain', 'service-killed', 'redis-emptied'];
const known = [...lockFaults, ...strategyFaults].map(({ name }) => name);
/** `lua` on another Redis, or with other variables. */
const modes: Readonly<Record<string, Partial<Pick<StrategyCell, 'redis' | 'env'>>>> = {
  'lua-confirm-accepted': { env: { CONFIRM: 'accepted' } },
  'lua-redis-wait-1': { redis: 'replicated', env: { CONFIRM: 'accepted', REDIS_WAIT: '1' } },
  'lua-redis-cluster': { redis: 'cluster' },
};
const knownStrategies = [...strategies.keys(), ...Object.keys(modes)];

const suiteOptions = optionsOf(
  {
    locks: named(namesOf(everyLock), 'lock', 'which locks (all; none if only strategies are named)'),
    strategies: named(
      [...knownStrategies, 'all'],
      '',
      'which strategies (all; none if only locks are named)',
    ),
    faults: named(known, '', 'which faults (all)'),
    lanes: usually(sized('whole', 1, 16, 'faults at once'), '4'),
  },
  ({ locks, strategies: wanted, faults, lanes }, { smoke }) => {
    const isLimited = locks !== undefined || wanted !== undefined;
    const chosen = wanted ?? (isLimited ? [] : smoke ? smokeStrategies : ['all']);
    return {
      locks: locks ?? (isLimited ? [] : smoke ? smokeLocks : ['all']),
      strategies: chosen.includes('all') ? knownStrategies : chosen,
      faults: faults ?? (smoke ? smokeFaults : known),
      lanes,
    };
  },
);
type Options = ReturnType<typeof suiteOptions.read>;

function cellsOf(options: Options): LabCell[] {
  const isStruck = (table: readonly { readonly name: string }[]): boolean =>
    table.some(({ name }) => options.faults.includes(name));
  const ofStrategies = options.strategies.map((name): LabCell => {
    const strategy = name in modes ? 'lua' : name;
    const { summary, guarantees } = strategies.get(strategy)!.description;
    const common = { name, summary, unsafe: !guarantees.neverOversells, control: false };
    return { ...common, subject: 'strategy', strategy, redis: 'single', env: {}, ...modes[name] };
  });
  const ofLocks = chosenLocks(options.locks).map(
    (lock): LabCell => ({ ...lock, unsafe: false, subject: 'lock' }),
  ); // locks have no verdict
  // Without a fault there is nothing to judge.
  return [...(isStruck(lockFaults) ? ofLocks : []), ...(isStruck(strategyFaults) ? ofStrategies : [])];
}

interface Place extends Pick<Environment, 'scratch' | 'signal'> {
  readonly clock: string | null;
  readonly lanes: readonly Clients[];
}

/** Why this machine cannot inject a fault; null: it can. */
function lacksHere(fault: LockFault | StrategyFault, clock: string | null): string | null {
  if (fault.name.includes('clock') && clock === null) return 'no C compiler on this machine';
  const needsRoot = 'smallDisk' in fault && process.getuid?.() !== 0;
  return needsRoot ? 'only root may mount a small file system' : null;
}

const lacksNode = ({ onOneRedis }: StrategyFault, { redis }: StrategyCell): string | null =>
  onOneRedis && redis === 'cluster'
    ? 'a cluster replaces a member that fails: see "Redis failed over"'
    : null;

type Outcome = LockTrial | StrategyTrial;

/** The faults that a cell may meet. `run` returns the trial, or why there is none. */
function faultsOf(cell: LabCell, clock: string | null, orderOf: (fault: string) => Order) {
  if (cell.subject === 'lock')
    return lockFaults.map((fault) => ({
      fault,
      run: async (clients: Clients): Promise<Outcome | string> =>
        fault.lacks?.(cell) ??
        lacksHere(fault, clock) ??
        runLockTrial(clients, { lock: cell, fault, ...orderOf(fault.name) }),
    }));
  return strategyFaults.map((fault) => ({
    fault,
    run: async (): Promise<Outcome | string> =>
      lacksNode(fault, cell) ??
      lacksHere(fault, clock) ??
      runStrategyTrial({ ...cell, fault, ...orderOf(fault.name) }),
  }));
}

/** Strikes the cell with each fault, a few at a time. */
async function runTrial(
  { cell, seed, number }: Trial<LabCell>,
  chosen: readonly string[],
  { clock, signal, scratch, lanes }: Place,
  onStep: (step: string) => void,
): Promise<Bare<FaultResult>> {
  const servers = cell.subject === 'lock' ? cell.servers : null;
  const why = servers === 'zookeeper' ? whyNoZookeeper() : servers === 'valkey' ? await whyNoValkey() : null;
  if (why !== null) throw new MissingServersError(why);
  const outcomes: Record<string, Outcome | string> = {};
  const findings: string[] = [];
  const orderOf = (fault: string): Order => ({
    ...{ seed: seed * 100 + known.indexOf(fault), folder: join(scratch, `${number}-${fault}`) },
    ...{ clock, signal },
  });
  const waiting = faultsOf(cell, clock, orderOf).filter(({ fault }) => chosen.includes(fault.name));
  const work = async (clients: Clients) => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { fault, run } = next;
      onStep(fault.title);
      const again = () => {
        signal.throwIfAborted();
        return run(clients); // another process may have taken the port of a server
      };
      outcomes[fault.name] = await again()
        .catch(again)
        .catch((error) => {
          signal.throwIfAborted();
          findings.push(`${fault.title}: ${reasonOf(error)}`);
          return `${NOT_RUN}: ${reasonOf(error).split('\n')[0]}`;
        });
    }
  };
  await Promise.all(lanes.map(work));
  const broken = Object.entries(outcomes).flatMap(([name, one]) =>
    typeof one === 'object' && 'findings' in one ? one.findings.map((finding) => `${name}: ${finding}`) : [],
  );
  return { point: {}, subject: cell.subject, outcomes, invalid: [], findings: [...findings, ...broken] };
}

const count = <T extends { readonly word: string }>(
  trials: readonly T[] | null,
  word: T['word'],
): number | null => trials?.filter((trial) => trial.word === word).length ?? null;
const most = <T>(trials: readonly T[] | null, read: (trial: T) => number): number | null =>
  trials === null ? null : Math.max(0, ...trials.map(read));

const rows: readonly MetricRow<FaultResult>[] = [
  ['one', 'one holder', '', '+', (r) => count(lockTrials(r), 'one holder')],
  ['fenced', 'fenced', '', '', (r) => count(lockTrials(r), 'fenced')],
  ['two', 'two holders', '', '-', (r) => count(lockTrials(r), 'two holders')],
  ['stuck', 'stuck', '', '-', (r) => count(lockTrials(r), 'stuck')],
  ['twoMs', 'two holders at most', 'ms', '-', (r) => most(lockTrials(r), (t) => t.twoHoldersMs)],
  ['kept', 'audits passed', '', '+', (r) => count(strategyTrials(r), 'kept')],
  ['silentMs', 'nothing sold at most', 'ms', '-', (r) => most(strategyTrials(r), (t) => t.silentMs)],
  ['settledMs', 'settled after', 'ms', '-', (r) => most(strategyTrials(r), (t) => t.settledMs)],
  ['strict', 'linearizable', '', '', (r) => histories(r, 'linearizable')],
  ['weak', 'weakly consistent', '', '', (r) => histories(r, 'weakly consistent')],
  ['unknown', 'unknown outcomes', '', '-', (r) => most(strategyTrials(r), (t) => t.unknown)],
];
const metrics = metricsOf(rows, {
  one: 'Faults under which no client wrote after a client that was granted the lock later.',
  fenced:
    'Faults under which one did, and a counter that checks fencing tokens refused each of these writes.',
  two: 'Faults under which one did, and nothing refused it.',
  stuck: 'Faults after which a waiting client was not served within six leases.',
  twoMs: 'The longest time in which two clients acted as the holder.',
  kept: 'Faults after which the audit found no difference between answers and stores.',
  silentMs: 'The longest time between two accepted attempts while customers came steadily.',
  settledMs:
    'The longest time after a load until no reservation, and no change for Redis, was left between the stores.',
  strict: 'Faults under which one order of the requests explains every answer.',
  weak: 'Faults under which one does if "sold out" may count a unit that an attempt without success had reserved, and a read may miss an order that is not committed yet.',
  unknown: 'Attempts of one trial whose customers do not know what happened, at most.',
});

const histories = (result: FaultResult, verdict: StrategyTrial['consistency']): number | null =>
  strategyTrials(result)?.filter(({ consistency }) => consistency === verdict).length ?? null;

const isBroken = (result: FaultResult): boolean =>
  strategyTrials(result)?.some(({ word }) => word === 'oversold' || word === 'broken') === true;
/** Whether a fault of a strategy could not be run or judged: what it shows is not known. */
const isUnknown = (result: FaultResult): boolean =>
  strategyTrials(result)?.some(({ word }) => word === 'not audited') === true ||
  Object.values(result.outcomes).some((one) => typeof one === 'string' && one.startsWith(NOT_RUN));

export const faults: Suite<Options, LabCell, FaultResult> = {
  name: 'faults',
  title: 'Strikes every lock and every strategy with every fault, on real servers.',
  help: `Locks: ${everyLock.map(({ name }) => name).join(', ')}.
Strategies: ${knownStrategies.join(', ')}.
Faults of locks: ${lockFaults.map(({ name }) => name).join(', ')}.
Faults of strategies: ${strategyFaults.map(({ name }) => name).join(', ')}.
Every server and process is started by the bench and ends with it; locks whose servers are not installed are left out.`,
  ...suiteOptions,
  rounds: 3,
  async plan(options) {
    const cells = cellsOf(options);
    if (cells.length === 0)
      return { mistakes: ['--faults: none of them is of the chosen locks and strategies'] };
    return { cells, points: [{}], baseline: null, control: false, ladder: null, shown: { ...options } };
  },
  async open(options, { scratch, signal, say }): Promise<Session<LabCell, FaultResult>> {
    if (options.strategies.length > 0) await needBuild();
    const clock = await buildClock(scratch);
    if (clock === null) say('no C compiler (cc): no server’s clock is set');
    const lanes = Array.from({ length: options.lanes }, () => new Clients());
    return {
      generator: 'three client processes for each fault of a lock, undici for those of a strategy',
      runTrial: (trial, onStep) => runTrial(trial, options.faults, { scratch, signal, clock, lanes }, onStep),
      async close() {
        await Promise.all(lanes.map((one) => one[Symbol.asyncDispose]()));
      },
    };
  },
  metrics,
  verdict(result) {
    if (result.subject === 'lock') return null; // the matrix judges it
    if (isBroken(result)) return 'fail';
    if (isUnknown(result)) return 'unknown';
    return strategyTrials(result)?.length === 0 ? null : 'pass'; // it may have met no fault
  },
  matrices: matricesOf,
  report: {
    title: 'Locks and strategies under faults',
    lead: 'one',
    leadText: 'faults with one holder',
    noun: 'lock or strategy',
    columns: metrics.map(({ key }) => key),
    audited: 'strategy',
    passed: 'passed the audit under every fault, but for orders that a promoted standby lacks',
    sections: [
      {
        title: 'Every lock under every fault',
        text: 'Green: one holder at a time. Yellow: late writes, all refused by the fencing token. Red: a late write that nothing refuses, or a client that is never served. A cell opens its history: blue is a holder, red two at once, yellow the fault.',
        charts: [matrixOf(0)],
      },
      {
        title: 'Every strategy under every fault',
        text: 'Green: the audit found no difference between answers and stores. Yellow: accepted orders are lost, because the asynchronous standby that was promoted lacks them, and nothing else is wrong. The figure is the longest time without a sale. A cell opens its history: when attempts were accepted, answered busy, or without an answer.',
        charts: [matrixOf(1)],
      },
    ],
    notes: [
      `A holds the lock when the fault strikes; B and C wait. The lease lasts ${TTL_MS / 1_000} s where its column does not say otherwise. A holder writes every 10 ms, stops when its lock signals that the lease is lost, and releases; B and C work 0.7 s.`,
      'A write is late if a client that was granted the lock later has written before it. The counter with a fence refuses a write whose token is smaller than one that it has seen; a lock without tokens cannot be fenced.',
      'A strategy runs in one service on separate stores. 60 customers a second come for 8 s, each once; the fault lasts 2 s; then 500 customers request the last units, and the audit compares answers and stores.',
      '`lua-confirm-accepted` runs with CONFIRM=accepted; `lua-redis-wait-1` also with REDIS_WAIT=1, on a Redis with a replica; `lua-redis-cluster` on a cluster of three masters, each with a replica.',
      'A cell shows the worst of its trials; seeds move the moment of the fault.',
    ],
  },
};
