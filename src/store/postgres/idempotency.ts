/**
 * Effects that happen at most once for an Idempotency-Key. The key's row, the effect and the answer are one transaction:
 *
 *   insert the key ──inserted──▶ effect ──commit──▶ a repeat gets the stored answer, for 24 hours
 *        │                          └──refused──▶ rolled back: a repeat is judged again
 *        ├──another transaction is inserting it: wait until that one has ended
 *        └──committed before──▶ the stored answer, or `KeyReusedError` for another request
 *
 * So a request whose answer was lost can be repeated at once: it waits for the first one while that may still commit.
 */
import type pg from 'pg';
import { inTransaction, type PostgresStore } from './pool.ts';

export interface IdempotencyKey {
  /** The administrator and the key. */
  readonly id: string;
  /** A hash of the route and the body. */
  readonly request: string;
}

/** The key came with another request before. Nothing was changed. */
export class KeyReusedError extends Error {
  override readonly name = 'KeyReusedError';
  readonly code = 'ERR_STAMPEDE_KEY_REUSED';
}

const KEPT = `interval '24 hours'`;
/** Old keys that one request deletes. */
const DELETED_AT_ONCE = 100;

const CLAIM = `
  INSERT INTO idempotency_keys AS k (id, request) VALUES ($1, $2)
  ON CONFLICT (id) DO UPDATE SET request = excluded.request, answer = NULL, created_at = excluded.created_at
  WHERE k.created_at < now() - ${KEPT}`;
const DELETE_OLD = `
  DELETE FROM idempotency_keys WHERE id IN (
    SELECT id FROM idempotency_keys WHERE created_at < now() - ${KEPT} AND id <> $1
    ORDER BY created_at LIMIT ${DELETED_AT_ONCE} FOR UPDATE SKIP LOCKED)`;

/** What the effect returns: its value as JSON can hold it, and whether it happened. */
export interface Effect<T> {
  readonly commit: boolean;
  readonly value: T;
}

/**
 * Runs an effect in one transaction, at most once for a key.
 * @param key null: always
 * @returns what it returned, or what it returned for an earlier request with the key
 * @throws KeyReusedError; what the effect throws, and what Postgres throws
 */
export async function once<T>(
  postgres: PostgresStore,
  key: IdempotencyKey | null,
  effect: (client: pg.PoolClient) => Promise<Effect<T>>,
): Promise<T> {
  if (key === null) return inTransaction(postgres.pool, effect);
  let isRepeat = false;
  const before = postgres.timeline();
  const value = await inTransaction(postgres.pool, async (client) => {
    const claimed = await client.query(CLAIM, [key.id, key.request]);
    if (claimed.rowCount === 0) {
      isRepeat = true;
      return { commit: false, value: await find<T>(client, key) };
    }
    const done = await effect(client);
    if (done.commit) {
      await client.query('UPDATE idempotency_keys SET answer = $2 WHERE id = $1', [
        key.id,
        JSON.stringify(done.value),
      ]);
      await client.query(DELETE_OLD, [key.id]);
    }
    return done;
  });
  if (isRepeat) await postgres.replicated(before); // without holding a connection
  return value;
}

async function find<T>(client: pg.PoolClient, key: IdempotencyKey): Promise<T> {
  const { rows } = await client.query<{ request: string; answer: T }>(
    'SELECT request, answer FROM idempotency_keys WHERE id = $1',
    [key.id],
  );
  const { request, answer } = rows[0]!; // CLAIM has locked it
  if (request !== key.request) throw new KeyReusedError();
  return answer;
}
