/**
 * 250 schedules for each lock in which processes crash, pause, and lose their connections: no two holders ever have valid
 * leases at once. The same schedules find overlaps in the locks without this protection.
 *
 * The tests assert safety, which holds at any speed of the machine, and a minimum of activity. A failed schedule is printed
 * with its seed. To replay it alone, repeatedly:
 *
 *   SCHEDULE_SEED=42 npx vitest run test/locks/schedules.test.ts -t redlock
 *
 * Locks that signal the loss before expiry must have no overlap. Of the rungs:
 * - redis-setnx has none either: without an expiry a lock admits no second holder, not even after a dead one.
 * - redis-setnx-expire, redis-no-owner: work longer than the TTL continues beside the next holder, and its late release frees
 *   the next holder's lock.
 * - redis-owner, redis-confirmed: work longer than the TTL continues beside the next holder.
 * - redis-watchdog: a holder that was paused or disconnected for longer than the TTL receives no signal.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LeaseRecord } from '../../lab/clients/protocol.ts';
import { findValkey, whyNoValkey } from '../../lab/servers/valkey.ts';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import type { LockDescription } from '../../src/locks/lock.ts';
import * as postgresAdvisory from '../../src/locks/postgres-advisory.ts';
import * as postgresRow from '../../src/locks/postgres-row.ts';
import * as redis from '../../src/locks/redis.ts';
import * as redisCas from '../../src/locks/redis-cas.ts';
import * as redisFair from '../../src/locks/redis-fair.ts';
import * as redlock from '../../src/locks/redlock.ts';
import * as redisConfirmed from '../../src/locks/rungs/redis-confirmed.ts';
import * as redisNoOwner from '../../src/locks/rungs/redis-no-owner.ts';
import * as redisOwner from '../../src/locks/rungs/redis-owner.ts';
import * as redisSetnx from '../../src/locks/rungs/redis-setnx.ts';
import * as redisSetnxExpire from '../../src/locks/rungs/redis-setnx-expire.ts';
import * as redisWatchdog from '../../src/locks/rungs/redis-watchdog.ts';
import * as zookeeper from '../../src/locks/zookeeper.ts';
import { openIndependent } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { type Outcome, runAll, type Target, Worker } from '../support/schedule-runner.ts';
import { findOverlaps, type Span } from '../support/schedules.ts';
import { openTestStores } from '../support/stores.ts';
import { ensureZookeeper, startZookeeper } from '../support/zookeeper.ts';

const LOCK_TIMEOUT_MS = 1_200_000;
const SCHEDULES = 250;
/** Fewer for an unprotected lock: its overlaps are frequent. */
const RUNG_SCHEDULES = 80;
/** Concurrent schedules per lock; two locks are tested at once. */
const LANES = 20;
const PROCESSES = 4;
const LEASE_MS = [120, 280] as const;
/** A session of ZooKeeper, at least four ticks long. A lease is two thirds of a session. */
const SESSION_MS = 500;
/**
 * For postgres-advisory alone. Its known flaw: a cut connection frees the lock in Postgres at the same moment as it notifies the
 * holder, in either order. The holder's event loop needs a turn to notice, so this many checks after the cut may still read
 * the lease as valid, however slow the machine is and however long the process pauses.
 */
const CHECKS_AFTER_A_CUT = 3;

const missing = await ensureZookeeper();
const noValkey = await whyNoValkey();
const replayed = Number(process.env.SCHEDULE_SEED);
const replay = Number.isSafeInteger(replayed) && replayed > 0;

const stores = opened(openTestStores);
const three = opened(() => openIndependent(redlock.create, 3));
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
  for (const { description } of [redis, redisFair, ...rungs]) {
    const { redisUrl } = stores;
    add(description.name, [portOf(redisUrl)], ([port]) => ({ urls: { redisUrl: at(redisUrl, port!) } }));
  }
  const { databaseUrl } = stores;
  const throughPostgres = ([port]: readonly number[]) => ({ urls: { databaseUrl: at(databaseUrl, port!) } });
  add('postgres-row', [portOf(databaseUrl)], throughPostgres);
  add('postgres-advisory', [portOf(databaseUrl)], throughPostgres, { allowance: CHECKS_AFTER_A_CUT });
  add('redlock', three.ports, (ports) => ({
    urls: { redlockUrls: ports.map((port) => `redis://127.0.0.1:${port}`) },
  }));
  if (noValkey === null) {
    const valkey = await openValkey();
    add('redis-cas', [valkey.port], ([port]) => ({ urls: { redisUrl: at(valkey.url, port!) } }));
  }
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

