/** Every lock by its name in `LOCK`. Read by composition roots and contract tests only. */
import type { RedisStore } from '../store/redis.ts';
import type { Lock, LockDescription } from './lock.ts';
import * as redis from './redis.ts';

export interface LockContext {
  readonly redis: RedisStore;
}

export interface LockEntry {
  readonly description: LockDescription;
  create(context: LockContext): Lock;
}

export const locks: ReadonlyMap<string, LockEntry> = new Map(
  [
    {
      description: redis.description,
      create: (context: LockContext) => redis.createRedisLock(context.redis),
    },
  ].map((entry) => [entry.description.name, entry]),
);
