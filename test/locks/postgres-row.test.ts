import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { fromPool } from '../../src/locks/adapters/pg.ts';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/postgres-row.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { ends, held, PATIENCE_MS, renewed } from '../contract/lock-steps.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const mine = opened(() => openPostgres(stores.databaseUrl, () => {}));
const theirs = opened(() => openPostgres(stores.databaseUrl, () => {}));
/** From Postgres's view, two processes. */
const a = opened(() => create({ postgres: mine }));
const b = opened(() => create({ postgres: theirs }));

describe('the lock in a row', () => {
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

  it('keeps a lease when its connections are terminated', async () => {
    const lease = await held(a, 'ended', { ttlMs: 15_000 });
    await stores.sql.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()',
    );
    await renewed(lease); // on a new connection
    await ends(lease, 'released');
  });

  it('sends nothing for an acquisition that has failed or was aborted before it had a connection', async () => {
    const pool = new pg.Pool({ connectionString: stores.databaseUrl, max: 1, connectionTimeoutMillis: 200 });
    const lock = await create({ postgres: fromPool(pool) });
    const busy = await pool.connect();
    const options = { ttlMs: 600_000, waitMs: 0 };
    expect((await lock.acquire('no connection', options)).kind).toBe('unavailable');
    await new Promise((resolve) => setImmediate(resolve));
    expect(pool.waitingCount).toBe(0); // no release
    const stop = new AbortController();
    const aborted = lock.acquire('no connection', { ...options, signal: stop.signal });
    await expect.poll(() => pool.waitingCount).toBe(1);
    stop.abort();
    busy.release();
    expect(await aborted).toEqual({ kind: 'aborted' });
    await lock.close();
    const { rows } = await pool.query(`SELECT FROM lock_rows WHERE resource = 'no connection'`);
    expect(rows).toEqual([]);
    await pool.end();
  });

  it('pauses twice as long before each further release of an acquisition that may never have run', async () => {
    await using link = await TcpProxy.to(stores.databaseUrl);
    const postgres = openPostgres(link.through(stores.databaseUrl), () => {});
    const lock = await create({ postgres });
    await (await held(lock, 'connected')).release();
    link.set('lose-requests');
    expect((await lock.acquire('lost', { ttlMs: 600_000, waitMs: 0 })).kind).toBe('unavailable');
    link.set('pass');
    const atMs: number[] = [];
    link.watch = (request) => {
      if (request.includes('lock-release')) atMs.push(performance.now());
      return 'pass';
    };
    await expect.poll(() => atMs.length).toBeGreaterThan(4);
    const pausesMs = atMs.slice(1, 5).map((ms, i) => ms - atMs[i]!);
    for (const [i, ms] of pausesMs.entries()) expect(ms).toBeGreaterThan(45 * 2 ** i);
    await lock.close();
    await postgres.close();
  });

  it('deletes rows that nothing needs, and keeps tokens growing', async () => {
    const fences = new Map<string, number>();
    for (const resource of ['old', 'died', 'recent']) {
      const lease = await held(a, resource, { ttlMs: 600_000 });
      fences.set(resource, lease.fencingToken!);
      if (resource !== 'died') await ends(lease, 'released');
    }
    const age = (resource: string) =>
      stores.sql.query(
        `UPDATE lock_rows SET expires_at = expires_at - interval '49 hours' WHERE resource = $1`,
        [resource],
      );
    for (const resource of ['old', 'died']) await age(resource);
    await stores.sql.query(
      `INSERT INTO lock_rows VALUES ('counted', 'an earlier version', 3, '-infinity'), ('held', 'me', 1, 'infinity')`,
    );
    const lock = await create({ postgres: mine });
    await (await held(lock, 'another')).release();
    const rows = async () => {
      const { rows } = await stores.sql.query(
        `SELECT resource FROM lock_rows WHERE resource IN ('old', 'died', 'recent', 'counted', 'held') ORDER BY 1`,
      );
      return rows.map(({ resource }) => resource);
    };
    await expect.poll(rows).toEqual(['counted', 'held', 'recent']);
    for (const [resource, fence] of fences)
      if (resource !== 'recent') expect((await held(lock, resource)).fencingToken).toBeGreaterThan(fence);
    await stores.sql.query(`UPDATE lock_rows SET fence = 2 ^ 52 WHERE resource = 'recent'`); // the clock is set back
    expect((await held(lock, 'recent')).fencingToken).toBe(2 ** 52 + 1);
    await lock.close();
  });
});
