/**
 * A process that increments an unprotected counter so often, each time under a lock.
 * Arguments: lock, Redis URL, resource, count, and the other servers as JSON.
 */
import { using } from '../../src/locks/lock.ts';
import { openLock } from './lock-process.ts';

const [name, redisUrl, resource, count, more = '{}'] = process.argv.slice(2);
const { lock, redis, close } = await openLock(name!, { ...JSON.parse(more), redisUrl: redisUrl! });
const key = `counter:${resource}`;
for (let i = 0; i < Number(count); i++) {
  const result = await using(lock, resource!, { ttlMs: 20_000, waitMs: 60_000 }, async () => {
    const value = Number(await redis.redis.get(key));
    await redis.redis.set(key, value + 1);
  });
  if (result.kind !== 'done') throw new Error(JSON.stringify(result));
}
await close();
