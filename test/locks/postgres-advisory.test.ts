import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/postgres-advisory.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import {
  ends,
  held,
  once,
  PATIENCE_MS,
  renewed,
  timed,
  untilAvailable,
  watchLoss,
} from '../contract/lock-steps.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const mine = opened(() => openPostgres(stores.databaseUrl, () => {}));
const theirs = opened(() => openPostgres(stores.databaseUrl, () => {}));
/** From Postgres's view, two processes. */
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
  it('waits for waitMs while every connection has a lease', async () => {
    const leases = await Promise.all(Array.from({ length: 16 }, (_, i) => held(b, `full-${i}`)));
    expect(await b.acquire('next', once)).toMatchObject({ reason: 'too-many-leases' });
    const stop = new AbortController();
    const aborted = b.acquire('next', { ...once, waitMs: PATIENCE_MS, signal: stop.signal });
    stop.abort();
    expect((await aborted).kind).toBe('aborted');
    const waiting = held(b, 'next', { waitMs: PATIENCE_MS });
    await sleep(limits.postgresConnectMs + 500); // the pool's own timeout would have passed
    await leases[0]!.release();
    for (const lease of [await waiting, ...leases]) await lease.release();
  });

  it("waits longer than the service's statement timeout", async () => {
    const lease = await held(b, 'long');
    const wait = async () => {
      const { value, tookMs } = await timed(() => a.acquire('long', { ...once, waitMs: 4_000 }));
      return { kind: value.kind, tookMs };
    };
    const { kind, tookMs } = await untilAvailable(wait);
    expect(kind).toBe('contended');
    expect(tookMs).toBeGreaterThanOrEqual(3_990);
    await lease.release();
  });

  it('counts a lease after a wait from its grant', async () => {
    const ttlMs = 15_000;
    const lease = await held(b, 'granted');
    const asking = held(a, 'granted', { ttlMs, waitMs: PATIENCE_MS });
    await expect.poll(locks).toMatchObject({ waiting: 1 });
    const releasedMs = performance.now();
    await lease.release();
    const next = await asking;
    // Minus the margin for the drift of clocks.
    expect(next.deadlineMs).toBeGreaterThan(releasedMs + ttlMs * 0.99 - 2);
    await renewed(next);
    await ends(next, 'released');
  });

  it('signals the loss when its session is terminated', async () => {
    const lease = await held(a, 'ended');
    const loss = watchLoss(lease);
    const { deadlineMs } = lease;
    const next = held(b, 'ended', { waitMs: PATIENCE_MS });
    await expect.poll(locks).toMatchObject({ waiting: 1 });
    await stores.sql.query(
      `SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = database
       WHERE datname = current_database() AND locktype = 'advisory' AND granted`,
    );
    await (await next).release();
    // The known flaw: Postgres frees the lock and closes the connection at the same moment, in either order.
    await expect.poll(() => loss.lostMs).toBeLessThan(deadlineMs);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(await lease.release()).toBe('lost');
  });

  it('cancels all waits, and releases its leases, when it closes', async () => {
    // By default pg waits for a connection without end.
    const pool = new pg.Pool({ connectionString: stores.databaseUrl });
    const lock = await create({ postgres: { pool, explain: theirs.explain } });
    const resources = Array.from({ length: 15 }, (_, i) => `waits-${i}`);
    await held(lock, 'mine');
    const leases = await Promise.all(resources.map((resource) => held(b, resource)));
    const waiting = resources.map((resource) =>
      untilAvailable(() => lock.acquire(resource, { ...once, waitMs: 150_000 }), 'closed'),
    );
    await expect.poll(locks).toEqual({ held: 16, waiting: 15 });
    await lock.close();
    for (const answer of await Promise.all(waiting))
      expect(answer).toEqual({ kind: 'unavailable', reason: 'closed' });
    await expect.poll(locks).toEqual({ held: 15, waiting: 0 });
    for (const lease of leases) await lease.release();
    await pool.end();
  });
});
