/** Errors of any store: what they mean, and which store they come from. */
import pg from 'pg';
import type { ExpectedFailure, Failure } from '../../domain/failure.ts';
import { classifyPostgresError } from './postgres.ts';
import { classifyRedisError } from './redis.ts';

/** Classifies an error of Postgres or Redis. An unexpected constraint violation is also a defect. Never throws. */
export function storeFailure(error: unknown): Failure {
  // Postgres first: network errors have the same texts in both, but those of an ioredis command have no code.
  for (const failure of [classifyPostgresError(error), classifyRedisError(error)]) {
    if (failure.kind === 'rejected' && failure.constraint !== null) break;
    if (failure.kind !== 'defect') return failure;
  }
  return { kind: 'defect', reason: 'defect', error };
}

/** The same for errors that a caller handles. @throws the error itself when it is a defect */
export function expectedFailure(error: unknown): ExpectedFailure {
  const failure = storeFailure(error);
  if (failure.kind === 'defect') throw error;
  return failure;
}

/** Whether a store was unreachable or overloaded: nothing is wrong with the request itself. */
export function isStoreUnavailable(error: unknown): boolean {
  const { kind } = storeFailure(error);
  return kind !== 'defect' && kind !== 'rejected';
}

const STORES = ['postgres', 'redis', 'zookeeper'] as const;
/** Operations on other servers: the issuer of tokens, the collector of traces. */
const OF_NO_STORE = /issuer-keys$|^send-traces$/;
export type StoreName = (typeof STORES)[number] | 'none';

/**
 * The store that an error comes from, as a label of metrics; `none` for a defect of the service itself.
 * @param operation identifies the store of a network error that does not name it, if the operation contains the store's name
 */
export function storeOf(error: unknown, operation = ''): StoreName {
  if (!(error instanceof Error) || OF_NO_STORE.test(operation)) return 'none';
  if (error instanceof pg.DatabaseError || error.name.startsWith('PrismaClient')) return 'postgres';
  if (error.name === 'ZookeeperError') return 'zookeeper';
  if (error.name === 'ReplyError') return 'redis';
  if (storeFailure(error).kind === 'defect') return storeOf(error.cause, operation);
  const isPostgres = classifyPostgresError(error).kind !== 'defect';
  if (operation.startsWith('redlock')) return 'redis';
  return STORES.find((store) => operation.includes(store)) ?? (isPostgres ? 'postgres' : 'redis');
}
