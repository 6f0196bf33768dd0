/**
 * One transaction on one connection that holds, or waits for, one advisory lock.
 *
 *   open ──▶ tryLock ──▶ wait ──▶ beat … ──▶ end (COMMIT, ROLLBACK): the connection goes back to its pool
 *              └──────────┴────────┴──▶ cancel, destroy: the connection is cut
 *
 * What a method throws, Postgres or the connection threw: see classifyPostgresError.
 */
import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

/** How long an answer may take that nothing holds up at the server. */
export const ANSWER_MS = 1_500;
/** How long a connection may take to say good-bye. */
const FAREWELL_MS = 300;

/** A pool with the connection settings of another, for waits that may be longer than any of its statements. */
export function openSessionPool(like: pg.PoolOptions, max: number): pg.Pool {
  const bounds = { statement_timeout: false, query_timeout: 0, lock_timeout: 0 } as const;
  // The password is not enumerable in a pool's options.
  const secret = like.password === undefined ? {} : { password: like.password };
  const pool = new pg.Pool({ ...like, ...secret, ...bounds, min: 0, max });
  pool.on('error', () => {}); // an idle connection that is lost is replaced
  pool.on('connect', (client) => client.on('error', () => {})); // one in use tells its session
  return pool;
}

/** Ends a pool whose sessions are over, also when its server does not answer any more. */
export async function closeSessionPool(pool: pg.Pool): Promise<void> {
  const idle = new Set((pool as unknown as { _clients: pg.PoolClient[] })._clients);
  pool.on('remove', (client) => idle.delete(client as pg.PoolClient));
  await pool.end();
  const untilMs = performance.now() + FAREWELL_MS;
  while (idle.size > 0 && performance.now() < untilMs) await sleep(5);
  for (const client of idle) streamOf(client).destroy();
}

const streamOf = (client: pg.PoolClient): Socket =>
  (client as unknown as { connection: { stream: Socket } }).connection.stream;

/** A connection, or null when the signal fired before there was one. */
async function connected(pool: pg.Pool, signal: AbortSignal): Promise<pg.PoolClient | null> {
  const connecting = pool.connect();
  const mine = connecting.then((client) => {
    if (!signal.aborted) return client;
    client.release();
    return null;
  });
  return new Promise((resolve, reject) => {
    const giveUp = () => resolve(null);
    signal.addEventListener('abort', giveUp, { once: true });
    mine.finally(() => signal.removeEventListener('abort', giveUp)).then(resolve, reject);
  });
}

export class AdvisorySession {
  /** Called when the connection was lost while the session was under way. */
  onLost: () => void = () => {};
  readonly #pool: pg.Pool;
  readonly #client: pg.PoolClient;
  readonly #key: bigint;
  readonly #lost = () => this.onLost();
  #over = false;
  /** Settles when Postgres has answered all that was asked, or cannot any more. */
  #answered: Promise<unknown> = Promise.resolve();

  /** @returns null when the signal fired before there was a connection */
  static async open(pool: pg.Pool, resource: string, signal: AbortSignal): Promise<AdvisorySession | null> {
    const client = await connected(pool, signal);
    return client === null ? null : new AdvisorySession(pool, client, resource);
  }

  constructor(pool: pg.Pool, client: pg.PoolClient, resource: string) {
    this.#pool = pool;
    this.#client = client;
    this.#key = createHash('sha256').update(`stampede:lock:${resource}`).digest().readBigInt64BE();
    client.on('error', this.#lost).on('end', this.#lost);
  }

  /** One at a time: a query whose answer is late is not over, and pg takes the next one only when it is. */
  async #query(text: string, timeoutMs: number): Promise<pg.QueryResult> {
    let late = false;
    const answer = this.#answered.then((): Promise<pg.QueryResult | pg.QueryResult[]> | null =>
      late ? null : this.#client.query(text),
    );
    this.#answered = answer.catch(() => {});
    const results = await new Promise<pg.QueryResult | pg.QueryResult[] | null>((resolve, reject) => {
      const timer = setTimeout(() => {
        late = true;
        reject(new Error('Query read timeout')); // as pg says it
      }, timeoutMs);
      answer.finally(() => clearTimeout(timer)).then(resolve, reject);
    });
    return Array.isArray(results) ? results.at(-1)! : results!;
  }

  async tryLock(ttlMs: number): Promise<boolean> {
    const begin = `BEGIN; SET LOCAL idle_in_transaction_session_timeout = ${Math.ceil(ttlMs)};`;
    const { rows } = await this.#query(
      `${begin} SELECT pg_try_advisory_xact_lock(${this.#key}) AS got`,
      ANSWER_MS,
    );
    return rows[0].got;
  }

  /** @returns false when the lock was not granted in that time */
  async wait(waitMs: number): Promise<boolean> {
    const limit = `SET LOCAL lock_timeout = ${waitMs};`;
    try {
      await this.#query(`${limit} SELECT pg_advisory_xact_lock(${this.#key})`, waitMs + ANSWER_MS / 3);
      return true;
    } catch (error) {
      if ((error as { code?: string }).code === '55P03') return false;
      throw error;
    }
  }

  async beat(timeoutMs: number): Promise<true> {
    await this.#query('SELECT 1', timeoutMs);
    return true;
  }

  /** Ends the transaction, and gives the connection back. @returns whether it was a commit */
  async end(how: 'COMMIT' | 'ROLLBACK'): Promise<boolean> {
    const { command } = await this.#query(how, ANSWER_MS);
    this.#leave();
    return command === 'COMMIT';
  }

  /** Ends a wait: Postgres does not see that a client is gone before it grants the lock. */
  cancel(): void {
    const { processID } = this.#client as unknown as { processID: number };
    const query = { text: 'SELECT pg_cancel_backend($1)', values: [processID], query_timeout: ANSWER_MS };
    void this.#pool
      .query(query)
      .catch(() => {})
      .then(() => this.destroy());
  }

  destroy(): void {
    if (this.#over) return;
    this.#leave(true);
    streamOf(this.#client).destroy();
  }

  #leave(broken?: boolean): void {
    if (this.#over) return;
    this.#over = true;
    this.#client.off('error', this.#lost).off('end', this.#lost);
    this.#client.release(broken);
  }
}
