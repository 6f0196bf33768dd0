/**
 * The store's side of fencing tokens, `@stampede/locks/fencing`: a store that has seen a holder rejects every earlier one. A lease can
 * end while its holder's last write is on its way, and no lock can call that write back; only the store can.
 *
 * Ask before the first read on which a write depends, in the same transaction or script. Tokens of one lock and resource can be compared,
 * of different locks not: use one fence for each.
 */
import { scriptText } from './adapters/scripts.ts';
import { type Lease, LockSetupError } from './lock.ts';

/** Lua that defines `admits(key, field, token)`; put it before a script. `key` is a hash, such as that of the guarded data. */
export const ADMITS_LUA = scriptText('lib/admits');

/** The table of `admits`, for a migration. One small row stays for each fence. */
export const FENCES_SQL =
  'CREATE TABLE IF NOT EXISTS lock_fences (resource text PRIMARY KEY, token bigint NOT NULL)';

/** With $1 the resource and $2 the token: one row if the holder is admitted. For a client other than node-postgres. */
export const ADMITS_SQL = `INSERT INTO lock_fences AS newest (resource, token) VALUES ($1, $2)
  ON CONFLICT (resource) DO UPDATE SET token = $2 WHERE newest.token <= $2 RETURNING token`;

interface PostgresConnection {
  // biome-ignore lint/suspicious/noExplicitAny: the caller's client may have another version
  query(text: any, values?: any): Promise<any>;
}

/**
 * Asks in the caller's transaction, which it keeps others of the resource out of until its end. If it resolves to false, a later holder
 * has come: write nothing, and roll back.
 * @throws LockSetupError for a lease without a fencing token; and what Postgres answers
 */
export async function admits(
  client: PostgresConnection,
  { resource, fencingToken }: Pick<Lease, 'resource' | 'fencingToken'>,
): Promise<boolean> {
  if (fencingToken === null) throw new LockSetupError(`the lease of ${resource} has no fencing token`);
  const { rowCount } = await client.query(ADMITS_SQL, [resource, fencingToken]);
  return rowCount === 1;
}
