/** What the package adds to the locks, on real servers: reentrancy by context, hooks, fences. */
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { ADMITS_LUA, admits, FENCES_SQL } from '../../src/locks/fencing.ts';
import {
  acquireAll,
  type LockHooks,
  LockSetupError,
  NotAcquiredError,
  postgresRowLock,
  redisLock,
  redisSemaphore,
  redlock,
  reentrant,
  using,
  usingAll,
  usingOrThrow,
  zookeeperLock,
} from '../../src/locks/index.ts';
import type { Lease, Lock } from '../../src/locks/lock.ts';
import * as redlockOf from '../../src/locks/redlock.ts';
import { ends, held, kindOf, timed, unlessLate, untilAvailable } from '../contract/lock-steps.ts';
import { ioredis, nodeRedis, reached } from '../support/caller-clients.ts';
import { eventually } from '../support/client.ts';
import { openIndependent } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { openStoresWithRedis } from '../support/stores.ts';

const DOWN = 'redis://127.0.0.1:1';
const OPTIONS = { ttlMs: 60_000, waitMs: 60_000 };
const ONCE = { ttlMs: 60_000, waitMs: 0 };
const stores = opened(openStoresWithRedis);
let redis: Redis;
let lock: Lock;

beforeAll(async () => {
  redis = new Redis(stores.redisUrl);
  lock = await reached(() => redisLock({ redis }));
});
afterAll(async () => {
  await lock?.close();
  redis?.disconnect();
});

it('redlock opens while a minority is down, uses its servers once they are back, and needs a majority', async () => {
  const group = await openIndependent(redlockOf.create, 3);
  const clients = () => group.redis.map(({ url }, i) => (i === 0 ? ioredis(url) : nodeRedis(url)));
  try {
    await group.redis[0]!.kill();
    const quorum = await reached(() => redlock({ redis: clients() }));
    await (await held(quorum, 'two of three')).release();
    await group.restart(0);
    await group.redis[1]!.kill();
    const again = await eventually(
      () => quorum.acquire('two of three', ONCE),
      ({ kind }) => kind === 'held',
    );
    if (again.kind === 'held') await again.lease.release();
    await quorum.close();
    await group.redis[2]!.kill();
    const refusal = () => redlock({ redis: clients() }).then(() => 'open', String);
    await expect.poll(refusal).toContain('2 of the 3 servers are unreachable (connect ECONNREFUSED');
  } finally {
    await group.close();
  }
});

it.each([ioredis, nodeRedis])('redlock rejects with the error of each server (%#)', async (clientOf) => {
  const opening = redlock({ redis: [DOWN, DOWN, DOWN].map((url) => clientOf(url)) });
  const refused = { code: 'ECONNREFUSED' };
  await expect(opening).rejects.toMatchObject({
    name: 'LockSetupError',
    message: '3 of the 3 servers are unreachable (connect ECONNREFUSED 127.0.0.1:1)',
    cause: { name: 'AggregateError', errors: [refused, refused, refused] },
  });
});

it.each([ioredis, nodeRedis])(
  'rejects while its servers are down or silent, and goes on trying nothing (%#)',
  async (clientOf) => {
    const errors: string[] = [];
    const opening = redisLock({
      redis: clientOf(DOWN),
      onError: (doing) => errors.push(doing),
    });
    await expect(opening).rejects.toMatchObject({
      name: 'LockSetupError',
      message: expect.stringContaining('connect ECONNREFUSED 127.0.0.1:1'),
      cause: { code: 'ECONNREFUSED' },
    });
    const before = errors.length;
    await using link = await TcpProxy.to(stores.redisUrl);
    link.set('black-hole');
    for (const url of ['redis+sentinel://127.0.0.1:1/primary', link.through(stores.redisUrl)])
      await expect(redisLock({ redis: clientOf(url) })).rejects.toBeInstanceOf(LockSetupError);
    expect(errors.length).toBe(before); // after several tries, if it went on
  },
);

it('is released when its lock closes, which then grants nothing', async () => {
  const own = await reached(() => redisLock({ redis }));
  await held(own, 'closing');
  await own.close();
  expect(await redis.exists('stampede:{closing}:lock')).toBe(0);
  expect(await own.acquire('closing', ONCE)).toMatchObject({ kind: 'unavailable', reason: 'closed' });
});

