/** What an error means when either store may have caused it. */
import { classifyPostgresError } from './postgres/failures.ts';
import { classifyRedisError } from './redis/connection.ts';

export type StoreFailure =
  | { readonly kind: 'busy' | 'unknown'; readonly reason: string }
  /** Not a store that is slow, unreachable or out of resources: throw the error on. */
  | { readonly kind: 'defect'; readonly error: unknown };

/** Classifies an error of Postgres or Redis. A constraint violation nobody expected is a defect, too. Never throws. */
export function storeFailure(error: unknown): StoreFailure {
  // Postgres first: network errors have the same texts in both, but those of an ioredis command have no code.
  for (const failure of [classifyPostgresError(error), classifyRedisError(error)]) {
    if (failure.kind === 'refused') break;
    if (failure.kind !== 'defect') return failure;
  }
  return { kind: 'defect', error };
}

/** Whether a store was unreachable or overloaded: nothing is wrong with the request itself. */
export function isStoreUnavailable(error: unknown): boolean {
  const failure = storeFailure(error);
  return failure.kind !== 'defect' && failure.reason !== 'refused-by-postgres';
}
