/**
 * The dispatcher: from Postgres into the stream. One in each process; they need not know of each other.
 *
 *   look at the stream ──no answer──▶ nothing is marked: tasks wait in Postgres
 *       │ └──full──▶ look again soon
 *       ▼
 *   mark due tasks as queued ──▶ enqueue them ──failed──▶ they wait again
 *                            └──died in between──▶ taken back after `queuedMs`, by any dispatcher
 *
 * Every few seconds it also takes back what nobody claimed and what dead workers were processing, whether Redis
 * answers or not.
 */
import type { TaskBounds } from '../config/limits.ts';
import type { LoopHealth } from '../metrics/background.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { TaskTable } from '../store/postgres/task-table.ts';
import type { PickDue } from './pick.ts';
import type { TaskQueue } from './queue.ts';

export interface DispatcherContext {
  readonly table: TaskTable;
  readonly queue: TaskQueue;
  readonly pick: PickDue;
  readonly instruments: Instruments;
  readonly health: LoopHealth;
  readonly bounds: TaskBounds;
  readonly log: (message: string, details: object) => void;
}

/** One pass. @returns how many tasks it enqueued, or `full` @throws what the stores throw; the next pass goes on */
export async function dispatchOnce(
  { table, queue, pick }: Pick<DispatcherContext, 'table' | 'queue' | 'pick'>,
  bounds: TaskBounds,
): Promise<number | 'full'> {
  const room = bounds.queue - (await queue.length());
  if (room <= 0) return 'full';
  const ids = await pick(Math.min(bounds.batch, room));
  if (ids.length === 0) return 0;
  try {
    await queue.enqueue(ids);
  } catch (error) {
    // Entries that got through find their tasks waiting, and are dropped.
    await table.giveBack(ids).catch(() => {});
    throw error;
  }
  return ids.length;
}

/** One look for what others left. @returns how many tasks were taken back @throws what Postgres throws */
export async function takeBackOnce(
  table: TaskTable,
  bounds: TaskBounds,
): Promise<{ readonly queued: number; readonly processing: number }> {
  return {
    queued: await table.takeBackQueued(bounds.queuedMs, bounds.queue),
    processing: await table.takeBackProcessing(bounds.processingMs, bounds.queue, bounds.attempts),
  };
}

export interface Dispatcher {
  /** Looks for due tasks now, rather than at the next time. */
  wake(): void;
  /** Waits for the pass under way. */
  stop(): Promise<void>;
}

/** Passes, one after the other, until stopped. */
export function startDispatcher(context: DispatcherContext): Dispatcher {
  const { table, queue, instruments, health, bounds, log } = context;
  let stopped = false;
  let woken = false;
  let end = () => {};
  let takeBackAtMs = 0;

  function pause(ms: number): Promise<void> {
    if (stopped || woken) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      end = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async function takeBack(): Promise<void> {
    const counts = await health.step('take tasks back', () => takeBackOnce(table, bounds));
    for (const [from, count] of Object.entries(counts ?? {})) {
      if (count === 0) continue;
      instruments.tasksTakenBack.inc({ from }, count);
      log('took back tasks that somebody left', { from, count });
    }
    // Twice as old: whatever an entry hinted at has been taken back.
    await health.step('trim the stream of tasks', () => queue.trim(2 * bounds.queuedMs));
  }

  async function run(): Promise<void> {
    while (!stopped) {
      woken = false;
      const enqueued = await health.step('dispatch tasks', () => dispatchOnce(context, bounds));
      if (performance.now() >= takeBackAtMs) {
        await takeBack();
        takeBackAtMs = performance.now() + bounds.takeBackEveryMs;
      }
      if (enqueued === 'full') await pause(bounds.fullPollMs);
      else if (enqueued === null || enqueued < bounds.batch) await pause(bounds.pollMs);
    }
  }

  const running = run();
  return {
    wake() {
      woken = true;
      end();
    },
    async stop() {
      stopped = true;
      end();
      await running;
    },
  };
}
