/**
 * `npm run bench -- faults`: what every lock does under every fault, from recorded histories.
 *
 * A trial is one lock in one round: each fault strikes it with servers and clients that no other trial uses; a few faults run
 * side by side. A cell of the matrix shows the worst of its trials.
 */
import { join } from 'node:path';
import { suggestion } from '../../../src/config/suggest.ts';
import { TTL_MS } from '../../faults/fault.ts';
import { lockFaults } from '../../faults/registry.ts';
import { buildClock } from '../../faults/servers.ts';
import { type Environment, MissingServersError } from '../../kit/environment.ts';
import { chosenLocks, everyLock, type LockCell } from '../../kit/lock-cells.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import type { CommonOptions, Given } from '../../kit/options.ts';
import { whyNoZookeeper } from '../../kit/servers.ts';
import type { Bare, Session, Suite, Trial } from '../../kit/suite.ts';
import { reasonOf } from '../../kit/text.ts';
import type { FaultResult, LockTrial } from './history.ts';
import { matrixOf } from './matrix.ts';
import { Clients, runLockTrial } from './trial.ts';

type Options = Readonly<ReturnType<typeof readFaultOptions>>;

const smokeLocks = ['redis-setnx', 'redis-owner', 'redis'];
const smokeFaults = ['holder-killed', 'holder-paused', 'split-brain'];
const known = lockFaults.map(({ name }) => name);

function readFaultOptions(given: Given, { smoke }: CommonOptions, mistakes: string[]) {
  const faults = given.names('faults', smoke ? smokeFaults : known);
  for (const name of faults.filter((one) => !known.includes(one)))
    mistakes.push(`--faults: there is no fault "${name}"${suggestion(name, known)}`);
  return {
    locks: given.names('locks', smoke ? smokeLocks : ['all']),
    faults,
    lanes: given.number('lanes', 4),
  };
}

async function runTrial(
  { cell: lock, seed, number }: Trial<LockCell>,
  { faults, lanes }: Options,
  place: Pick<Environment, 'scratch' | 'signal'> & {
    readonly clock: string | null;
    readonly clients: Clients[];
  },
  onStep: (step: string) => void,
): Promise<Bare<FaultResult>> {
  const why = lock.servers === 'zookeeper' ? whyNoZookeeper() : null;
  if (why !== null) throw new MissingServersError(why);
  const waiting = lockFaults.filter(({ name }) => faults.includes(name));
  const outcomes: Record<string, LockTrial | string> = {};
  const findings: string[] = [];
  const lane = async (clients: Clients) => {
    for (let fault = waiting.shift(); fault !== undefined; fault = waiting.shift()) {
      const needsClock = fault.name === 'clock-ahead' && place.clock === null;
      const lacks = fault.lacks?.(lock) ?? (needsClock ? 'no C compiler on this machine' : null);
      onStep(fault.title);
      const folder = join(place.scratch, `${number}-${fault.name}`);
      const order = { lock, fault, seed: seed * 100 + known.indexOf(fault.name), folder, ...place };
      outcomes[fault.name] =
        lacks ??
        (await runLockTrial(clients, order).catch((error) => {
          place.signal.throwIfAborted();
          findings.push(`${fault.title}: ${reasonOf(error)}`);
          return `could not be run: ${reasonOf(error).split('\n')[0]}`;
        }));
    }
  };
  await Promise.all(place.clients.slice(0, lanes).map(lane));
  return { point: {}, lock, outcomes, invalid: [], findings };
}

const trialsOf = ({ outcomes }: FaultResult): LockTrial[] =>
  Object.values(outcomes).filter((one) => typeof one !== 'string');
const count = (result: FaultResult, word: LockTrial['word']): number =>
  trialsOf(result).filter((trial) => trial.word === word).length;
const worst = (result: FaultResult, read: (trial: LockTrial) => number): number =>
  Math.max(0, ...trialsOf(result).map(read));

