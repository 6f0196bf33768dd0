/** Disturbs processes, servers and links, by hand or as one of the named faults of a seeded run. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { TcpProxy } from '../../lab/proxy.ts';

/** The processes that a process has started. */
export function childrenOf(parent: number): number[] {
  const parentOf = (pid: string) => {
    try {
      return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')[1]);
    } catch {
      return 0; // it has ended
    }
  };
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && parentOf(name) === parent)
    .map(Number);
}

/** Sends a signal to processes, some of which may have ended. */
export function signal(pids: number | readonly number[], name: NodeJS.Signals): void {
  for (const pid of [pids].flat()) {
    try {
      process.kill(pid, name);
    } catch {
      // It has ended.
    }
  }
}

export async function freeze(pids: number | readonly number[], forMs: number): Promise<void> {
  signal(pids, 'SIGSTOP');
  await sleep(forMs);
  signal(pids, 'SIGCONT');
}

export async function stall(proxy: TcpProxy, forMs: number): Promise<void> {
  proxy.hold();
  await sleep(forMs);
  await released(proxy);
}

/** Delivers the next request with a marker late. @param cut closes the clients' sides meanwhile */
export async function delayRequest(
  proxy: TcpProxy,
  marker: string,
  forMs: number,
  cut: boolean,
): Promise<void> {
  await Promise.race([proxy.holdRequest(marker), sleep(3_000, undefined, { ref: false })]);
  if (cut) {
    await sleep(50);
    proxy.cutClients();
  }
  await sleep(forMs);
  await released(proxy);
}

/** Waits for the answer at most 1 s: the server may be frozen, too. */
const released = (proxy: TcpProxy) =>
  Promise.race([proxy.release(), sleep(1_000, undefined, { ref: false })]);

/** Holds the locks that a statement takes while the work is done. */
export async function whileLocked<T>(
  sql: pg.Pool,
  statement: string,
  values: readonly unknown[],
  work: () => Promise<T>,
): Promise<T> {
  const client = await sql.connect();
  let failure: Error | undefined;
  try {
    await client.query('BEGIN');
    await client.query(statement, [...values]);
    return await work();
  } finally {
    await client.query('ROLLBACK').catch((error: Error) => {
      failure = error;
    });
    client.release(failure);
  }
}

/** Holds a sale's row, so that no order of it can be committed. */
export const whileCommitsWait = <T>(sql: pg.Pool, saleId: number, work: () => Promise<T>): Promise<T> =>
  whileLocked(sql, 'SELECT FROM sales WHERE id = $1 FOR UPDATE', [saleId], work);

/** Ends the service's connections in the middle of statements. */
export const terminateBackends = (sql: pg.Pool): Promise<unknown> =>
  sql
    .query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stampede' AND state <> 'idle'`,
    )
    .catch(() => {});

/** Freezes a backend that executes a statement or is in a transaction. */
export async function freezeBackend(sql: pg.Pool, forMs: number): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const { rows } = await sql
      .query<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity WHERE application_name = 'stampede' AND state <> 'idle'
         ORDER BY (query ~ 'orders|sold|COMMIT') DESC LIMIT 1`,
      )
      .catch(() => ({ rows: [] }));
    if (rows[0] !== undefined) return freeze(rows[0].pid, forMs);
    await sleep(5);
  }
}