async function openValkey(): Promise<RedisServer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-valkey-'));
  endings.push(() => rm(folder, { recursive: true, force: true }));
  const server = await startRedisServer({
    ...{ folder, program: await findValkey() },
    args: ['--appendonly', 'no'],
  });
  endings.push(() => server.kill());
  return server;
}

afterAll(async () => {
  for (const end of endings.reverse()) await end();
});

interface Entry {
  readonly description: LockDescription;
}
const safe: readonly Entry[] = [
  redis,
  zookeeper,
  redisCas,
  redisFair,
  postgresRow,
  redlock,
  postgresAdvisory,
];
const rungs: readonly Entry[] = [
  redisSetnx,
  redisSetnxExpire,
  redisNoOwner,
  redisOwner,
  redisConfirmed,
  redisWatchdog,
];

const leasesOf = (outcomes: readonly Outcome[]) =>
  outcomes.flatMap(({ leases }) => leases.map(({ lease }) => lease));
const overlapping = (outcomes: readonly Outcome[]) => outcomes.filter(({ overlaps }) => overlaps.length > 0);

/** Counts of what happened. A pause counts once for each client of a schedule in the paused process. */
function figuresOf(outcomes: readonly Outcome[]) {
  const ended = (end: LeaseRecord['end']) => leasesOf(outcomes).filter((lease) => lease.end === end).length;
  const sum = (what: 'pauses' | 'contended' | 'unavailable') =>
    outcomes.reduce((total, outcome) => total + outcome[what], 0);
  return {
    schedules: outcomes.length,
    leases: leasesOf(outcomes).length,
    released: ended('released'),
    late: ended('late'),
    lost: ended('lost'),
    crashed: ended('crashed'),
    contended: sum('contended'),
    unavailable: sum('unavailable'),
    pauses: sum('pauses'),
    'with two holders': overlapping(outcomes).length,
  };
}
type Figures = Partial<ReturnType<typeof figuresOf>>;

/** The minimum of activity that makes a result meaningful. */
const MINIMUM: Figures = {
  schedules: SCHEDULES,
  leases: 150,
  released: 75,
  lost: 20,
  crashed: 3,
  pauses: 50,
};
const RUNG_MINIMUM: Figures = { schedules: RUNG_SCHEDULES, 'with two holders': 1 };

const missed = (outcomes: readonly Outcome[], minimum: Figures) => {
  const figures = figuresOf(outcomes);
  return Object.entries(minimum).filter(([what, least]) => figures[what as keyof Figures]! < least);
};

/** Tests two locks at once, one on Redis and one elsewhere; further ones queue by kind. */
const running = { redis: Promise.resolve<unknown>(null), other: Promise.resolve<unknown>(null) };

async function oneOfAKind<T>(lock: string, work: () => Promise<T>): Promise<T> {
  const kind = lock.startsWith('red') ? 'redis' : 'other';
  const mine = running[kind].then(work);
  running[kind] = mine.catch(() => {});
  return mine;
}

/** Runs schedules up to the minimum: on a busy machine further ones, fewer at once, up to a limit. */
function outcomesOf(lock: string, minimum: Figures): Promise<Outcome[]> {
  return oneOfAKind(lock, async () => {
    const startMs = performance.now();
    const outcomes: Outcome[] = [];
    for (let lanes = LANES; lanes >= 1 && missed(outcomes, minimum).length > 0; lanes = lanes >> 1) {
      const count = outcomes.length === 0 ? minimum.schedules! : SCHEDULES / 2;
      const seeds = Array.from({ length: count }, (_, i) => (replay ? replayed : outcomes.length + i + 1));
      outcomes.push(...(await runAll(workers, targets.get(lock)!, seeds, lanes)));
      if (replay) break;
    }
    const figures = Object.entries(figuresOf(outcomes)).map(([what, count]) => `${count} ${what}`);
    const tookS = (performance.now() - startMs) / 1_000;
    process.stdout.write(`${lock}: ${figures.join(', ')}; ${tookS.toFixed(1)} s\n`);
    return outcomes;
  });
}