const rows: readonly MetricRow<FaultResult>[] = [
  ['one', 'one holder', '', '+', (r) => count(r, 'one holder')],
  ['fenced', 'fenced', '', '', (r) => count(r, 'fenced')],
  ['two', 'two holders', '', '-', (r) => count(r, 'two holders')],
  ['stuck', 'stuck', '', '-', (r) => count(r, 'stuck')],
  ['twoMs', 'two holders at most', 'ms', '-', (r) => worst(r, (t) => t.twoHoldersMs)],
  ['idleMs', 'unlocked wait at most', 'ms', '-', (r) => worst(r, (t) => (t.word === 'stuck' ? 0 : t.idleMs))],
];
const metrics = metricsOf(rows, {
  one: 'Faults under which no client wrote after a client that was granted the lock later.',
  fenced:
    'Faults under which one did, and a counter that checks fencing tokens refused each of these writes.',
  two: 'Faults under which one did, and nothing refused it.',
  stuck: `Faults after which a waiting client was not served within ${(6 * TTL_MS) / 1_000} s.`,
  twoMs: 'The longest time in which two clients acted as the holder.',
  idleMs: 'The longest time in which clients waited and none acted as the holder, where all were served.',
});

export const faults: Suite<Options, LockCell, FaultResult> = {
  name: 'faults',
  title: 'Strikes every lock with every fault, and shows which of them keep one holder.',
  help: `Locks: ${everyLock.map(({ name }) => name).join(', ')}.
Faults: ${known.join(', ')}.
Every server and client is started by the bench and ends with it; locks whose servers are not installed are left out.`,
  options: {
    locks: { kind: 'names', help: 'which locks (all)' },
    faults: { kind: 'names', help: 'which faults (all)' },
    lanes: { kind: 'whole', min: 1, max: 16, help: 'faults at once (4)' },
  },
  rounds: { canonical: 3, smoke: 1 },
  read: readFaultOptions,
  async plan(options) {
    const { cells, mistakes } = chosenLocks(options.locks);
    if (mistakes.length > 0) return { mistakes };
    return { cells, points: [{}], baseline: null, control: false, ladder: null, shown: { ...options } };
  },
  async open(options, { scratch, signal, say }): Promise<Session<LockCell, FaultResult>> {
    const clock = await buildClock(scratch);
    if (clock === null) say('no C compiler (cc): the clock of Redis is not set');
    const clients = Array.from({ length: options.lanes }, () => new Clients());
    return {
      generator: 'three client processes for each fault',
      runTrial: async (trial, onStep) => [
        await runTrial(trial, options, { scratch, signal, clock, clients }, onStep),
      ],
      async [Symbol.asyncDispose]() {
        await Promise.all(clients.map((one) => one[Symbol.asyncDispose]()));
      },
    };
  },
  metrics,
  curves: [],
  checks: [],
  goals: [],
  verdict: (result, { unsafe }) =>
    !unsafe ? null : count(result, 'two holders') > 0 ? 'fail (expected)' : 'pass',
  matrices: (results) => [matrixOf(results)],
  report: {
    title: 'Locks under faults',
    lead: 'one',
    leadText: 'faults with one holder',
    noun: 'lock',
    columns: metrics.map(({ key }) => key),
    sections: [
      {
        title: 'Every lock under every fault',
        text: 'Green: one holder at a time. Yellow: a late write, which the fencing token refuses. Red: a late write that nothing refuses, or nobody is served any more. A cell opens its history: blue is a holder, red two at once, yellow the fault.',
        charts: [{ kind: 'matrix', matrix: 0 }],
      },
    ],
    notes: [
      `A holds the lock when the fault strikes; B and C wait. The lease lasts ${TTL_MS / 1_000} s. A holder writes every 10 ms, stops when its lock tells it that the lease is lost, and releases; B and C work 0.7 s.`,
      'A write is late if a client that was granted the lock later has written before it. The counter with a fence refuses a write whose token is smaller than one that it has seen; a lock without tokens cannot be fenced.',
      'A cell shows the worst of its trials; seeds move the moment of the fault. Each trial has servers of its own on this machine.',
    ],
  },
};
