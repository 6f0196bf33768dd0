import { describe, expect, it } from 'vitest';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/postgres-row.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { ends, PATIENCE_MS } from '../contract/lock-steps.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';
import { held, renewed } from './lock-checks.ts';

const stores = opened(openTestStores);
const mine = opened(() => openPostgres(stores.databaseUrl, () => {}));
const theirs = opened(() => openPostgres(stores.databaseUrl, () => {}));
/** From Postgres's view, two processes. */
const a = opened(() => create({ postgres: mine }));
const b = opened(() => create({ postgres: theirs }));

describe('the lock in a row', () => {
  it('keeps the row and its fence after release and after expiry', async () => {
    let fence = 0;
    for (const lock of [a, b, a]) {
      const lease = await held(lock, 'fence');
      expect(lease.fencingToken).toBeGreaterThan(fence);
      fence = lease.fencingToken!;
      await ends(lease, 'released');
    }
    await stores.sql.query(
      `UPDATE lock_rows SET owner = 'dead', expires_at = clock_timestamp() - interval '1 ms'`,
    );
    expect((await held(a, 'fence')).fencingToken).toBeGreaterThan(fence);
  });

  it('decides on expiry by the database clock', async () => {
    const startMs = performance.now();
    await stores.sql.query(
      `INSERT INTO lock_rows VALUES ('dead', 'a process that died', 41, clock_timestamp() + interval '600 ms')`,
    );
    const lease = await held(b, 'dead', { waitMs: PATIENCE_MS });
    expect(performance.now() - startMs).toBeGreaterThan(550);
    expect(lease.fencingToken).toBeGreaterThan(41);
  });

  it('neither renews nor releases a lock that another claim took over', async () => {
    const lease = await held(a, 'stolen', { ttlMs: 30_000 });
    const { deadlineMs } = lease;
    await stores.sql.query(
      `UPDATE lock_rows SET owner = 'thief', fence = 7, expires_at = clock_timestamp() + interval '1 hour' WHERE resource = 'stolen'`,
    );
    await expect.poll(() => lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(lease.deadlineMs).toBeLessThan(deadlineMs); // lost at a renewal, before its deadline
    expect(await lease.release()).toBe('lost');
    const { rows } = await stores.sql.query(
      `SELECT owner FROM lock_rows WHERE resource = 'stolen' AND expires_at > clock_timestamp() + interval '50 min'`,
    );
    expect(rows).toEqual([{ owner: 'thief' }]);
  });

  it('does not write while it waits', async () => {
    await held(a, 'quiet');
    const version = () => stores.sql.query(`SELECT xmin, xmax, ctid FROM lock_rows WHERE resource = 'quiet'`);
    const before = (await version()).rows;
    await b.acquire('quiet', { ttlMs: 1_000, waitMs: 300 });
    expect((await version()).rows).toEqual(before);
  });

  it('releases a lock acquired for an aborted wait', async () => {
    const stop = new AbortController();
    const asking = b.acquire('stopped', { ttlMs: 600_000, waitMs: 5_000, signal: stop.signal });
    await new Promise((resolve) => setImmediate(resolve)); // the statement is in flight
    stop.abort();
    expect((await asking).kind).toBe('aborted');
    await (await held(a, 'stopped', { waitMs: PATIENCE_MS })).release();
  });

  it('keeps a lease when its connections are terminated', async () => {
    const lease = await held(a, 'ended', { ttlMs: 15_000 });
    await stores.sql.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()',
    );
    await renewed(lease); // on a new connection
    await ends(lease, 'released');
  });
});
