/** Every lock by its name in `LOCK`. Read by composition roots and contract tests only. */
import type { PostgresStore } from '../store/postgres.ts';
import type { RedisStore } from '../store/redis.ts';
import type { Lock, LockDescription } from './lock.ts';
import * as redis from './redis.ts';

/** What a lock is made from; it takes what its description `needs`. */
export interface LockContext {
  readonly redis: RedisStore;
  readonly postgres: PostgresStore;
  /** The session timeout of a lock that has one session for all leases, in milliseconds. */
  readonly lockTtlMs: number;
  readonly redlockUrls: readonly string[];
  readonly zookeeperUrl: string | null;
  /** Told of failures that no caller waits for. */
  readonly onError: (doing: string, error: unknown) => void;
}

export interface LockEntry {
  readonly description: LockDescription;
  /** @throws when its server cannot be reached at start */
  create(context: LockContext): Promise<Lock>;
}

const entries: readonly LockEntry[] = [redis];

export const locks: ReadonlyMap<string, LockEntry> = new Map(
  entries.map((entry) => [entry.description.name, entry]),
);
