/**
 * The connections to Postgres: one pool, used by Prisma (idiomatic queries) and by hand-written hot statements.
 *
 * A Postgres error is sorted once, here, by what it says about the write that met it:
 *
 *   refused   Postgres answered no, and nothing was written (a constraint)
 *   busy      Postgres gave up or could not begin; nothing was written; trying again may help
 *   unknown   the connection was lost while a statement was under way: it may have been committed
 */
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { limits } from '../config/limits.ts';
import { PrismaClient } from '../generated/prisma/client.ts';
import { type StoreClock, storeClock, UnansweredError } from './late-requests.ts';

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
 * Asks one statement of any connection, and keeps the connection when Postgres only said no: `pool.query` throws it away
 * after every error, and a new one costs more than hundreds of statements.
 * @throws what Postgres, or the connection, throws
 */
export async function ask<R extends pg.QueryResultRow>(
  pool: pg.Pool,
  query: pg.QueryConfig,
): Promise<pg.QueryResult<R>> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    return await client.query<R>(query);
  } catch (error) {
    if (!isAnswer(error)) broken = error as Error;
    throw error;
  } finally {
    client.release(broken);
  }
}

/** Whether Postgres answered with an error: the statement was rolled back, and the connection goes on. */
export function isAnswer(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.severity === 'ERROR';
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

/** What a failed statement means for the attempt that sent it. */
export type PostgresFailure =
  | { readonly kind: 'refused'; readonly constraint: string; readonly code: string }
  | { readonly kind: 'busy'; readonly reason: string }
  | {
      readonly kind: 'unknown';
      readonly reason: string;
      /** Until when the statement may still be carried out, by Postgres's clock: see late-requests.ts; 0: it is not late. */
      readonly lateUntilMs?: number;
    };

/** SQLSTATEs after which nothing was written and another try may succeed. */
const BUSY_CODES = new Map([
  ['40001', 'serialization-failure'],
  ['40P01', 'deadlock'],
  ['55P03', 'lock-timeout'],
  ['57014', 'statement-timeout'],
  ['25P03', 'transaction-timeout'],
  ['53100', 'postgres-disk-full'],
  ['53200', 'postgres-out-of-memory'],
  ['53300', 'too-many-connections'],
  ['53400', 'limit-exceeded'],
  ['57P03', 'postgres-starting'],
  ['25006', 'postgres-read-only'],
  ['ST001', 'deadline-passed'], // by before_deadline
  ['P2034', 'write-conflict'],
  ['P2028', 'no-transaction-in-time'],
  ['P2024', 'no-connection-in-time'],
]);
const UNCONNECTED = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
  'P1001',
  'P1002',
  'P1008',
]);
const LOST = new Set([
  '57P01',
  '57P02',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  '08006',
  '08003',
  '08000',
  'P1017',
]);

/**
 * Sorts an error of Postgres, pg or Prisma.
 * @throws the error itself when it is none of these: a defect, which must not pass as load.
 */
export function classifyPostgresError(error: unknown): PostgresFailure {
  if (error instanceof UnansweredError)
    return { kind: 'unknown', reason: 'postgres-connection-lost', lateUntilMs: error.lateUntilMs };
  const cause = rootCause(error);
  const { code, message } = cause;
  if (code.startsWith('23')) return { kind: 'refused', constraint: cause.constraint, code };
  const busy = BUSY_CODES.get(code);
  if (busy !== undefined) return { kind: 'busy', reason: busy };
  if (UNCONNECTED.has(code)) return { kind: 'busy', reason: 'postgres-unreachable' };
  if (
    /timeout exceeded when trying to connect|Connection terminated due to connection timeout/i.test(message)
  ) {
    return { kind: 'busy', reason: 'no-connection-in-time' };
  }
  if (
    LOST.has(code) ||
    /Connection terminated|not queryable|Query read timeout|connection error/i.test(message)
  ) {
    return { kind: 'unknown', reason: 'postgres-connection-lost' };
  }
  // An operator's or a trigger's own refusal (RAISE EXCEPTION) rolled the statement back.
  if (code === 'P0001') return { kind: 'busy', reason: 'refused-by-postgres' };
  throw error;
}

interface Cause {
  readonly code: string;
  readonly message: string;
  readonly constraint: string;
}

/** Prisma wraps what pg threw: the driver's own error, where there is one, says more than Prisma's code. */
function rootCause(error: unknown): Cause {
  let current = error as {
    code?: unknown;
    message?: unknown;
    constraint?: unknown;
    cause?: unknown;
    meta?: unknown;
  };
  for (let depth = 0; depth < 4; depth++) {
    const meta = current.meta as { driverAdapterError?: { cause?: unknown } } | undefined;
    const inner = (meta?.driverAdapterError?.cause ?? current.cause) as
      | { originalCode?: string; originalMessage?: string; code?: string }
      | undefined;
    if (inner?.originalCode) {
      return {
        code: inner.originalCode,
        message: inner.originalMessage ?? '',
        constraint: constraintOf(inner),
      };
    }
    if (inner === undefined || current.code !== undefined) break;
    current = inner as typeof current;
  }
  return {
    code: String(current.code ?? ''),
    message: String(current.message ?? ''),
    constraint: String(current.constraint ?? ''),
  };
}

function constraintOf(cause: { originalMessage?: string }): string {
  return /constraint "([^"]+)"/.exec(cause.originalMessage ?? '')?.[1] ?? '';
}
