/**
 * The connections to Postgres: one pool, used by hand-written statements and, in one strategy, by Prisma.
 * What an error means: store/failures/postgres.ts.
 */
import pg from 'pg';
import { limits } from '../../config/limits.ts';
import { type DatabaseAddress, parseDatabaseUrl } from '../../config/urls/database.ts';
import type { PrismaClient } from '../../generated/prisma/client.ts';
import type { PostgresClient } from '../../locks/clients.ts';
import {
  classifyPostgresError,
  expectedPostgresFailure,
  isPlanChanged,
  isReadTimeout,
} from '../failures/postgres.ts';
import { type StoreClock, storeClock } from '../late-requests.ts';
import { type PrimaryFinder, primaryFinder } from './primary.ts';
import { sessionOptions, TIMEOUTS } from './settings.ts';
import { notReplicated, standbyWait, type Timeline } from './standby-wait.ts';

export interface PostgresStore extends PostgresClient {
  /** Loads Prisma's client with the first call. */
  prisma(): Promise<PrismaClient>;
  readonly clock: StoreClock;
  /** @throws when Postgres does not answer. */
  ping(): Promise<void>;
  /** Taken before a read that `replicated` waits for: see standby-wait.ts. */
  timeline(): Timeline;
  /**
   * Waits until the synchronous standby has all that was read between `timeline` and this call.
   * @throws what Postgres throws, and when a standby was promoted since `before` was taken, which may lack what was read
   */
  replicated(before: Timeline): Promise<void>;
  close(): Promise<void>;
}

export interface Connection {
  readonly client: pg.PoolClient;
  /** @param broken closes it */
  release(broken?: Error): void;
}

export interface PoolOptions {
  /** Maximum size; at least four are used. */
  readonly connections?: number;
  /** The types of events that its changes cause: see the migration 20261126140000_events. */
  readonly events?: readonly string[];
}

/** How long a statement may take until its answer is read; as long again for each on its connection that is not answered yet. */
const replyTimeoutMs = limits.postgresStatementMs + 500;

/**
 * Opens the pool. Nothing connects before the first query.
 * @param onError receives each error of an idle or checked-out connection, which would otherwise end the process
 */
export function openPostgres(
  databaseUrl: string,
  onError: (error: Error) => void,
  { connections = limits.postgresPoolSize, events = [] }: PoolOptions = {},
): PostgresStore {
  const pool: pg.Pool = new pg.Pool({
    ...serverOf(databaseUrl, events),
    onConnect: (client) => standby.connected(client),
    // Statements that are sent without waiting for each other reach Postgres together, and are answered in their order.
    pipeline: true,
    max: Math.max(4, Math.ceil(connections)),
    connectionTimeoutMillis: limits.postgresConnectMs,
    idleTimeoutMillis: limits.postgresIdleMs,
    // By the client's clock, too: behind a broken network the server's timeouts never arrive.
    query_timeout: replyTimeoutMs,
    keepAlive: true,
    application_name: 'stampede',
  });
  const standby = standbyWait(pool);
  let closing = false;
  const onClientError = (error: Error) => {
    if (!closing) onError(error); // a server that stops at the same time ends these connections, too
  };
  pool.on('error', onClientError);
  pool.on('connect', (client) => client.on('error', onClientError));
  let prisma: Promise<PrismaClient> | undefined;
  const loadPrisma = async () =>
    (await import('./prisma.ts')).openPrisma(pool, addressOf(databaseUrl).schema);
  return {
    pool,
    explain: expectedPostgresFailure,
    prisma() {
      prisma ??= loadPrisma();
      return prisma;
    },
    clock: storeClock(async () => {
      const { rows } = await pool.query<{ ms: number }>(
        'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
      );
      return rows[0]!.ms;
    }),
    async ping() {
      await pool.query('SELECT 1');
    },
    timeline: standby.timeline,
    replicated: standby.wait,
    async close() {
      closing = true;
      await (await prisma)?.$disconnect();
      await pool.end();
    },
  };
}

/**
 * Shares connections of a pool. Those who give the same key while its connection is in use share it: their statements are sent at once,
 * executed in the order in which they were sent, and answered each by itself. When one gets no answer, the connection is closed, and the
 * later ones get none either.
 * @returns a function that throws what connecting throws
 */
export function sharedConnections(pool: pg.Pool): (key: number) => Promise<Connection> {
  interface Shared {
    readonly client: Promise<pg.PoolClient>;
    users: number;
    broken: Error | undefined;
  }
  const connections = new Map<number, Shared>();
  return async (key) => {
    const shared = connections.get(key) ?? { client: pool.connect(), users: 0, broken: undefined };
    connections.set(key, shared);
    shared.users++;
    const leave = (broken?: Error): boolean => {
      shared.broken ??= broken;
      shared.users--;
      const isOver = shared.users === 0 || shared.broken !== undefined;
      if (isOver && connections.get(key) === shared) connections.delete(key);
      return shared.users === 0;
    };
    try {
      const client = await shared.client;
      return { client, release: (broken) => void (leave(broken) && client.release(shared.broken)) };
    } catch (error) {
      leave();
      throw error;
    }
  };
}

