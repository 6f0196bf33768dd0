import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/postgres-row.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';
import { held } from './lock-checks.ts';

const stores = opened(openTestStores);
const mine = opened(() => openPostgres(stores.databaseUrl, () => {}));
const theirs = opened(() => openPostgres(stores.databaseUrl, () => {}));
/** From Postgres's view, two processes. */
const a = opened(() => create({ postgres: mine }));
const b = opened(() => create({ postgres: theirs }));

describe('the lock in a row', () => {
  it('keeps the row and its fence after release and after expiry', async () => {
    for (const fence of [1, 2, 3]) {
      const lease = await held(fence % 2 ? a : b, 'fence');
      expect(lease.fencingToken).toBe(fence);
      await lease.release();
    }
    await stores.sql.query(
      `UPDATE lock_rows SET owner = 'dead', expires_at = clock_timestamp() - interval '1 ms'`,
    );
    expect((await held(a, 'fence')).fencingToken).toBe(4);
  });

  it('decides on expiry by the database clock', async () => {
    await stores.sql.query(
      `INSERT INTO lock_rows VALUES ('dead', 'a process that died', 41, clock_timestamp() + interval '600 ms')`,
    );
    const startMs = performance.now();
    const lease = await held(b, 'dead', { waitMs: 5_000 });
    expect(performance.now() - startMs).toBeGreaterThan(550);
    expect(lease.fencingToken).toBe(42);
  });

  it('neither renews nor releases a lock that another claim took over', async () => {
    const lease = await held(a, 'stolen', { ttlMs: 600 });
    await stores.sql.query(
      `UPDATE lock_rows SET owner = 'thief', fence = 7, expires_at = clock_timestamp() + interval '9 s' WHERE resource = 'stolen'`,
    );
    await sleep(350);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError); // at the first renewal, before its deadline
    expect(await lease.release()).toBe('lost');
    const { rows } = await stores.sql.query(
      `SELECT owner FROM lock_rows WHERE resource = 'stolen' AND expires_at > clock_timestamp() + interval '7 s'`,
    );
    expect(rows).toEqual([{ owner: 'thief' }]);
  });

  it('does not write while it waits', async () => {
    await held(a, 'quiet', { ttlMs: 20_000 });
    const version = () => stores.sql.query(`SELECT xmin, xmax, ctid FROM lock_rows WHERE resource = 'quiet'`);
    const before = (await version()).rows;
    await b.acquire('quiet', { ttlMs: 1_000, waitMs: 300 });
    expect((await version()).rows).toEqual(before);
  });

  it('releases a lock acquired for an aborted wait', async () => {
    const stop = new AbortController();
    const asking = b.acquire('stopped', { ttlMs: 20_000, waitMs: 5_000, signal: stop.signal });
    await new Promise((resolve) => setImmediate(resolve)); // the statement is in flight
    stop.abort();
    expect((await asking).kind).toBe('aborted');
    await (await held(a, 'stopped', { waitMs: 10_000 })).release();
  });

  it('keeps a lease when its connections are terminated', async () => {
    const lease = await held(a, 'ended', { ttlMs: 9_000 });
    await stores.sql.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()',
    );
    const { deadlineMs } = lease;
    await expect.poll(() => lease.deadlineMs).toBeGreaterThan(deadlineMs);
    expect(lease.signal.aborted).toBe(false); // a renewal on a new connection succeeded
    expect(await lease.release()).toBe('released');
  });
});
