/** Parts of the task outbox as a process has them: its connections, and handlers that record what they did. */
import { expect } from 'vitest';
import { limits, type TaskBounds } from '../../src/config/limits.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { backgroundHealth } from '../../src/metrics/loop-health.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { type TaskTable, taskTable } from '../../src/store/postgres/task-table.ts';
import type { TaskHandler } from '../../src/tasks/handlers.ts';
import { startReclaimer } from '../../src/tasks/reclaimer.ts';
import { type ClaimDue, startWorker, type Worker } from '../../src/tasks/worker.ts';
import type { TestStores } from './stores.ts';

/** As in production, but with more frequent polls. Other durations are not shortened: rows are made older instead. */
export const bounds: TaskBounds = {
  ...limits.tasks,
  pollMs: 50,
  reclaimEveryMs: 100,
  storeRetryMs: 50,
};

/** From Postgres's view, one process. */
export interface Process {
  readonly table: TaskTable;
  /** What was reported as an error. */
  readonly errors: readonly string[];
  readonly log: readonly string[];
  /** Starts a worker, and a reclaimer of abandoned tasks beside it. */
  start(handler: TaskHandler, more?: Partial<TaskBounds>, claimDue?: ClaimDue): Worker;
  /** Stops what it started. */
  close(): Promise<void>;
}

/** @param databaseUrl may lead through a proxy */
export function openProcess(databaseUrl: string): Process {
  const postgres = openPostgres(databaseUrl, () => {});
  const instruments = createInstruments();
  const errors: string[] = [];
  const background = backgroundHealth(instruments.registry, {
    failing: (what, error) => errors.push(`${what}: ${(error as Error).message}`),
    recovered: () => {},
  });
  const health = background.loop('tasks');
  const table = taskTable(postgres, health);
  const lines: string[] = [];
  const log = (message: string, details: object) => lines.push(`${message} ${JSON.stringify(details)}`);
  const stops: (() => Promise<void>)[] = [];
  return {
    table,
    errors,
    log: lines,
    start(handler, more = {}, claimDue: ClaimDue = table.claimDue) {
      const parts = { table, claimDue, instruments, health, log, bounds: { ...bounds, ...more } };
      const worker = startWorker({ ...parts, handlers: new Map([['ship', handler]]) });
      stops.push(worker.stop, startReclaimer(parts));
      return worker;
    },
    async close() {
      await Promise.all(stops.map((stop) => stop()));
      await postgres.close();
    },
  };
}

/** Creates the table `handled`. @returns a handler that adds a row each time it runs */
export async function openLedger({ sql }: TestStores): Promise<TaskHandler> {
  await sql.query(
    'CREATE TABLE handled (task_id bigint, attempt int, at timestamptz NOT NULL DEFAULT clock_timestamp())',
  );
  return async ({ id, attempts }) => {
    await sql.query('INSERT INTO handled (task_id, attempt) VALUES ($1, $2)', [id, attempts]);
  };
}

/** Writes `count` tasks. @returns their ids */
export async function writeTasks({ sql }: TestStores, count: number, kind = 'ship'): Promise<number[]> {
  const { rows } = await sql.query<{ id: string }>(
    `INSERT INTO tasks (kind, key, payload) SELECT $2, $2 || ':' || gen_random_uuid(), jsonb_build_object('n', n)
     FROM generate_series(1, $1::int) AS n RETURNING id`,
    [count, kind],
  );
  return rows.map((row) => Number(row.id));
}

/** How many tasks each state has. */
export async function statesOf({ sql }: TestStores): Promise<Record<string, number>> {
  const { rows } = await sql.query<{ state: string; n: number }>(
    'SELECT state, count(*)::int AS n FROM tasks GROUP BY state',
  );
  return Object.fromEntries(rows.map(({ state, n }) => [state, n]));
}

/** How often tasks were handled: `{ '1': 500 }` is 500 tasks, each once. */
export async function timesHandled({ sql }: TestStores): Promise<Record<string, number>> {
  const { rows } = await sql.query<{ times: number; n: number }>(
    `SELECT times, count(*)::int AS n FROM (
       SELECT count(h.task_id)::int AS times FROM tasks LEFT JOIN handled AS h ON h.task_id = tasks.id GROUP BY tasks.id
     ) AS each GROUP BY times`,
  );
  return Object.fromEntries(rows.map(({ times, n }) => [times, n]));
}

/** Makes the tasks of a state an hour older. */
export async function age({ sql }: TestStores, state: string): Promise<void> {
  await sql.query(`UPDATE tasks SET updated_at = updated_at - interval '1 hour' WHERE state = $1`, [state]);
}

/** Long enough that a machine that freezes for a while does not lose its tasks. */
export const patient = { processingMs: 300_000, handlerMs: 240_000 };

/** Three workers, in processes that `open` opens, claim and handle each of 200 tasks once. @param handler of `openLedger` @param around each claim */
export async function claimByThree(
  stores: TestStores,
  handler: TaskHandler,
  open: () => Process,
  around: (claim: ClaimDue) => ClaimDue = (claim) => claim,
): Promise<void> {
  const ids = await writeTasks(stores, 200);
  const claimed: number[] = [];
  const workers = new Set<Process>();
  for (const process of [open(), open(), open()]) {
    const claimDue = around(process.table.claimDue);
    const handle: TaskHandler = async (task, signal) => {
      await handler(task, signal);
      workers.add(process);
    };
    process.start(handle, patient, async (max) => {
      const claim = await claimDue(max);
      claimed.push(...claim.map(({ id }) => id));
      return claim;
    });
  }
  await expect.poll(() => statesOf(stores)).toEqual({ done: ids.length });
  const again = 'SELECT id, attempts, last_error FROM tasks WHERE attempts <> 1 OR last_error IS NOT NULL';
  expect((await stores.sql.query(again)).rows).toEqual([]);
  expect(claimed.sort((a, b) => a - b)).toEqual(ids);
  expect(await timesHandled(stores)).toEqual({ 1: ids.length });
  expect(workers.size).toBeGreaterThan(1);
}