/** A connection for one alone. */
export async function ownConnection(pool: pg.Pool): Promise<Connection> {
  const client = await pool.connect();
  return { client, release: (broken) => client.release(broken) };
}

/**
 * What a pool needs to connect to the server, or of several servers to the one that accepts writes, with the settings of settings.ts.
 * @param events see `PoolOptions`
 */
export function serverOf(databaseUrl: string, events: readonly string[] = []): pg.PoolConfig {
  const { url, hosts, schema, options } = addressOf(databaseUrl);
  const primary = hosts.length > 0 ? primaryFinder(url, hosts) : null;
  const plans: Plans = { generation: 0 };
  class Client extends StrictClient {
    override readonly primary = primary;
    override readonly plans = plans;
  }
  return {
    Client,
    connectionString: url,
    ...TIMEOUTS,
    options: sessionOptions(options, { schema, events }),
  };
}

/** @throws what config/env.ts has refused before */
export function addressOf(databaseUrl: string): DatabaseAddress {
  const address = parseDatabaseUrl(databaseUrl);
  if (typeof address === 'string') throw new Error(`the URL ${address}`);
  return address;
}

/**
 * Prepared statements of a pool. After the type of a column changed, each connection would reject a statement that it has prepared,
 * for as long as it lives; under a new name the statement is prepared again.
 */
interface Plans {
  generation: number;
}

/**
 * A connection with more informative errors that closes when a reply is late, or when its server becomes read-only. A commit whose
 * wait for the synchronous standby was cancelled fails, although Postgres answers success with a warning.
 *
 * An error while connecting is marked as such: no statement was sent (see failures/postgres.ts). Prisma returns the connection of a failed
 * transaction to the pool as if it were clean; unless the connection is closed, its next user would run inside that
 * transaction.
 */
class StrictClient extends pg.Client {
  /** Null: there is one server. */
  readonly primary: PrimaryFinder | null = null;
  readonly plans: Plans = { generation: 0 };
  /** Statements that were sent: each waits for those before it, and each of these may take its whole time. */
  #unanswered = 0;
  /** Whether the wait for the standby was cancelled during the statement in progress. */
  #isNotReplicated = false;

  constructor(config?: string | pg.ClientConfig) {
    super(config);
    // By the name of the function: the text is in the language of the server.
    this.on('notice', ({ routine }) => {
      if (routine === 'SyncRepWaitForLSN') this.#isNotReplicated = true;
    });
  }

  // biome-ignore lint/suspicious/noExplicitAny: the pool gives a callback, others await
  override connect(callback?: any): any {
    // Of one server that is a standby by now, reads would be old: its address may lead to the primary soon.
    if (this.primary === null) this.#leaveIf(['in_hot_standby']);
    const located = this.primary === null ? Promise.resolve() : this.#locate();
    if (callback === undefined)
      return located.then(() => super.connect()).catch((error) => Promise.reject(this.#failed(error)));
    // The pool listens for errors from its callback on, so the callback must run before the next message is read.
    // biome-ignore lint/suspicious/noExplicitAny: what the pool awaits
    const done = (error: any, ...rest: any[]) => callback(error && this.#failed(error), ...rest);
    located.then(() => super.connect(done), done);
  }

  #failed(error: Error): Error {
    this.primary?.forget();
    return whileConnecting(error);
  }

  async #locate(): Promise<void> {
    Object.assign(this, await this.primary!.locate());
    this.once('end', () => this.primary?.forget());
    this.#leaveIf(READ_ONLY);
  }

  /** Postgres reports these parameters with the connection, and when they change. */
  #leaveIf(parameters: readonly string[]): void {
    this.connection.on('parameterStatus', ({ parameterName, parameterValue }) => {
      if (parameters.includes(parameterName) && parameterValue === 'on') this.#leave();
    });
  }

