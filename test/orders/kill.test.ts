/**
 * The service crashes (SIGKILL) at seeded moments of a running sale, a hundred in the nightly size, just before or after a step of
 * purchase, cancel, expiry, payment, task or of its start, and starts again. P1 to P3, P5 and P6 must hold at once and ever after, P4 within
 * 15 s of a running service. The moments of one strategy follow each other on one service; the strategies run side by side.
 *
 * The quick tier has one moment. KILL_SEED=<seed> npx vitest run --project full test/orders/kill.test.ts repeats one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Crasher, type Moment, momentOf, SEEDS } from '../support/crash-points.ts';
import { Runner } from '../support/runner.ts';
import { bySize, tier } from '../support/tier.ts';
import { CUSTOMERS, everyRole } from '../support/workloads.ts';
import { World } from '../support/world.ts';

/** Bound within which a running process releases what a dead one held: see src/config/limits.ts. */
const RECOVERED_MS = 15_000;
/** A task that a dead worker had claimed is claimed again after 30 s. */
const TASKS_DONE_MS = 120_000;
/** Wait for the moment after the last customer has gone: workers poll once a second. */
const LINGER_MS = 5_000;
/** `lua` crashes right after it sent a commit to Postgres. */
const QUICK_SEED = 14;

const chosen = process.env.KILL_SEED;
/** Spread over the moments, and so over the strategies. */
const some = (count: number) => Array.from({ length: count }, (_, i) => Math.floor((i * SEEDS) / count));
const all = tier === 'full' ? some(bySize({ core: 6, full: 20, nightly: SEEDS })) : [QUICK_SEED];
const seeds = chosen === undefined ? all : [Number(chosen)];

const inWords = (seed: number, { strategy, step, side, nth }: Moment) =>
  `KILL_SEED=${seed}: ${strategy}, ${side} ${step} number ${nth}`;

/** Crashes the service at one moment of a sale. @returns whether the moment came */
async function crashAt(seed: number, world: World, crasher: Crasher, runner: Runner): Promise<boolean> {
  const moment = momentOf(seed);
  const isAmple = seed % 2 === 0;
  const atStart = moment.step === 'start';
  // A crash during a start needs an earlier crash, with orders in progress.
  const first = atStart
    ? { ...moment, step: world.usesRedis ? 'commit-orders' : 'place-batch', nth: 2 }
    : moment;
  let hits = 0;
  const arm = (at: typeof moment) =>
    crasher.arm(at).then(() => {
      hits++;
    });
  await runner.run({
    name: inWords(seed, moment),
    seed,
    stock: isAmple ? CUSTOMERS : 6,
    workload: everyRole,
    async fault(_, work) {
      await Promise.race([arm(first), work.then(() => sleep(LINGER_MS))]);
      crasher.disarm();
      await world.services[0]!.kill();
      if (atStart) void arm(moment);
      await crasher.start();
    },
    check({ ledger }) {
      const refused = ledger.ended('sold-out').length;
      const isEarly = ledger.history.every(({ userId }) => !userId.includes('last'));
      return isAmple && isEarly && refused > 0
        ? [`P4: ${refused} answers of sold out while units were free`]
        : [];
    },
  });
  return hits === (atStart ? 2 : 1);
}

/** Tasks that are not done, not delivered, delivered twice by one process, or without a row. */
async function wrongTasks({ stores }: World, { deliveries }: Crasher): Promise<string[]> {
  const untilMs = performance.now() + TASKS_DONE_MS;
  let tasks: { key: string; state: string }[];
  for (;;) {
    tasks = (await stores.sql.query('SELECT key, state FROM tasks')).rows;
    if (tasks.every(({ state }) => state === 'done') || performance.now() > untilMs) break;
    await sleep(200);
  }
  const wrong = tasks.flatMap(({ key, state }) => {
    const runs = deliveries.filter((delivery) => delivery.key === key).map(({ run }) => run);
    const isRight = state === 'done' && runs.length > 0 && new Set(runs).size === runs.length;
    return isRight ? [] : [`${key} is ${state}, and was delivered by the processes ${runs.join(', ')}`];
  });
  const keys = new Set(tasks.map(({ key }) => key));
  return [...wrong, ...deliveries.filter(({ key }) => !keys.has(key)).map(({ key }) => `${key} has no row`)];
}

describe.concurrent('killed at any moment, every promise is kept', () => {
  const strategies = [...new Set(seeds.map((seed) => momentOf(seed).strategy))];
  it.each(strategies)('%s', { timeout: 1_800_000 }, async (strategy) => {
    await using world = await World.open({ strategy, services: 0, processes: true });
    const service = await world.add();
    await using crasher = await Crasher.open(service);
    await crasher.start();
    const runner = new Runner(world, RECOVERED_MS);
    const missed: number[] = [];
    try {
      for (const seed of seeds.filter((one) => momentOf(one).strategy === strategy))
        if (!(await crashAt(seed, world, crasher, runner))) missed.push(seed);
      runner.note('tasks', await wrongTasks(world, crasher));
      await runner.end();
    } catch (error) {
      (error as Error).message += `\n${service.log.slice(-20).join('\n')}`;
      throw error;
    }
    if (missed.length > 0) console.log(`${strategy}: moments that did not come: ${missed.join(', ')}`);
    expect(runner.findings).toEqual([]);
  });
});
