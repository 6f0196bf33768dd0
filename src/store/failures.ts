/** What an error of either store means. */
import { classifyPostgresError } from './postgres/failures.ts';
import { classifyRedisError } from './redis/connection.ts';

export interface StoreFailure {
  readonly kind: 'busy' | 'unknown';
  readonly reason: string;
}

/** @returns null for a refusal and for a defect */
export function storeFailure(error: unknown): StoreFailure | null {
  // Postgres first: errors of the network have the same texts, but those of a command of ioredis have no code.
  for (const classify of [classifyPostgresError, classifyRedisError]) {
    try {
      const failure = classify(error);
      return failure.kind === 'refused' ? null : failure;
    } catch {
      // Not this store's.
    }
  }
  return null;
}

/** Whether a store could not be asked, or had no time: nothing is wrong with what it was asked for. */
export function isStoreAway(error: unknown): boolean {
  const failure = storeFailure(error);
  return failure !== null && failure.reason !== 'refused-by-postgres';
}
