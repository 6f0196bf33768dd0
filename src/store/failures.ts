/** Errors of any store: what they mean, and which store they come from. */
import pg from 'pg';
import { UnansweredError } from './late-requests.ts';
import { classifyPostgresError } from './postgres/failures.ts';
import { classifyRedisError } from './redis/connection.ts';

export interface StoreFailure {
  readonly kind: 'busy' | 'unknown';
  readonly reason: string;
}

/** @returns null for a refusal and for a defect */
export function storeFailure(error: unknown): StoreFailure | null {
  // Postgres first: network errors have the same texts, but those of an ioredis command have no code.
  for (const classify of [classifyPostgresError, classifyRedisError]) {
    try {
      const failure = classify(error);
      return failure.kind === 'refused' ? null : failure;
    } catch {
      // Not an error of this store.
    }
  }
  return null;
}

/** Whether the store was unavailable or overloaded: the error says nothing about the request itself. */
export function isStoreAway(error: unknown): boolean {
  const failure = storeFailure(error);
  return failure !== null && failure.reason !== 'refused-by-postgres';
}

const STORES = ['postgres', 'redis', 'zookeeper'] as const;
export type StoreName = (typeof STORES)[number] | 'none';

/**
 * The store that an error comes from, as a label of metrics; `none` for a defect of the service itself.
 * @param operation decides about errors of the network that do not name their store, when it contains the store's name
 */
export function storeOf(error: unknown, operation = ''): StoreName {
  if (error instanceof UnansweredError) return storeOf(error.cause, operation);
  if (!(error instanceof Error)) return 'none';
  if (error instanceof pg.DatabaseError || error.name.startsWith('PrismaClient')) return 'postgres';
  if (error.name === 'ZookeeperError') return 'zookeeper';
  if (error.name === 'ReplyError') return 'redis';
  if (storeFailure(error) === null) return storeOf(error.cause, operation);
  return STORES.find((store) => operation.includes(store)) ?? (isOfPostgres(error) ? 'postgres' : 'redis');
}

function isOfPostgres(error: unknown): boolean {
  try {
    classifyPostgresError(error);
    return true;
  } catch {
    return false;
  }
}