function expectNone(outcomes: readonly Outcome[]): void {
  const found = overlapping(outcomes);
  const reports = found.slice(0, 3).map(({ report }) => report);
  expect(found.length, `two holders at once:\n${reports.join('\n\n')}\n`).toBe(0);
}

describe.concurrent('two valid leases at once', { timeout: LOCK_TIMEOUT_MS }, () => {
  for (const { description } of safe) {
    const { name, capabilities } = description;
    const lacks = { zookeeper: missing, 'redis-cas': noValkey }[name] ?? null;
    it.skipIf(lacks !== null)(`never occur with ${name}`, async () => {
      expect(capabilities).toContain('loss-signalled-before-expiry');
      const outcomes = await outcomesOf(name, MINIMUM);
      expectNone(outcomes);
      if (!replay) expect(missed(outcomes, MINIMUM)).toEqual([]);
    });
  }

  for (const { description } of rungs.filter(({ description: { capabilities } }) =>
    capabilities.includes('expires-after-holder-death'),
  )) {
    it(`are found with ${description.name}`, async () => {
      expect(description.capabilities).not.toContain('loss-signalled-before-expiry');
      const outcomes = await outcomesOf(description.name, RUNG_MINIMUM);
      if (!replay) expect(missed(outcomes, RUNG_MINIMUM)).toEqual([]);
    });
  }

  it('never occur with redis-setnx, which keeps the locks of dead holders for ever', async () => {
    const outcomes = await outcomesOf('redis-setnx', { schedules: RUNG_SCHEDULES, crashed: 1 });
    expectNone(outcomes);
    const look = new Redis(stores.redisUrl);
    const keys = await look.keys('stampede:{redis-setnx-[0-9]*}:lock');
    const leftMs = await Promise.all(keys.map((key) => look.pttl(key)));
    look.disconnect();
    if (!replay) expect(leftMs.filter((ms) => ms === -1).length).toBeGreaterThanOrEqual(1);
  });
});

it('no process of clients printed a warning', () => {
  expect(workers.flatMap(({ clients }) => clients.warnings)).toEqual([]);
});

describe('overlap detection', () => {
  /** A lease that was checked every 2 ms. */
  const lease = (firstMs: number, toMs: number, end: LeaseRecord['end'] = 'lost'): LeaseRecord => ({
    contender: 'a',
    requestedMs: firstMs - 1,
    firstMs,
    latestMs: Array.from({ length: 1 + (toMs - firstMs) / 2 }, (_, i) => firstMs + 2 * i).slice(-16),
    end,
  });
  const judge = (one: LeaseRecord, other: LeaseRecord, cuts: Span[] = [], allowance?: number) =>
    findOverlaps(
      [
        { client: 1, lease: other, cuts: [] },
        { client: 0, lease: one, cuts },
      ],
      allowance,
    ).map(({ holders, fromMs, forMs }) => `${holders.join(' ')} ${fromMs} +${forMs}`);

  it('finds an overlap if a check of one lease lies between two checks of the other', () => {
    expect(judge(lease(100, 200), lease(200, 300))).toEqual([]);
    expect(judge(lease(100, 202), lease(200, 300))).toEqual(['0a 1a 200 +2']);
    expect(judge(lease(100, 400), lease(200, 300))).toEqual(['0a 1a 200 +100']);
    expect(judge(lease(500, 600), lease(200, 300))).toEqual([]);
  });

  it('allows a few checks after a cut, for a holder without a later confirmation', () => {
    const cut = [{ fromMs: 199, toMs: 199.5 }];
    expect(judge(lease(100, 204), lease(201, 300), cut, 3)).toEqual([]);
    expect(judge(lease(100, 204), lease(201, 300), cut)).toEqual(['0a 1a 201 +3']);
    expect(judge(lease(100, 206), lease(201, 300), cut, 3)).toEqual(['0a 1a 201 +5']);
    expect(judge(lease(100, 204, 'released'), lease(201, 300), cut, 3)).toEqual(['0a 1a 201 +3']);
    expect(judge(lease(202, 206), lease(204, 300), [{ fromMs: 150, toMs: 151 }], 3)).toEqual([
      '0a 1a 204 +2',
    ]);
  });
});
