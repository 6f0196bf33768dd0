/** Awards under a lock: the lock alone prevents duplicates only while it has one holder; the unique key always does. */
import { describe, expect, it } from 'vitest';
import { type GuardedLedger, openGuardedLedger } from '../../bench/suites/points/guard.ts';
import { openScene } from '../support/scene.ts';

const scene = openScene();
const awardTo = (userId: string) => ({ userId, sourceType: 'review', sourceId: '42', points: 30 });

const open = async (lock: string | null, databaseUrl = scene.stores.databaseUrl): Promise<GuardedLedger> =>
  scene.kept(await openGuardedLedger({ databaseUrl, redisUrl: scene.stores.redisUrl, lock }));

/** The first award's insert waits, under the lock, until `meanwhile` is done. */
async function whileInserting<T>(userId: string, meanwhile: (other: GuardedLedger) => Promise<T>) {
  const proxy = await scene.proxyTo(scene.stores.databaseUrl);
  const slow = await open('redis', proxy.through(scene.stores.databaseUrl));
  const other = await open('redis');
  const inserting = proxy.holdRequest('award-points');
  const first = slow.award(awardTo(userId), 500);
  await inserting;
  const second = await meanwhile(other).finally(() => proxy.release());
  return [await first, second] as const;
}

async function loseLocks(): Promise<void> {
  const { redis } = scene.stores;
  expect(await redis.del(...(await redis.keys('stampede:{points:*')))).toBeGreaterThan(0);
}

const entriesOf = async (userId: string) =>
  (await scene.stores.sql.query('SELECT FROM points_entries WHERE user_id = $1', [userId])).rowCount;

describe('a lock for points', () => {
  it.each([null, 'redis', 'postgres-row'])(
    '%s: adds an award once, however often it is sent',
    async (lock) => {
      const ledger = await open(lock);
      const results = await Promise.all(
        Array.from({ length: 50 }, () => ledger.award(awardTo('ann'), 30_000)),
      );
      expect(results.filter((kind) => kind === 'added')).toHaveLength(1);
      expect(results.filter((kind) => kind === 'repeated')).toHaveLength(49);
      expect(await entriesOf('ann')).toBe(1);
    },
  );

  it('refuses while the lock is held, and changes nothing', async () => {
    const kinds = await whileInserting('ben', (other) => other.award(awardTo('ben'), 0));
    expect(kinds).toEqual(['added', 'refused']);
    expect(await entriesOf('ben')).toBe(1);
  });

  it('adds an award once when the lock is lost: the unique key rejects the second entry', async () => {
    const kinds = await whileInserting('cat', async (other) => {
      await loseLocks();
      return other.award(awardTo('cat'), 0);
    });
    expect(kinds).toEqual(['repeated', 'added']);
    expect(await entriesOf('cat')).toBe(1);
  });

  it('would add it twice without the unique key', async () => {
    await scene.stores.sql.query('DROP INDEX points_entries_one_per_source');
    const kinds = await whileInserting('dan', async (other) => {
      await loseLocks();
      return other.award(awardTo('dan'), 0);
    });
    expect(kinds).toEqual(['added', 'added']);
    expect(await entriesOf('dan')).toBe(2);
    // Without its key, the service adds nothing.
    const { award } = await open(null);
    await expect(award(awardTo('eve'), 0)).rejects.toThrow(/unique or exclusion constraint/);
    expect(await entriesOf('eve')).toBe(0);
  });
});
