import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LeaseLostError, type Lock } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/postgres-advisory.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { eventually } from '../support/client.ts';
import { TcpProxy } from '../support/proxy.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

let stores: TestStores;
let proxy: TcpProxy;
let mine: PostgresStore;
let theirs: PostgresStore;
/** Two processes, as far as Postgres can tell; the first one's way can be cut. */
let a: Lock;
let b: Lock;

beforeAll(async () => {
  stores = await openTestStores();
  proxy = await TcpProxy.open({ port: Number(new URL(stores.databaseUrl).port) });
  mine = openPostgres(proxy.through(stores.databaseUrl), () => {});
  theirs = openPostgres(stores.databaseUrl, () => {});
  a = await create({ postgres: mine });
  b = await create({ postgres: theirs });
});

afterAll(async () => {
  await a?.close();
  await b?.close();
  await mine?.close();
  await theirs?.close();
  await proxy?.close();
  await stores?.[Symbol.asyncDispose]();
});

async function held(lock: Lock, resource: string, more = {}) {
  const result = await lock.acquire(resource, { ttlMs: 2_000, waitMs: 0, ...more });
  if (result.kind !== 'held') throw new Error(JSON.stringify(result));
  return result.lease;
}

/** Advisory locks in this database: those held, and those waited for. */
async function locks(): Promise<{ held: number; waiting: number }> {
  const { rows } = await stores.sql.query(
    `SELECT count(*) FILTER (WHERE granted)::int AS held, count(*) FILTER (WHERE NOT granted)::int AS waiting
     FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  return rows[0];
}

describe('the advisory lock', () => {
  it('has one contender of a process in Postgres', async () => {
    const lease = await held(b, 'one');
    const waiting = Array.from({ length: 5 }, () => a.acquire('one', { ttlMs: 2_000, waitMs: 600 }));
    await sleep(300);
    expect(await locks()).toEqual({ held: 1, waiting: 1 });
    for (const result of await Promise.all(waiting)) expect(result.kind).toBe('contended');
    await lease.release();
    expect(await locks()).toEqual({ held: 0, waiting: 0 });
  });

  it('waits longer than any statement of the service may', async () => {
    const lease = await held(b, 'long');
    const startMs = performance.now();
    expect((await a.acquire('long', { ttlMs: 1_000, waitMs: 4_000 })).kind).toBe('contended');
    expect(performance.now() - startMs).toBeGreaterThanOrEqual(3_990);
    expect(performance.now() - startMs).toBeLessThan(4_400);
    await lease.release();
  });

  it('leaves nobody waiting in Postgres who was told to stop', async () => {
    const lease = await held(b, 'stop');
    const stop = new AbortController();
    const asking = a.acquire('stop', { ttlMs: 2_000, waitMs: 30_000, signal: stop.signal });
    await eventually(locks, ({ waiting }) => waiting === 1);
    stop.abort();
    expect((await asking).kind).toBe('aborted');
    await eventually(locks, ({ waiting }) => waiting === 0, 1_000);
    await lease.release();
  });

  it('counts a lease that was waited for from when it was granted', async () => {
    const lease = await held(b, 'granted', { ttlMs: 5_000 });
    const asking = held(a, 'granted', { ttlMs: 600, waitMs: 10_000 });
    await sleep(1_500);
    await lease.release();
    const next = await asking;
    expect(next.deadlineMs - performance.now()).toBeGreaterThan(400);
    await sleep(1_000);
    expect(next.signal.aborted).toBe(false);
    expect(await next.release()).toBe(true);
  });

  it('tells the holder at once that its session was ended', async () => {
    const lease = await held(a, 'ended', { ttlMs: 20_000 });
    let lostMs = Number.POSITIVE_INFINITY;
    lease.signal.addEventListener('abort', () => {
      lostMs = performance.now();
    });
    const next = held(b, 'ended', { waitMs: 5_000 }).then((value) => ({ value, atMs: performance.now() }));
    await sleep(200);
    await stores.sql.query(
      `SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = database
       WHERE datname = current_database() AND locktype = 'advisory' AND granted`,
    );
    const { value, atMs } = await next;
    await value.release();
    await expect.poll(() => lease.signal.reason, { timeout: 1_000 }).toBeInstanceOf(LeaseLostError);
    // The known flaw: Postgres tells the holder in the same moment as it frees the lock, and either may hear first.
    expect(lostMs).toBeLessThan(atMs + 250);
    expect(await lease.release()).toBe(false);
  });

  it.each(['refuse', 'black-hole'] as const)(
    'tells the holder before another has the lock: %s',
    async (mode) => {
      const lease = await held(a, mode, { ttlMs: 900 });
      let lostMs = Number.POSITIVE_INFINITY;
      lease.signal.addEventListener('abort', () => {
        lostMs = performance.now();
      });
      const startMs = performance.now();
      proxy.set(mode);
      const next = await held(b, mode, { waitMs: 8_000 });
      const nextMs = performance.now();
      proxy.set('pass');
      await next.release();
      // The known flaw: a connection that is cut ends for both at the same moment, and either may hear first.
      if (mode === 'refuse') await expect.poll(() => lostMs, { timeout: 250 }).toBeLessThan(nextMs + 250);
      else expect(lostMs).toBeLessThan(nextMs);
      // Postgres itself ends a session that it does not hear of any more.
      expect(nextMs - startMs).toBeLessThan(2_000);
      expect(await locks()).toEqual({ held: 0, waiting: 0 });
    },
  );

  it('leaves no session behind when it is closed', async () => {
    const store = openPostgres(stores.databaseUrl, () => {});
    const lock = await create({ postgres: store });
    await held(lock, 'closed');
    const waiting = lock.acquire('closed', { ttlMs: 1_000, waitMs: 30_000 });
    await lock.close();
    expect(await waiting).toEqual({ kind: 'unavailable', reason: 'closed' });
    expect(await locks()).toEqual({ held: 0, waiting: 0 });
    expect((await lock.acquire('closed', { ttlMs: 1_000, waitMs: 0 })).kind).toBe('unavailable');
    await store.close();
  });
});
