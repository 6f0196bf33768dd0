/** POINTS_GUARD=lock: the lock alone prevents duplicates only while it has one holder; the unique key always does. */
import { describe, expect, it } from 'vitest';
import { type Answer, call, post } from '../support/client.ts';
import { openScene } from '../support/scene.ts';

const scene = openScene();
const POINTS_GUARD = 'lock';
const award = { sourceType: 'review', sourceId: '42', points: 30 };
const send = (url: string, userId: string) => post(`${url}/users/${userId}/points`, award);

/** Two services; the first one's insert waits, under the lock, until `meanwhile` is done. */
async function whileInserting<T>(
  userId: string,
  meanwhile: (other: string) => Promise<T>,
): Promise<readonly [first: Answer, T]> {
  const proxy = await scene.proxyTo(scene.stores.databaseUrl);
  const slow = await scene.start({ POINTS_GUARD, DATABASE_URL: proxy.through(scene.stores.databaseUrl) });
  const other = await scene.start({ POINTS_GUARD, LOCK_WAIT_MS: '0' });
  const inserting = proxy.holdRequest('award-points');
  const first = send(slow.url, userId);
  await inserting;
  const result = await meanwhile(other.url).finally(() => proxy.release());
  return [await first, result];
}

async function loseLocks(): Promise<void> {
  const { redis } = scene.stores;
  expect(await redis.del(...(await redis.keys('stampede:{points:*')))).toBeGreaterThan(0);
}

const entriesOf = async (userId: string) =>
  (await scene.stores.sql.query('SELECT FROM points_entries WHERE user_id = $1', [userId])).rowCount;

describe('POINTS_GUARD=lock', () => {
  it('adds an award once, however often it is sent', async () => {
    const { url } = await scene.start({ POINTS_GUARD, LOCK_WAIT_MS: '30000' });
    const answers = await Promise.all(Array.from({ length: 50 }, () => send(url, 'ann')));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(49);
    expect(await post(`${url}/users/ann/points`, { ...award, points: 31 })).toMatchObject({
      status: 409,
      problem: 'idempotency-conflict',
    });
    expect(await entriesOf('ann')).toBe(1);
  });

  it('needs no second connection for a lock in Postgres while it has one for the key of a request', async () => {
    const { url } = await scene.start({ POINTS_GUARD, LOCK: 'postgres-row', LOCK_WAIT_MS: '30000' });
    const keyed = (n: number) => {
      const headers = { 'content-type': 'application/json', 'idempotency-key': `award-${n}` };
      return call(`${url}/users/user-${n}/points`, { method: 'POST', headers, body: JSON.stringify(award) });
    };
    const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => keyed(n)));
    expect(answers.map(({ status }) => status)).toEqual(Array(40).fill(201));
  });

  it('answers busy while the lock is held, and changes nothing', async () => {
    const [first, second] = await whileInserting('ben', (other) => send(other, 'ben'));
    expect(second).toMatchObject({ status: 503, problem: 'busy', body: { reason: 'lock-contended' } });
    expect(first.status).toBe(201);
    expect(await entriesOf('ben')).toBe(1);
  });

  it('adds an award once when the lock is lost: the unique key rejects the second entry', async () => {
    const [first, second] = await whileInserting('cat', async (other) => {
      await loseLocks();
      return send(other, 'cat');
    });
    expect([first.status, second.status]).toEqual([200, 201]);
    expect(first.body).toEqual(second.body);
    expect(await entriesOf('cat')).toBe(1);
  });

  it('would add it twice without the unique key', async () => {
    await scene.stores.sql.query('DROP INDEX points_entries_one_per_source');
    const [first, second] = await whileInserting('dan', async (other) => {
      await loseLocks();
      return send(other, 'dan');
    });
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(await entriesOf('dan')).toBe(2);
    // Without its key, POINTS_GUARD=unique-key adds nothing.
    const { url } = await scene.start();
    expect((await send(url, 'eve')).status).toBe(500);
    expect(await entriesOf('eve')).toBe(0);
  });
});
