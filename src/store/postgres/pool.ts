/**
 * The connections to Postgres: one pool, used by Prisma (idiomatic queries) and by hand-written hot statements.
 * What an error means: store/postgres/failures.ts.
 */
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { limits } from '../../config/limits.ts';
import { PrismaClient } from '../../generated/prisma/client.ts';
import { type StoreClock, storeClock } from '../late-requests.ts';
import { blamesRows, classifyPostgresError } from './failures.ts';

export { blamesRows, classifyPostgresError, isAnswer, type PostgresFailure } from './failures.ts';

export interface PostgresStore {
  readonly pool: pg.Pool;
  readonly prisma: PrismaClient;
  readonly clock: StoreClock;
  /** @throws when Postgres does not answer. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the pool. Nothing connects before the first query.
 * @param onError told of every error of an idle or checked-out connection, which would otherwise end the process
 * @param connections at most so many; processes that share a port share what Postgres allows, but four are the least
 */
export function openPostgres(
  databaseUrl: string,
  onError: (error: Error) => void,
  connections: number = limits.postgresPoolSize,
): PostgresStore {
  const pool = new pg.Pool({
    Client: StrictClient,
    connectionString: databaseUrl,
    max: Math.max(4, Math.ceil(connections)),
    connectionTimeoutMillis: limits.postgresConnectMs,
    statement_timeout: limits.postgresStatementMs,
    lock_timeout: limits.postgresLockMs,
    idle_in_transaction_session_timeout: limits.postgresStatementMs,
    // The client's own clock too: behind a cut network the server's timeouts are never heard of.
    query_timeout: limits.postgresStatementMs + 500,
    // A prepared statement keeps the plan that it got first. On a table that was vacuumed while it was empty that plan reads
    // the whole table, and goes on doing so while the table grows: so a table is read as a whole where there is no index only.
    options: '-c enable_seqscan=off',
    keepAlive: true,
    application_name: 'stampede',
  });
  let closing = false;
  const onClientError = (error: Error) => {
    if (!closing) onError(error); // a server that stops at the same time ends what is being ended
  };
  pool.on('error', onClientError);
  pool.on('connect', (client) => client.on('error', onClientError));
  const prisma = new PrismaClient({ adapter: new PrismaPg(pool, { disposeExternalPool: false }) });
  return {
    pool,
    prisma,
    clock: storeClock(async () => {
      const { rows } = await pool.query<{ ms: number }>(
        'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
      );
      return rows[0]!.ms;
    }),
    async ping() {
      await pool.query('SELECT 1');
    },
    async close() {
      closing = true;
      await prisma.$disconnect();
      await pool.end();
    },
  };
}

/**
 * A connection that tells more of its failures.
 *
 * Making it: what fails then is marked as such, since no statement was sent (see store/postgres/failures.ts). An answer that is late:
 * the connection ends. Prisma gives the connection of a transaction that failed back to the pool as if all were well, and
 * whoever gets it next would meet what is left of the transaction.
 */
class StrictClient extends pg.Client {
  // biome-ignore lint/suspicious/noExplicitAny: the pool gives a callback, others await
  override connect(callback?: any): any {
    if (callback === undefined)
      return super.connect().catch((error) => Promise.reject(whileConnecting(error)));
    // biome-ignore lint/suspicious/noExplicitAny: what the pool awaits
    return super.connect((error: any, ...rest: any[]) => callback(error && whileConnecting(error), ...rest));
  }

  // biome-ignore lint/suspicious/noExplicitAny: whatever form of the arguments it gets, it passes on
  override query(...given: any[]): any {
    // biome-ignore lint/suspicious/noExplicitAny: see above
    const result = (super.query as any)(...given);
    if (result instanceof Promise) {
      result.catch((error: Error) => {
        if (error.message === 'Query read timeout') this.connection.stream.destroy();
      });
    }
    return result;
  }
}

function whileConnecting(error: Error): Error {
  return 'syscall' in error && error.syscall === 'getaddrinfo'
    ? error
    : Object.assign(error, { syscall: 'connect' });
}

/**
 * Runs `work` in one READ COMMITTED transaction. `work` answers with a value and whether to commit it.
 * @throws whatever a statement throws; the transaction is then rolled back, by closing its connection when a statement
 *   was not answered.
 */
export async function inTransaction<T>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<{ readonly commit: boolean; readonly value: T }>,
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query('BEGIN');
    const { commit, value } = await work(client);
    await client.query(commit ? 'COMMIT' : 'ROLLBACK');
    return value;
  } catch (error) {
    if (isUnanswered(error)) broken = error as Error;
    else
      await client.query('ROLLBACK').catch((failure: Error) => {
        broken = failure;
      });
    throw error;
  } finally {
    client.release(broken);
  }
}

function isUnanswered(error: unknown): boolean {
  try {
    return classifyPostgresError(error).kind === 'unknown';
  } catch {
    return false;
  }
}

/** How often a transaction begins anew after a deadlock or a serialization failure. */
const RETRIES = 5;

/** Runs a whole transaction, and again when it met another one. @throws what it throws in the end */
export async function retried<T>(transaction: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await transaction();
    } catch (error) {
      const failure = classifyPostgresError(error);
      const met = failure.kind === 'busy' && /deadlock|serialization/.test(failure.reason);
      if (!met || tries === RETRIES) throw error;
    }
  }
}

/**
 * Does work on many rows at once; where Postgres refuses it because of a row (see `blamesRows`), on halves of them, down to
 * the rows that it refuses.
 * @param refused called for each of these
 * @param atMost so many refusals; then the rest is left alone
 * @returns what the others came to, and whether any were left alone
 * @throws what the connection, or a Postgres that is busy, throws
 */
export async function isolating<T, R>(
  rows: readonly T[],
  work: (some: readonly T[]) => Promise<readonly R[]>,
  refused: (row: T, error: unknown) => void,
  atMost: number,
): Promise<{ readonly results: readonly R[]; readonly complete: boolean }> {
  const results: R[] = [];
  const waiting = [rows];
  let refusals = 0;
  for (let some = waiting.pop(); some !== undefined; some = waiting.pop()) {
    if (some.length === 0) continue;
    if (refusals >= atMost) return { results, complete: false };
    try {
      results.push(...(await work(some)));
    } catch (error) {
      if (!blamesRows(error)) throw error;
      refusals++;
      const middle = some.length >> 1;
      if (some.length === 1) refused(some[0]!, error);
      else waiting.push(some.slice(middle), some.slice(0, middle));
    }
  }
  return { results, complete: true };
}
