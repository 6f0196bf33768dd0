/**
 * One transaction on one connection that holds, or waits for, one advisory lock.
 *
 *   open ──▶ tryLock ──▶ wait ──▶ heartbeat … ──▶ end (COMMIT, ROLLBACK): the connection returns to its pool
 *              └──────────┴────────┴──▶ cancel, destroy, a failed end: the connection is closed
 *
 * Methods throw errors of Postgres and of the connection, and RequestErrors.
 */
import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { RequestError } from '../clients.ts';
import { REPLY_MS } from './postgres.ts';
import { within } from './within.ts';

/** Longest time that a cancel waits for its connection. */
const CANCEL_MS = 4_000;
/** Longest orderly shutdown of idle connections. */
const SHUTDOWN_MS = 300;

/** A pool with the connection settings of another but without its statement timeouts, which would end long waits. */
export function openSessionPool(other: pg.Pool, max: number, more: pg.PoolConfig = {}): pg.Pool {
  const base = other.options;
  const Pool = other.constructor as typeof pg.Pool; // of the caller's pg
  const timeouts = { statement_timeout: false, query_timeout: 0, lock_timeout: 0 } as const;
  // The password is not enumerable in a pool's options.
  const secret = base.password === undefined ? {} : { password: base.password };
  const pool = new Pool({ ...base, ...secret, ...timeouts, min: 0, max, ...more });
  pool.on('error', () => {}); // the pool replaces a lost idle connection
  pool.on('connect', (client) => client.on('error', () => {})); // AdvisorySession handles one in use
  return pool;
}

/**
 * A pool for `cancel`. Sessions may use up their own pool, and pg-pool serves no queued request after `end`. One connection is
 * enough, because a cancel takes one round trip.
 */
export const openCancelPool = (other: pg.Pool): pg.Pool =>
  openSessionPool(other, 1, { connectionTimeoutMillis: CANCEL_MS });

/** Ends a pool, after its last session ended, even if its server no longer replies. */
export async function closeSessionPool(pool: pg.Pool): Promise<void> {
  const idle = new Set((pool as unknown as { _clients: pg.PoolClient[] })._clients);
  pool.on('remove', (client) => idle.delete(client as pg.PoolClient));
  await pool.end();
  const untilMs = performance.now() + SHUTDOWN_MS;
  while (idle.size > 0 && performance.now() < untilMs) await sleep(5);
  for (const client of idle) streamOf(client).destroy();
}

const streamOf = (client: pg.PoolClient): Socket =>
  (client as unknown as { connection: { stream: Socket } }).connection.stream;

export class AdvisorySession {
  /** Called if the connection is lost during the session. */
  onLost: () => void = () => {};
  readonly #client: pg.PoolClient;
  readonly #key: bigint;
  readonly #lost = () => this.onLost();
  #hasEnded = false;
  /** Settles after the reply to the last query, or after its failure. */
  #replied: Promise<unknown> = Promise.resolve();

  /** @returns null if the signal fires before there is a connection */
  static async open(pool: pg.Pool, resource: string, signal: AbortSignal): Promise<AdvisorySession | null> {
    const connecting = pool.connect();
    const client = await within(connecting, undefined, signal);
    if (client !== null) return new AdvisorySession(client, resource);
    connecting.then((unused) => unused.release()).catch(() => {});
    return null;
  }

  constructor(client: pg.PoolClient, resource: string) {
    this.#client = client;
    this.#key = createHash('sha256').update(`stampede:lock:${resource}`).digest().readBigInt64BE();
    client.on('error', this.#lost).on('end', this.#lost);
  }

  /** Sends one query at a time: pg queues the next one behind a query whose reply is late. */
  async #query(text: string, timeoutMs: number): Promise<pg.QueryResult> {
    let isLate = false;
    const reply = this.#replied.then((): Promise<pg.QueryResult | pg.QueryResult[]> | null =>
      isLate ? null : this.#client.query(text),
    );
    this.#replied = reply.catch(() => {});
    const results = await within(reply, timeoutMs);
    if (results === null) {
      isLate = true;
      throw new RequestError({ kind: 'unknown', reason: 'postgres-connection-lost' });
    }
    return Array.isArray(results) ? results.at(-1)! : results;
  }

  async tryLock(ttlMs: number): Promise<boolean> {
    const begin = `BEGIN; SET LOCAL idle_in_transaction_session_timeout = ${Math.ceil(ttlMs)};`;
    // A standby has advisory locks of its own.
    const granted = `CASE WHEN NOT pg_is_in_recovery() THEN pg_try_advisory_xact_lock(${this.#key}) END AS granted`;
    const { rows } = await this.#query(`${begin} SELECT ${granted}`, REPLY_MS);
    if (rows[0].granted === null)
      throw new RequestError({ kind: 'unavailable', reason: 'postgres-read-only' });
    return rows[0].granted;
  }

  /** @returns false if the lock was not granted within `waitMs` */
  async wait(waitMs: number): Promise<boolean> {
    const timeout = `SET LOCAL lock_timeout = ${waitMs};`;
    try {
      await this.#query(`${timeout} SELECT pg_advisory_xact_lock(${this.#key})`, waitMs + REPLY_MS / 3);
      return true;
    } catch (error) {
      if ((error as { code?: string }).code === '55P03') return false;
      throw error;
    }
  }

  async heartbeat(timeoutMs: number): Promise<true> {
    await this.#query('SELECT 1', timeoutMs);
    return true;
  }

  /** Ends the transaction and returns the connection to its pool, or closes it. @returns whether Postgres committed */
  async end(how: 'COMMIT' | 'ROLLBACK'): Promise<boolean> {
    try {
      const { command } = await this.#query(how, REPLY_MS);
      this.#returnToPool();
      return command === 'COMMIT';
    } catch (error) {
      this.destroy();
      throw error;
    }
  }

  /**
   * Ends a wait. Closing the connection is not enough: Postgres notices a closed connection only after it granted the lock.
   * @param pool of `openCancelPool`
   */
  cancel(pool: pg.Pool): void {
    const { processID } = this.#client as unknown as { processID: number };
    const query = { text: 'SELECT pg_cancel_backend($1)', values: [processID], query_timeout: REPLY_MS };
    void pool
      .query(query)
      .catch(() => {})
      .then(() => this.destroy());
  }

  destroy(): void {
    if (this.#hasEnded) return;
    this.#returnToPool(true);
    streamOf(this.#client).destroy();
  }

  #returnToPool(isBroken?: boolean): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#client.off('error', this.#lost).off('end', this.#lost);
    this.#client.release(isBroken);
  }
}