describe('options', () => {
  it('have defaults, which a lock and then a call may replace', async () => {
    const own = await redisLock({ redis, ttlMs: 60_000, waitMs: 0 });
    const lease = await held(lock, 'defaults');
    expect(await untilAvailable(() => own.acquire('defaults'))).toEqual({ kind: 'contended' });
    await lease.release();
    expect(own.check('r')).toEqual({ ttlMs: 60_000, waitMs: 0 });
    expect(own.check('r', { waitMs: 7 })).toEqual({ ttlMs: 60_000, waitMs: 7 });
    await own.close();
  });

  const pool = new pg.Pool();
  const none = undefined as never;
  it.each<[string, () => Promise<unknown>]>([
    ['redis', () => redisLock({} as never)],
    ['options', () => redisLock(none)],
    ['ttlMs', () => redisLock({ redis, ttlMs: 1 })],
    ['lockTimeout', () => redisLock({ redis, lockTimeout: 1 } as never)],
    ['permits', () => redisSemaphore({ redis, permits: 0 })],
    ['redis', () => redlock({ redis: [redis, redis] })],
    ['pool', () => postgresRowLock({} as never)],
    ['ttlMs', () => postgresRowLock({ pool, ttlMs: 20 })],
    ['waitMs', () => zookeeperLock({ servers: '127.0.0.1:1', waitMs: -1 })], // before it connects: nothing listens there
    ['sessionMs', () => zookeeperLock({ servers: '127.0.0.1:1', sessionMs: 0 })],
    ['work', () => usingAll(lock, ['x'], {}, none)],
    ['resource', () => using(lock, none, async () => {})],
    ['resource', () => acquireAll(lock, ['x', ''])],
  ])('are refused with an error that names %s (%#)', async (option, call) => {
    await expect(call()).rejects.toMatchObject({
      name: 'LockOptionsError',
      code: 'ERR_STAMPEDE_LOCK_OPTIONS',
      option,
      message: expect.stringContaining(`${option} must be `),
    });
  });
});

it('`usingOrThrow` returns what the work did, and throws what was not acquired', async () => {
  const done = await eventually(
    () => usingOrThrow(lock, 'thrown', async () => 'done').catch((error) => error),
    (result) => result instanceof NotAcquiredError === false,
  );
  expect(done).toMatchObject({ kind: 'done', value: 'done' });
  const lease = await held(lock, 'thrown');
  const refusal = () => usingOrThrow(lock, 'thrown', ONCE, async () => {}).catch((error) => error);
  const error = await eventually(refusal, ({ result }) => result?.kind !== 'unavailable');
  expect(error).toBeInstanceOf(NotAcquiredError);
  expect(error).toMatchObject({
    message: 'thrown was not acquired: contended',
    result: { kind: 'contended' },
  });
  await lease.release();
});

describe('a lock that is reentrant by context', () => {
  it('admits the work that holds it, and nothing beside it', async () => {
    const underLock = reentrant(lock);
    let beside = '';
    const work = async ({ token }: Lease) => {
      const inner = await underLock('reentered', ONCE, async (lease) => lease.token);
      expect(inner).toEqual({ kind: 'done', value: token, ended: 'released' });
      expect(await kindOf({ lock }, 'reentered')).toBe('contended');
      return 'mine';
    };
    const { value: outer, tookMs } = await timed(() =>
      untilAvailable(() => underLock('reentered', OPTIONS, work)),
    );
    const ended = unlessLate(tookMs, 'released', 'unknown');
    expect(outer).toEqual({ kind: 'done', value: 'mine', ended });
    const looking = async () => {
      beside = await kindOf({ lock }, 'reentered');
    };
    const [first] = await Promise.all(
      [looking, async () => {}].map((one) => untilAvailable(() => underLock('reentered', OPTIONS, one))),
    );
    expect([first!.kind, beside]).toEqual(['done', 'contended']);
  });

  it('stays held until nested work that was not awaited is over, and admits none of it later', async () => {
    const underLock = reentrant(lock);
    const events: string[] = [];
    let end: (() => void) | undefined;
    let late = (): Promise<{ kind: string; reason?: string }> => Promise.reject(new Error('not called'));
    const work = async () => {
      void underLock('nested', ONCE, async () => {
        await new Promise<void>((resolve) => {
          end = resolve;
        });
        events.push('nested work');
      });
      const later = () => underLock('nested', ONCE, async () => {});
      const bound = (await import('node:async_hooks')).AsyncResource.bind(later);
      late = bound as typeof late;
    };
    const outer = untilAvailable(() => underLock('nested', OPTIONS, work)).then(({ kind }) =>
      events.push(kind),
    );
    await expect.poll(() => end).toBeDefined();
    end!();
    await outer;
    expect(events).toEqual(['nested work', 'done']);
    const other = await held(lock, 'nested', OPTIONS);
    expect((await untilAvailable(late)).kind).toBe('contended'); // it asks the server, as the lock is another holder's
    await other.release();
  });

  it('does not let a reader write', async () => {
    const underLock = reentrant(lock);
    const reading = async () => {
      expect((await underLock('read', { ...ONCE, mode: 'read' }, async () => {})).kind).toBe('done');
      expect((await untilAvailable(() => underLock('read', ONCE, async () => {}))).kind).toBe('contended');
    };
    const outer = await untilAvailable(() => underLock('read', { ...OPTIONS, mode: 'read' }, reading));
    expect(outer.kind).toBe('done');
  });
});

