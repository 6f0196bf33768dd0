/**
 * `npm run bench -- points`: points awarded under a lock with a check for repeats, and by the unique key alone.
 *
 *   award (all new) ─▶ repeat (the same again) ─▶ race (one award from all clients at once, while locks are lost) ─▶ duplicates
 *
 * `lock-alone` has the lock and the check, but no unique key: the race must give it duplicates.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { nowNs } from '../../../lab/kit/monotonic.ts';
import { type Program, startProgram } from '../../../lab/kit/processes.ts';
import { withPostgres, withRedis } from '../../../lab/servers/stores.ts';
import { migrate } from '../../../src/store/postgres/migrate.ts';
import { bars, ranking } from '../../kit/charts.ts';
import type { Environment } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { optionsOf, sized, usually } from '../../kit/options.ts';
import type { Bare, CellBase, Suite, Trial, TrialBase } from '../../kit/suite.ts';
import type { Awarding, FromAwardClient, ToAwardClient } from './award-client.ts';

interface PointsResult extends TrialBase {
  readonly awardsPerSecond: number;
  readonly repeatsPerSecond: number;
  /** Entries beyond the first of their source. */
  readonly duplicates: number;
  /** Awards that were answered busy, before the race. */
  readonly refused: number;
  /** How often a held lock was deleted in the race. */
  readonly lostLocks: number;
}

interface PointsCell extends CellBase {
  readonly lock: string | null;
  readonly uniqueKey: boolean;
}

const suiteOptions = optionsOf(
  {
    processes: usually(sized('wholes', 1, 16, 'how many processes'), '1,8', '2'),
    clients: usually(sized('whole', 1, 256, 'clients of all processes together'), '16'),
    duration: usually(sized('seconds', 0.1, 60, 'of each of the three phases'), '3', '1'),
  },
  ({ duration: durationMs, ...counts }) => ({ ...counts, durationMs }),
);
type Options = ReturnType<typeof suiteOptions.read>;

const cell = (name: string, lock: string | null, uniqueKey: boolean, summary: string): PointsCell => ({
  ...{ name, lock, uniqueKey, summary, unsafe: !uniqueKey, control: false },
});
const alone = 'The same without the unique key: it must be seen to award twice when the lock is lost.';
const cells: readonly PointsCell[] = [
  cell('unique-key', null, true, 'Insert; the unique key rejects a repeat.'),
  cell('lock', 'redis', true, 'Read and insert under LOCK=redis; the unique key is still there.'),
  cell('lock-alone', 'redis', false, alone),
];

type AwardClient = Program<ToAwardClient, FromAwardClient>;
const isReady = (message: FromAwardClient) => message.kind === 'ready';
const isAwarded = (message: FromAwardClient) => message.kind === 'awarded';

const leadMs = 30;
const loseEveryMs = 1;
/** Most races of `lock-alone`, until it has awarded twice: one may be too short on a busy machine. */
const mostRaces = 10;

/** Deletes all locks until the signal fires. @returns how many */
async function loseLocks(redis: Redis, signal: AbortSignal): Promise<number> {
  let lost = 0;
  while (!signal.aborted) {
    const keys = await redis.keys('stampede:{points:*}:lock');
    if (keys.length > 0) lost += await redis.del(...keys);
    await sleep(loseEveryMs);
  }
  return lost;
}

async function measure(
  processes: readonly AwardClient[],
  phase: Awarding['phase'],
  { durationMs, clients }: Options,
  signal: AbortSignal,
) {
  const startNs = nowNs() + leadMs * 1e6;
  const span = { startNs, endNs: startNs + durationMs * 1e6 };
  const done = await Promise.all(
    processes.map((process, n) => {
      const all = Array.from({ length: clients }, (_, client) => client);
      const own = all.filter((client) => client % processes.length === n);
      process.send({ kind: 'award', phase, ...span, clients: own });
      return process.receive(isAwarded, { signal });
    }),
  );
  const sum = (what: 'added' | 'repeated' | 'refused') => done.reduce((all, one) => all + one[what], 0);
  return { added: sum('added'), repeated: sum('repeated'), refused: sum('refused') };
}

const countDuplicates = async (url: string): Promise<number> => {
  const count = `SELECT (count(*) - count(DISTINCT (user_id, source_type, source_id)))::int AS n FROM points_entries`;
  return (await withPostgres(url, (client) => client.query(count))).rows[0].n;
};

