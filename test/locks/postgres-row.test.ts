import { describe, expect, it } from 'vitest';
import { LeaseLostError } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/postgres-row.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { ends, held, PATIENCE_MS } from '../contract/lock-steps.ts';
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
