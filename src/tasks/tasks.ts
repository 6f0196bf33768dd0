/** The outbox of one process: a dispatcher, a worker, and what operators may do. */
import { limits } from '../config/limits.ts';
import type { Task, TaskState } from '../domain/task.ts';
import type { Lock } from '../locks/lock.ts';
import type { BackgroundHealth } from '../metrics/background.ts';
import { type Instruments, measureTasks } from '../metrics/instruments.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { taskTable } from '../store/postgres/task-table.ts';
import type { RedisStore } from '../store/redis/connection.ts';
import { startDispatcher } from './dispatcher.ts';
import type { TaskHandlers } from './handlers.ts';
import { skipLocked, underLock } from './pick.ts';
import { taskQueue } from './queue.ts';
import { startWorker } from './worker.ts';

export interface TasksContext {
  readonly postgres: PostgresStore;
  readonly redis: RedisStore;
  /** For TASK_PICK=lock. */
  readonly lock: Lock;
  readonly taskPick: 'skip-locked' | 'lock';
  readonly lockTtlMs: number;
  readonly lockWaitMs: number;
  readonly handlers: TaskHandlers;
  readonly instruments: Instruments;
  readonly log: (message: string, details: object) => void;
  readonly background: BackgroundHealth;
}

/** What operators may do. */
export interface TaskDesk {
  /** Newest first; null: of every state. */
  list(state: TaskState | null, most: number): Promise<readonly Task[]>;
  /** A dead task waits again. @returns the task, `null` when there is none, and what it is when it is not dead */
  retry(id: number): Promise<{ readonly kind: 'waiting' | 'not-dead'; readonly task: Task } | null>;
}

export interface Tasks extends TaskDesk {
  stop(): Promise<void>;
}

export function startTasks(context: TasksContext): Tasks {
  const { postgres, redis, lock, instruments } = context;
  const health = context.background.loop('tasks');
  const table = taskTable(postgres, health);
  const parts = {
    ...context,
    table,
    queue: taskQueue(redis),
    pick: context.taskPick === 'lock' ? underLock(table, lock, context) : skipLocked(table),
    health,
    bounds: limits.tasks,
  };
  const dispatcher = startDispatcher(parts);
  const worker = startWorker(parts);
  measureTasks(instruments, () => table.countOpen());
  return {
    list: table.list,
    async retry(id) {
      const revived = await table.revive(id);
      if (revived !== null) {
        dispatcher.wake();
        return { kind: 'waiting', task: revived };
      }
      const task = await table.get(id);
      return task === null ? null : { kind: 'not-dead', task };
    },
    async stop() {
      await Promise.all([dispatcher.stop(), worker.stop()]);
    },
  };
}
