/**
 * Schedules for each lock in which processes crash, pause, and lose their connections: no two holders ever have valid
 * leases at once. The same schedules find overlaps in the locks without this protection.
 *
 * The tests assert safety, which holds at any speed of the machine, and a minimum of activity. A failed schedule is printed
 * with its seed. To replay it alone, repeatedly:
 *
 *   SCHEDULE_SEED=42 npx vitest run test/locks/schedules.test.ts -t redlock
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { create as createRedlock } from '../../src/locks/redlock.ts';
import { openIndependent } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { type Outcome, runAll, type Target, Worker } from '../support/schedule-runner.ts';
import { openTestStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';
import { ensureZookeeper, startZookeeper } from '../support/zookeeper.ts';

const LOCK_TIMEOUT_MS = 1_200_000;
const SCHEDULES = bySize({ core: 30, full: 60, nightly: 250 });
/** Fewer for an unprotected lock: its overlaps are frequent. */
const RUNG_SCHEDULES = bySize({ core: 20, full: 30, nightly: 80 });
const isNightly = bySize({ core: false, full: false, nightly: true });
/** One lock for each way to renew and to lose a lease. */
const SAFE = ['redis', 'zookeeper', 'postgres-row', 'redlock', 'postgres-advisory'];
/** One with a late release, and one without a signal. */
const RUNGS = ['redis-no-owner', 'redis-watchdog'];
if (isNightly) SAFE.push('redis-fair');
if (isNightly) RUNGS.push('redis-setnx-expire', 'redis-owner', 'redis-confirmed');
/** Concurrent schedules. */
const LANES = 20;
const PROCESSES = 4;
const LEASE_MS = [120, 280] as const;
/** A session of ZooKeeper, at least four ticks long. A lease is two thirds of a session. */
const SESSION_MS = 500;
/**
 * For postgres-advisory, those that cut no connection of a living process: such a cut frees the lock in Postgres at the same moment as it
 * notifies the holder, in either order.
 */
const WITHOUT_CUTS = { faults: ['crash', 'vanish', 'pause', 'stall'] as const };

const missing = await ensureZookeeper();
const replayed = Number(process.env.SCHEDULE_SEED);
const replay = Number.isSafeInteger(replayed) && replayed > 0;

const stores = opened(openTestStores);
const three = opened(() => openIndependent(createRedlock, 3));
let workers: Worker[];
const targets = new Map<string, Target>();
const endings: (() => PromiseLike<unknown>)[] = [];

beforeAll(async () => {
  workers = Array.from({ length: PROCESSES }, () => new Worker());
  endings.push(() => Promise.all(workers.map(({ clients }) => clients[Symbol.asyncDispose]())));
  const add = (lock: string, ports: readonly number[], servers: Target['servers'], more = {}) =>
    targets.set(lock, { lock, ports, servers, leaseMs: LEASE_MS, ...more });
  const at = (url: string, port: number) => Object.assign(new URL(url), { port: String(port) }).href;
  const portOf = (url: string) => Number(new URL(url).port);
  for (const name of ['redis', 'redis-fair', ...RUNGS]) {
    const { redisUrl } = stores;
    add(name, [portOf(redisUrl)], ([port]) => ({ urls: { redisUrl: at(redisUrl, port!) } }));
  }
  const { databaseUrl } = stores;
  const throughPostgres = ([port]: readonly number[]) => ({ urls: { databaseUrl: at(databaseUrl, port!) } });
  add('postgres-row', [portOf(databaseUrl)], throughPostgres);
  add('postgres-advisory', [portOf(databaseUrl)], throughPostgres, WITHOUT_CUTS);
  add('redlock', three.ports, (ports) => ({
    urls: { redlockUrls: ports.map((port) => `redis://127.0.0.1:${port}`) },
  }));
  if (missing !== null) return;
  const server = await startZookeeper({ tickMs: SESSION_MS / 4 });
  endings.push(() => server[Symbol.asyncDispose]());
  const throughZookeeper = ([port]: readonly number[]) => ({
    urls: { zookeeperUrl: `127.0.0.1:${port}` },
    ttlMs: SESSION_MS,
  });
  const leaseMs = Math.floor((SESSION_MS * 2) / 3);
  add('zookeeper', [server.port], throughZookeeper, { leaseMs: [leaseMs, leaseMs] });
});

afterAll(async () => {
  for (const end of endings.reverse()) await end();
});

/** What happened. A pause counts once for each client of a schedule in the paused process. */
const eventsOf = ({ leases, pauses, overlaps }: Outcome) => [
  'schedules',
  ...leases.flatMap(({ lease }) => ['leases', lease.end]),
  ...Array<string>(pauses).fill('pauses'),
  ...(overlaps.length > 0 ? ['with two holders'] : []),
];
type Figures = Readonly<Record<string, number>>;

/** The minimum of activity that makes a result meaningful. */
const MINIMUM: Figures = {
  schedules: SCHEDULES,
  leases: 0.6 * SCHEDULES,
  released: 0.3 * SCHEDULES,
  lost: 0.08 * SCHEDULES,
  crashed: 1,
  pauses: 0.2 * SCHEDULES,
};
const RUNG_MINIMUM: Figures = { schedules: RUNG_SCHEDULES, 'with two holders': 1 };

const missed = (outcomes: readonly Outcome[], minimum: Figures) => {
  const events = outcomes.flatMap(eventsOf);
  return Object.entries(minimum).filter(
    ([what, least]) => events.filter((one) => one === what).length < least,
  );
};

/** Runs schedules up to the minimum: on a busy machine further ones, fewer at once, up to a limit. */
async function outcomesOf(lock: string, minimum: Figures): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let lanes = LANES; lanes >= 1 && missed(outcomes, minimum).length > 0; lanes = lanes >> 1) {
    const count = outcomes.length === 0 ? minimum.schedules! : SCHEDULES / 2;
    const seeds = Array.from({ length: count }, (_, i) => (replay ? replayed : outcomes.length + i + 1));
    outcomes.push(...(await runAll(workers, targets.get(lock)!, seeds, lanes)));
    if (replay) break;
  }
  return outcomes;
}

describe('two valid leases at once', { timeout: LOCK_TIMEOUT_MS }, () => {
  it.for(SAFE)('never occur with %s', async (name, { skip }) => {
    skip(name === 'zookeeper' && missing !== null, missing ?? '');
    const outcomes = await outcomesOf(name, MINIMUM);
    const found = JSON.stringify(outcomes.filter(({ overlaps }) => overlaps.length > 0).slice(0, 3), null, 1);
    expect(found, 'two holders at once').toBe('[]');
    if (!replay) expect(missed(outcomes, MINIMUM)).toEqual([]);
  });

  it.each(RUNGS)('are found with %s', async (name) => {
    const outcomes = await outcomesOf(name, RUNG_MINIMUM);
    if (!replay) expect(missed(outcomes, RUNG_MINIMUM)).toEqual([]);
  });
});

it('no process of clients printed a warning', () => {
  expect(workers.flatMap(({ clients }) => clients.warnings)).toEqual([]);
});