  #leave(): void {
    this.primary?.forget();
    this.connection.stream.destroy(new Error('this Postgres is a standby, or read-only'));
  }

  // biome-ignore lint/suspicious/noExplicitAny: the text of a statement, or an object whose text may be inherited
  #behindOthers(query: any): any {
    if (query.query_timeout !== undefined || typeof query.submit === 'function') return query;
    const { query_timeout } = (this as unknown as { connectionParameters: { query_timeout: number } })
      .connectionParameters;
    const later = typeof query === 'string' ? { text: query } : Object.create(query);
    return Object.assign(later, { query_timeout: query_timeout * (1 + this.#unanswered) });
  }

  // biome-ignore lint/suspicious/noExplicitAny: passes its arguments on in any of their forms
  override query(query: any, ...others: any[]): any {
    const { generation } = this.plans;
    const named = generation > 0 && query?.name !== undefined && typeof query.submit !== 'function';
    const renamed = named ? { ...query, name: `${query.name} ${generation}` } : query;
    const sent = this.#unanswered > 0 ? this.#behindOthers(renamed) : renamed;
    const failureOf = (error?: Error | null): Error | null => {
      if (isPlanChanged(error)) this.plans.generation = Math.max(this.plans.generation, generation + 1);
      const isNotReplicated = this.#isNotReplicated;
      this.#isNotReplicated = false;
      return (
        error ??
        (isNotReplicated ? notReplicated('the wait for the synchronous standby was cancelled') : null)
      );
    };
    // biome-ignore lint/suspicious/noExplicitAny: what the pool awaits
    type Callback = (error: any, ...rest: any[]) => void;
    // A callback runs before the next message is read, which may be the notice of a later statement.
    const reporting =
      (callback: Callback): Callback =>
      (error, ...rest) => {
        this.#unanswered--;
        if (error != null && isReadTimeout(error)) this.connection.stream.destroy();
        if (error?.code === '25006' && this.primary !== null) this.#leave(); // read_only_sql_transaction
        const failure = failureOf(error);
        callback(failure, ...(failure === null ? rest : []));
      };
    // biome-ignore lint/suspicious/noExplicitAny: see above
    const send = super.query.bind(this) as any;
    const callback = others.at(-1);
    if (typeof query.submit === 'function') return send(query, ...others);
    this.#unanswered++;
    if (typeof callback === 'function') return send(sent, ...others.slice(0, -1), reporting(callback));
    return new Promise((resolve, reject) => {
      send(
        sent,
        ...others,
        reporting((failure, result) => (failure === null ? resolve(result) : reject(failure))),
      );
    });
  }
}

/** Parameters that say that a server takes no writes (Postgres 14 and later report them). */
const READ_ONLY = ['in_hot_standby', 'default_transaction_read_only'];

function whileConnecting(error: Error): Error {
  return 'syscall' in error && error.syscall === 'getaddrinfo'
    ? error
    : Object.assign(error, { syscall: 'connect' });
}

/** The end of a transaction. */
interface Ending<T> {
  readonly commit: boolean;
  readonly value: T;
  /** Statements whose answers COMMIT does not wait for: if one fails, Postgres rolls back, and its error is thrown. */
  readonly sent?: readonly Promise<unknown>[];
}

/**
 * Runs `work` in one READ COMMITTED transaction. `work` returns a value and whether to commit.
 * @param reads are sent together with BEGIN. They write nothing: if BEGIN failed alone, they would run outside a transaction
 * @throws what a statement throws; the transaction is rolled back then, by closing its connection when a statement got no
 *   answer
 */
export async function inTransaction<T, R = undefined>(
  pool: pg.Pool,
  work: (client: pg.PoolClient, read: R) => Promise<Ending<T>> | Ending<T>,
  reads?: (client: pg.PoolClient) => Promise<R>,
): Promise<T> {
  return untilEnded(pool, 'ROLLBACK', async (client) => {
    const [, read] = await Promise.all([client.query('BEGIN'), reads?.(client)]);
    const { commit, value, sent = [] } = await work(client, read as R);
    await Promise.all([...sent, client.query(commit ? 'COMMIT' : 'ROLLBACK')]);
    return value;
  });
}

/** Runs reads that see the database at one instant. */
export const inSnapshot = <T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> =>
  untilEnded(pool, 'ROLLBACK', async (client) => {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY');
    const value = await work(client);
    await client.query('END');
    return value;
  });

/** How long a statement on all rows of a sale may take; others have `limits.postgresStatementMs`. */
const ALL_ROWS_MS = 60_000;

/** Runs a statement on all rows of a sale, which may be millions, in the client's transaction. */
export async function onAllRows<R extends pg.QueryResultRow>(
  client: pg.PoolClient,
  text: string,
  values: unknown[],
) {
  await client.query(`SET LOCAL statement_timeout = ${ALL_ROWS_MS}`);
  return client.query<R>({
    query_timeout: ALL_ROWS_MS + limits.postgresConnectMs,
    text,
    values,
  } as pg.QueryConfig);
}

/** Runs one statement. Its error is thrown once its locks are released; `pool.query` throws before, and `SKIP LOCKED` then skips the rows. */
export const queryOnce = <R extends pg.QueryResultRow>(pool: pg.Pool, text: string, values: unknown[]) =>
  untilEnded(pool, 'SELECT', (client) => client.query<R>(text, values));

/** @param next is executed after a failure: its answer says that the failed transaction has ended */
async function untilEnded<T>(
  pool: pg.Pool,
  next: 'ROLLBACK' | 'SELECT',
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    return await work(client);
  } catch (error) {
    if (classifyPostgresError(error).kind === 'unknown') broken = error as Error;
    else
      await client.query(next).catch((failure: Error) => {
        broken = failure;
      });
    throw error;
  } finally {
    client.release(broken);
  }
}

/** Tries of a transaction that hits conflicts. */
const TRIES = 5;

/** Runs a whole transaction, and retries it after a conflict with another one. @throws what the last try throws */
export async function retried<T>(transaction: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await transaction();
    } catch (error) {
      if (classifyPostgresError(error).kind !== 'conflict' || tries === TRIES) throw error;
    }
  }
}
