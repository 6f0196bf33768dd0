/**
 * The dispatcher moves due tasks from Postgres into the stream. Every process runs one; they need no coordination.
 *
 *   read the stream's length ──no answer──▶ nothing is marked: tasks wait in Postgres
 *       │ └──full──▶ poll again soon
 *       ▼
 *   mark due tasks as queued ──▶ enqueue them ──failed──▶ they return to waiting
 *                            └──the process dies here──▶ reclaimed after `queuedMs` by any dispatcher
 *
 * Every few seconds it also reclaims queued tasks that were not claimed and tasks whose worker died, even while Redis is down.
 */
import type { TaskBounds } from '../config/limits.ts';
import type { LoopHealth } from '../metrics/background.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { TaskTable } from '../store/postgres/task-table.ts';
import type { TaskQueue } from './queue.ts';
import type { SelectDue } from './select-due.ts';

export interface DispatcherContext {
  readonly table: TaskTable;
  readonly queue: TaskQueue;
  readonly selectDue: SelectDue;
  readonly instruments: Instruments;
  readonly health: LoopHealth;
  readonly bounds: TaskBounds;
  readonly log: (message: string, details: object) => void;
}

/** One pass. @returns the number of tasks enqueued, or `full` @throws the stores' errors; the next pass retries */
export async function dispatchOnce(
  { table, queue, selectDue }: Pick<DispatcherContext, 'table' | 'queue' | 'selectDue'>,
  bounds: TaskBounds,
): Promise<number | 'full'> {
  const capacity = bounds.queue - (await queue.length());
  if (capacity <= 0) return 'full';
  const ids = await selectDue(Math.min(bounds.batch, capacity));
  if (ids.length === 0) return 0;
  try {
    await queue.enqueue(ids);
  } catch (error) {
    // Workers drop entries that reached the stream, because their tasks are waiting again.
    await table.returnToWaiting(ids).catch(() => {});
    throw error;
  }
  return ids.length;
}

/** Reclaims abandoned tasks. @returns their number by state @throws errors of Postgres */
export async function reclaimOnce(
  table: TaskTable,
  bounds: TaskBounds,
): Promise<{ readonly queued: number; readonly processing: number }> {
  return {
    queued: await table.reclaimQueued(bounds.queuedMs, bounds.queue),
    processing: await table.reclaimProcessing(bounds.processingMs, bounds.queue, bounds.attempts),
  };
}

export interface Dispatcher {
  /** Starts the next pass now. */
  wake(): void;
  /** Waits for the current pass. */
  stop(): Promise<void>;
}

/** Runs passes, one after the other, until stopped. */
export function startDispatcher(context: DispatcherContext): Dispatcher {
  const { table, queue, instruments, health, bounds, log } = context;
  let stopped = false;
  let woken = false;
  let endPause = () => {};
  let reclaimAtMs = 0;

  function pause(ms: number): Promise<void> {
    if (stopped || woken) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async function reclaim(): Promise<void> {
    const counts = await health.step('reclaim tasks', () => reclaimOnce(table, bounds));
    for (const [from, count] of Object.entries(counts ?? {})) {
      if (count === 0) continue;
      instruments.tasksReclaimed.inc({ from }, count);
      log('Reclaimed abandoned tasks', { from, count });
    }
    // An entry twice as old as the timeout names a task that was reclaimed.
    await health.step('trim the task stream', () => queue.trim(2 * bounds.queuedMs));
  }

  async function run(): Promise<void> {
    while (!stopped) {
      woken = false;
      const enqueued = await health.step('dispatch tasks', () => dispatchOnce(context, bounds));
      if (performance.now() >= reclaimAtMs) {
        await reclaim();
        reclaimAtMs = performance.now() + bounds.reclaimEveryMs;
      }
      if (enqueued === 'full') await pause(bounds.fullPollMs);
      else if (enqueued === null || enqueued < bounds.batch) await pause(bounds.pollMs);
    }
  }

  const running = run();
  return {
    wake() {
      woken = true;
      endPause();
    },
    async stop() {
      stopped = true;
      endPause();
      await running;
    },
  };
}
