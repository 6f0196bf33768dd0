/** Errors of any store: what they mean, and which store they come from. */
import pg from 'pg';
import { classifyPostgresError } from './postgres/failures.ts';
import { classifyRedisError } from './redis/connection.ts';

export type StoreFailure =
  | { readonly kind: 'busy' | 'unknown'; readonly reason: string }
  /** Not caused by a store that is slow, unreachable or out of resources: rethrow the error. */
  | { readonly kind: 'defect'; readonly error: unknown };

/** Classifies an error of Postgres or Redis. An unexpected constraint violation is also a defect. Never throws. */
export function storeFailure(error: unknown): StoreFailure {
  // Postgres first: network errors have the same texts in both, but those of an ioredis command have no code.
  for (const failure of [classifyPostgresError(error), classifyRedisError(error)]) {
    if (failure.kind === 'rejected') break;
    if (failure.kind !== 'defect') return failure;
  }
  return { kind: 'defect', error };
}

/** Whether a store was unreachable or overloaded: nothing is wrong with the request itself. */
export function isStoreUnavailable(error: unknown): boolean {
  const failure = storeFailure(error);
  return failure.kind !== 'defect' && failure.reason !== 'rejected-by-postgres';
}

const STORES = ['postgres', 'redis', 'zookeeper'] as const;
export type StoreName = (typeof STORES)[number] | 'none';

/**
 * The store that an error comes from, as a label of metrics; `none` for a defect of the service itself.
 * @param operation identifies the store of a network error that does not name it, if the operation contains the store's name
 */
export function storeOf(error: unknown, operation = ''): StoreName {
  if (!(error instanceof Error)) return 'none';
  if (error instanceof pg.DatabaseError || error.name.startsWith('PrismaClient')) return 'postgres';
  if (error.name === 'ZookeeperError') return 'zookeeper';
  if (error.name === 'ReplyError') return 'redis';
  if (storeFailure(error).kind === 'defect') return storeOf(error.cause, operation);
  const isPostgres = classifyPostgresError(error).kind !== 'defect';
  return STORES.find((store) => operation.includes(store)) ?? (isPostgres ? 'postgres' : 'redis');
}