async function runTrial(
  { cell, point, number }: Trial<PointsCell>,
  options: Options,
  { stores: allStores, signal }: Environment,
  onStep: (step: string) => void,
): Promise<Bare<PointsResult>> {
  onStep('starting');
  await using stores = await (await allStores()).fresh(String(number));
  await migrate(stores.databaseUrl);
  if (!cell.uniqueKey)
    await withPostgres(stores.databaseUrl, (client) =>
      client.query(
        'DROP INDEX points_entries_one_per_source; CREATE INDEX ON points_entries (user_id, source_type, source_id)',
      ),
    );
  const { databaseUrl, redisUrl } = stores;
  const workers = Array.from({ length: point.processes! }, () =>
    startProgram<ToAwardClient, FromAwardClient>('award-client'),
  );
  try {
    for (const worker of workers) worker.send({ kind: 'guard', databaseUrl, redisUrl, lock: cell.lock });
    await Promise.all(workers.map((worker) => worker.receive(isReady, { signal })));
    const seconds = options.durationMs / 1_000;
    onStep('awarding');
    const awards = await measure(workers, 'award', options, signal);
    onStep('repeating');
    const repeats = await measure(workers, 'repeat', options, signal);
    onStep('racing while locks are lost');
    const races = cell.unsafe && point.processes! > 1 ? mostRaces : 1;
    let [lostLocks, duplicates] = [0, 0];
    for (let n = 0; n < races && duplicates === 0; n++) {
      const end = new AbortController();
      const losing = withRedis(redisUrl, (redis) => loseLocks(redis, end.signal));
      await measure(workers, 'race', options, signal).finally(() => end.abort());
      lostLocks += await losing;
      duplicates = await countDuplicates(databaseUrl);
    }
    return {
      point,
      awardsPerSecond: awards.added / seconds,
      repeatsPerSecond: repeats.repeated / seconds,
      duplicates,
      refused: awards.refused + repeats.refused,
      lostLocks,
      invalid: [],
      findings: duplicates === 0 ? [] : [`${duplicates} duplicates after ${lostLocks} locks were lost`],
    };
  } finally {
    await Promise.all(workers.map((worker) => worker[Symbol.asyncDispose]()));
  }
}

const rows: readonly MetricRow<PointsResult>[] = [
  ['awardsPerSecond', 'awards/s', '/s', '+', (r) => r.awardsPerSecond],
  ['repeatsPerSecond', 'repeats/s', '/s', '+', (r) => r.repeatsPerSecond],
  ['duplicates', 'duplicates', '', '-', (r) => r.duplicates],
  ['lostLocks', 'locks lost', '', '', (r) => r.lostLocks],
  ['refused', 'busy', '', '-', (r) => r.refused],
];
const metrics = metricsOf(rows, {
  awardsPerSecond: 'New awards a second; no two clients award the same source.',
  repeatsPerSecond: 'The same awards again, a second.',
  duplicates: 'Entries beyond the first of their source, after the race.',
  lostLocks: 'Held locks that were deleted in Redis during the race.',
  refused: 'Awards that waited 10 s for the lock.',
});

export const pointsSuite: Suite<Options, PointsCell, PointsResult> = {
  name: 'points',
  title: 'Compares points awarded by the unique key and under a lock, also while locks are lost.',
  help: 'Stores as for npm run bench. LOCK is redis.',
  ...suiteOptions,
  rounds: 5,
  async plan({ processes, ...shown }) {
    const points = processes.map((count) => ({ processes: count }));
    return { cells, points, baseline: 'unique-key', control: true, ladder: null, shown };
  },
  async open(options, environment) {
    return {
      generator: 'clients of the ledger in processes of their own, each with one award at a time',
      runTrial: (trial, onStep) => runTrial(trial, options, environment, onStep),
    };
  },
  metrics,
  verdict({ duplicates, point }, { unsafe }) {
    // Within one process the lock's local queue serializes awards, whatever Redis loses.
    if (unsafe && point.processes === 1) return null;
    return duplicates === 0 ? 'pass' : 'fail';
  },
  report: {
    title: 'Points by the unique key and under a lock',
    lead: 'awardsPerSecond',
    leadText: 'awards a second',
    noun: 'guard',
    columns: metrics.map(({ key }) => key),
    passed: 'awarded every source once',
    axes: { processes: { title: 'processes', unit: '' } },
    sections: [
      {
        title: 'Awards a second',
        text: 'Each client awards points to a different user, so that none waits for the lock of another.',
        charts: [
          ranking('awardsPerSecond'),
          bars('Awards and repeats a second', 'awardsPerSecond', 'repeatsPerSecond'),
        ],
      },
    ],
    notes: [
      'In the race all clients send the same award, a new one every 3 ms, while every lock is deleted in Redis about every millisecond: as after a failover that lost it. Within one process the local queue of the lock still keeps awards apart.',
    ],
  },
};
