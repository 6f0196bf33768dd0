/**
 * Cells of the fault lab whose verdict does not depend on chance, on real servers: a lock that changes its verdict fails here,
 * and so does a committed matrix that says something else.
 */
import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Matrix } from '../../bench/kit/suite.ts';
import { runStrategyTrial } from '../../bench/suites/faults/strategy-trial.ts';
import { Clients, runLockTrial } from '../../bench/suites/faults/trial.ts';
import { everyLock } from '../../lab/clients/lock-cells.ts';
import { lockFaults } from '../../lab/faults/lock-faults.ts';
import { strategyFaults } from '../../lab/faults/strategy-faults.ts';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { buildClock } from '../../lab/servers/open.ts';
import { bySize } from '../support/tier.ts';
import { ensureZookeeper } from '../support/zookeeper.ts';

type Cell = readonly [lock: string, fault: string, word: string];
/** Each verdict, and each kind of server. */
const CORE: readonly Cell[] = [
  ['redis-setnx', 'holder-killed', 'stuck'],
  ['redis-owner', 'holder-paused', 'two holders'],
  ['redis', 'holder-paused', 'one holder'],
  ['redis', 'split-brain', 'fenced'],
  ['redlock', 'node-empty-late', 'one holder'],
  ['zookeeper', 'holder-server-cut', 'one holder'],
  ['postgres-row', 'standby-promoted', 'fenced'],
];
const FULL: readonly Cell[] = [
  ...CORE,
  ['redis-watchdog', 'answer-lost', 'one holder'],
  ['redis-watchdog', 'network-silent', 'two holders'],
  ['redis-wait', 'split-brain', 'one holder'],
  ['redlock', 'clock-ahead', 'one holder'],
  ['postgres-advisory', 'synchronous-promoted', 'two holders'],
];
const ALL: readonly Cell[] = [
  ...FULL,
  ['redis-no-owner', 'long-work', 'two holders'],
  ['redis', 'holder-killed', 'one holder'],
  ['redis', 'network-silent', 'one holder'],
  ['redis-fair', 'split-brain', 'fenced'],
  ['redlock', 'node-empty', 'two holders'],
  ['redlock-5', 'network-silent', 'two holders'],
  ['redis-semaphore', 'network-silent', 'two holders'],
  ['zookeeper', 'holder-paused', 'one holder'],
  ['zookeeper', 'network-silent', 'one holder'],
  ['zookeeper', 'leader-cut', 'one holder'],
  ['postgres-row', 'holder-paused', 'one holder'],
  ['postgres-row', 'synchronous-promoted', 'one holder'],
  ['postgres-advisory', 'holder-killed', 'one holder'],
];
type Sale = readonly [strategy: string, fault: string];
const CORE_SALES: readonly Sale[] = [
  ['lua', 'redis-emptied'],
  ['lua', 'postgres-clock'],
  ['group-commit', 'postgres-killed'],
  ['for-update', 'postgres-sync-promoted'],
  ['group-commit', 'disk-full'],
];
const ALL_SALES: readonly Sale[] = [
  ...CORE_SALES,
  ['lua', 'service-killed'],
  ['lua', 'redis-failed-over'],
  ['segmented-lock', 'redis-killed'],
  ['global-lock', 'both-killed'],
  ['for-update', 'postgres-silent'],
];
const LANES = 4;
/** Maximum tries of a cell with late writes: the next client may reconnect too late to overlap. Others are tried once. */
const TRIES = 5;
/** Time for a lock to serve all clients, where it is to do so: a busy machine elects and connects late. */
const PATIENCE_MS = 120_000;

const missing = await ensureZookeeper();
const committed = new URL('../../bench/results/canonical/faults.json', import.meta.url);
const [ofLocks, ofStrategies] = JSON.parse(readFileSync(committed, 'utf8')).matrices as [Matrix, Matrix];

/** The verdict in a committed matrix. */
function wordOf({ columns, rows }: Matrix, name: string, title: string): string | undefined {
  const column = columns.findIndex((one) => one.title === title);
  return rows.find((row) => row.name === name)?.cells[column]?.word;
}

let folder: string;
let clock: string | null;
const lanes = Array.from({ length: LANES }, () => new Clients());
const idle = [...lanes];
const waiting: ((lane: Clients) => void)[] = [];

beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-faults-');
  clock = await buildClock(folder);
});
afterAll(async () => {
  await Promise.all(lanes.map((lane) => lane[Symbol.asyncDispose]()));
  await rm(folder, { recursive: true, force: true });
});

/** Runs `work` on a lane of its own. */
async function withLane<T>(work: (lane: Clients) => Promise<T>): Promise<T> {
  const lane = idle.pop() ?? (await new Promise<Clients>((free) => waiting.push(free)));
  return work(lane).finally(() => {
    const next = waiting.shift();
    if (next === undefined) idle.push(lane);
    else next(lane);
  });
}

describe.concurrent('of the fault lab', { timeout: 600_000 }, () => {
  it.for(bySize({ core: CORE, full: FULL, nightly: ALL }))(
    '%s, %s: %s',
    async ([name, faultName, word], { skip }) => {
      const lock = everyLock.find((one) => one.name === name)!;
      const fault = lockFaults.find((one) => one.name === faultName)!;
      if ((name === 'zookeeper' && missing !== null) || (faultName === 'clock-ahead' && clock === null))
        skip();
      const tries = word === 'two holders' || word === 'fenced' ? TRIES : 1;
      const { signal } = new AbortController();
      const order = { lock, fault, folder: path.join(folder, `${name}-${faultName}`), clock, signal };
      const patience = word === 'stuck' ? {} : { patienceMs: PATIENCE_MS };
      const run = (seed: number) =>
        withLane(async (lane) => {
          const trial = await runLockTrial(lane, { ...order, ...patience, seed });
          return { ...trial, last: lane.events.slice(-4) };
        });
      let trial = await run(1);
      const isMilder = () => trial.word !== word && ['one holder', 'fenced'].includes(trial.word);
      for (let seed = 2; isMilder() && seed <= tries; seed++) trial = await run(seed);
      expect(trial.word, JSON.stringify(trial)).toBe(word);
      expect(wordOf(ofLocks, name, fault.title)).toBe(word);
    },
  );

  it.for(bySize({ core: CORE_SALES, full: CORE_SALES, nightly: ALL_SALES }))(
    '%s, %s: the audit passes',
    async ([strategy, faultName], { skip }) => {
      if (faultName === 'disk-full' && process.getuid?.() !== 0) skip();
      if (faultName === 'postgres-clock' && clock === null) skip();
      const fault = strategyFaults.find((one) => one.name === faultName)!;
      const own = {
        folder: path.join(folder, `${strategy}-${faultName}`),
        signal: new AbortController().signal,
      };
      const order = { strategy, redis: 'single', unsafe: false, env: {}, fault, seed: 1, clock } as const;
      const trial = await withLane(() => runStrategyTrial({ ...order, ...own }));
      expect(trial.findings).toEqual([]);
      expect(trial).toMatchObject({ word: 'kept', errors: 0 });
      expect(wordOf(ofStrategies, strategy, fault.title)).toBe('kept');
    },
  );
});