describe('hooks', () => {
  it('report each acquisition and each end once, and cannot break the lock', async () => {
    const events: string[] = [];
    const hooks: Required<LockHooks> = {
      onError: () => {},
      onAcquire: ({ resource, kind, waitedMs }) => {
        if (kind !== 'unavailable') events.push(`${resource} ${kind} ${waitedMs >= 0}`);
        throw new Error('a hook that throws');
      },
      onEnd: ({ lock: name, ended, heldMs }) => events.push(`${name} ${ended} ${heldMs > 0}`),
    };
    const observed = await redisLock({ redis, ...hooks });
    let tookMs = 0;
    const work = async (first: Lease) => {
      expect(await kindOf({ lock: observed }, 'observed')).toBe('contended');
      await redis.del('stampede:{observed}:lock');
      ({ tookMs } = await timed(() => first.release()));
    };
    await untilAvailable(() => using(observed, 'observed', ONCE, work));
    const lease = await held(observed, 'lost', { ttlMs: 900 });
    await redis.del('stampede:{lost}:lock');
    await expect.poll(() => lease.signal.aborted).toBe(true);
    expect(await lease.release()).toBe('lost');
    expect(events).toEqual([
      'observed held true',
      'observed contended true',
      unlessLate(tookMs, 'redis lost true', 'redis unknown true'),
      'lost held true',
      'redis lost true',
    ]);
    await observed.close();
  });
});

it('a row lock reports that old rows cannot be deleted', async () => {
  const doing: string[] = [];
  const pool = new pg.Pool({ connectionString: stores.ownerUrl, max: 1 });
  const row = await postgresRowLock({ pool, onError: (what) => doing.push(what) });
  await pool.end();
  expect(await row.acquire('unswept', ONCE)).toMatchObject({ kind: 'unavailable' });
  await row.close();
  expect(doing).toEqual(['sweep-lock-rows']);
});

it("a release does not wait for a connection of the caller's pool, and is made once there is one", async () => {
  const pool = new pg.Pool({ connectionString: stores.ownerUrl, max: 1 });
  const row = await postgresRowLock({ pool });
  const lease = await held(row, 'pooled', { ttlMs: 600_000 });
  const busy = await pool.connect();
  expect(await lease.release()).toBe('unknown');
  busy.release();
  const next = await eventually(
    () => row.acquire('pooled', ONCE),
    ({ kind }) => kind === 'held',
  );
  if (next.kind === 'held') await ends(next.lease, 'released');
  await row.close();
  await pool.end();
});

describe('a fence', () => {
  it('in Postgres admits a holder again, and none before it', async () => {
    const pool = stores.sql;
    await pool.query(FENCES_SQL);
    const [first, second] = [1, 2].map((fencingToken) => ({ resource: 'fenced', fencingToken }));
    for (const [lease, isAdmitted] of [
      [first, true],
      [first, true],
      [second, true],
      [first, false],
      [second, true],
    ] as const)
      expect(await admits(pool, lease!)).toBe(isAdmitted);
    await expect(admits(pool, { resource: 'fenced', fencingToken: null })).rejects.toThrow(
      'no fencing token',
    );
  });

  it('in Postgres makes an earlier holder wait for the end of the transaction of a later one', async () => {
    const pool = stores.sql;
    await pool.query(FENCES_SQL);
    const later = await pool.connect();
    await later.query('BEGIN');
    expect(await admits(later, { resource: 'in order', fencingToken: 8 })).toBe(true);
    const earlier = admits(pool, { resource: 'in order', fencingToken: 7 });
    const waiting = async () => (await pool.query(`SELECT FROM pg_locks WHERE NOT granted`)).rowCount;
    await expect.poll(waiting).toBeGreaterThan(0);
    await later.query('COMMIT');
    later.release();
    expect(await earlier).toBe(false);
  });

  it('in Lua admits a holder again, none before it, and one without a token always', async () => {
    const script = `${ADMITS_LUA} return admits(KEYS[1], 'fence', ARGV[1]) and 1 or 0`;
    const answers: unknown[] = [];
    for (const token of [1, 1, 2, 1, 2, 0]) answers.push(await redis.eval(script, 1, 'guarded', token));
    expect(answers).toEqual([1, 1, 1, 0, 1, 1]);
  });
});
