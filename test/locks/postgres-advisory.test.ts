import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { limits } from '../../src/config/limits.ts';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/postgres-advisory.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { watchLoss } from '../contract/lock-steps.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';
import { held } from './lock-checks.ts';

const stores = opened(openTestStores);
const proxy = opened(() => TcpProxy.open({ port: Number(new URL(stores.databaseUrl).port) }));
const mine = opened(() => openPostgres(proxy.through(stores.databaseUrl), () => {}));
const theirs = opened(() => openPostgres(stores.databaseUrl, () => {}));
/** From Postgres's view, two processes; the first connects through the proxy. */
const a = opened(() => create({ postgres: mine }));
const b = opened(() => create({ postgres: theirs }));

/** Counts this database's advisory locks, held and waited for. */
async function locks(): Promise<{ held: number; waiting: number }> {
  const { rows } = await stores.sql.query(
    `SELECT count(*) FILTER (WHERE granted)::int AS held, count(*) FILTER (WHERE NOT granted)::int AS waiting
     FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  );
  return rows[0];
}

describe('the advisory lock', () => {
  it('sends one contender per process to Postgres', async () => {
    const lease = await held(b, 'one');
    const waiting = Array.from({ length: 5 }, () => a.acquire('one', { ttlMs: 2_000, waitMs: 2_000 }));
    await expect.poll(async () => (await locks()).waiting).toBeGreaterThan(0);
    await sleep(300); // time for the others, if they were sent
    expect(await locks()).toEqual({ held: 1, waiting: 1 });
    for (const result of await Promise.all(waiting)) expect(result.kind).toBe('contended');
    await lease.release();
    expect(await locks()).toEqual({ held: 0, waiting: 0 });
  });

  it('waits for waitMs while every connection has a lease', async () => {
    const leases = await Promise.all(Array.from({ length: 16 }, (_, i) => held(b, `full-${i}`)));
    expect(await b.acquire('next', { ttlMs: 2_000, waitMs: 0 })).toMatchObject({ reason: 'too-many-leases' });
    const stop = new AbortController();
    const aborted = b.acquire('next', { ttlMs: 2_000, waitMs: 60_000, signal: stop.signal });
    stop.abort();
    expect((await aborted).kind).toBe('aborted');
    const waiting = b.acquire('next', { ttlMs: 2_000, waitMs: 60_000 });
    await sleep(limits.postgresConnectMs + 500); // the pool's own timeout would have passed
    await leases[0]!.release();
    const result = await waiting;
    expect(result.kind).toBe('held');
    for (const lease of leases) await lease.release();
    if (result.kind === 'held') await result.lease.release();
  });

  it("waits longer than the service's statement timeout", async () => {
    const lease = await held(b, 'long');
    const startMs = performance.now();
    expect((await a.acquire('long', { ttlMs: 1_000, waitMs: 4_000 })).kind).toBe('contended');
    expect(performance.now() - startMs).toBeGreaterThanOrEqual(3_990);
    await lease.release();
  });

  it('cancels an aborted wait in Postgres', async () => {
    const lease = await held(b, 'stop');
    const stop = new AbortController();
    const asking = a.acquire('stop', { ttlMs: 2_000, waitMs: 30_000, signal: stop.signal });
    await expect.poll(locks).toMatchObject({ waiting: 1 });
    stop.abort();
    expect((await asking).kind).toBe('aborted');
    await expect.poll(locks).toMatchObject({ waiting: 0 });
    await lease.release();
  });

  it('counts a lease after a wait from its grant', async () => {
    const lease = await held(b, 'granted', { ttlMs: 5_000 });
    const asking = held(a, 'granted', { ttlMs: 600, waitMs: 10_000 });
    await sleep(1_500);
    await lease.release();
    const next = await asking;
    expect(next.deadlineMs - performance.now()).toBeGreaterThan(400);
    await sleep(1_000);
    expect(next.signal.aborted).toBe(false);
    expect(await next.release()).toBe('released');
  });

  it('signals the loss when its session is terminated', async () => {
    const lease = await held(a, 'ended', { ttlMs: 20_000 });
    const loss = watchLoss(lease);
    const next = held(b, 'ended', { waitMs: 5_000 }).then((value) => ({ value, atMs: performance.now() }));
    await sleep(200);
    await stores.sql.query(
      `SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = database
       WHERE datname = current_database() AND locktype = 'advisory' AND granted`,
    );
    const { value, atMs } = await next;
    await value.release();
    await expect.poll(() => lease.signal.reason).toBeInstanceOf(LeaseLostError);
    // The known flaw: Postgres frees the lock and closes the connection at the same moment, in either order.
    expect(loss.lostMs).toBeLessThan(atMs + 5_000);
    expect(await lease.release()).toBe('lost');
  });

  it.each(['refuse', 'black-hole'] as const)(
    'signals the loss before another claim is granted: %s',
    async (mode) => {
      const lease = await held(a, mode, { ttlMs: 900 });
      const loss = watchLoss(lease);
      proxy.set(mode);
      const next = await held(b, mode, { waitMs: 20_000 }); // Postgres itself ends a silent session
      const nextMs = performance.now();
      proxy.set('pass');
      await next.release();
      // The known flaw: a cut connection ends for both sides at the same moment, in either order.
      if (mode === 'refuse') await expect.poll(() => loss.lostMs).toBeLessThan(nextMs + 5_000);
      else expect(loss.lostMs).toBeLessThan(nextMs);
      expect(await locks()).toEqual({ held: 0, waiting: 0 });
    },
  );

  it('leaves no session behind when it closes', async () => {
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
