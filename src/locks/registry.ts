/** Every lock by its name in `LOCK`. Only composition roots and contract tests import it. */
import type { PostgresClient, RedisClient, RedlockServer } from './clients.ts';
import type { Lock, LockDescription } from './lock.ts';
import * as postgresAdvisory from './postgres-advisory.ts';
import * as postgresRow from './postgres-row.ts';
import * as redis from './redis.ts';
import * as redisCas from './redis-cas.ts';
import * as redisFair from './redis-fair.ts';
import * as redisReadWrite from './redis-read-write.ts';
import * as redisWait from './redis-wait.ts';
import * as redlock from './redlock.ts';
import { rungs } from './rungs.ts';
import * as zookeeper from './zookeeper.ts';

/** What `create` of any lock may use; which server a lock connects to is `needs` of its description. */
export interface LockContext {
  readonly redis: RedisClient;
  readonly postgres: PostgresClient;
  /** Session timeout for locks whose leases share one session, in milliseconds. */
  readonly lockTtlMs: number;
  /** Opens the servers of `redlock`. @throws LockSetupError */
  openRedlock(): Promise<readonly RedlockServer[]>;
  readonly zookeeperUrl: string | null;
  /** Replicas that must have a lease, for LOCK=redis-wait, which needs at least 1. */
  readonly redisWait: number;
  /** Receives failures of background work. `doing` is an operation's name in kebab case. */
  readonly onError: (doing: string, error: unknown) => void;
}

export interface LockEntry {
  readonly description: LockDescription;
  /** @throws if its server is not reachable */
  create(context: LockContext): Promise<Lock>;
}

const entries: readonly LockEntry[] = [
  ...rungs,
  redis,
  redisCas,
  redisWait,
  redlock,
  redisFair,
  redisReadWrite,
  zookeeper,
  postgresRow,
  postgresAdvisory,
];

export const locks: ReadonlyMap<string, LockEntry> = new Map(
  entries.map((entry) => [entry.description.name, entry]),
);
