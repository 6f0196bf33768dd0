/**
 * Task processing of one process, on Postgres alone: a worker, a loop that reclaims abandoned tasks, and the operations for
 * administrators.
 */
import type pg from 'pg';
import { limits } from '../config/limits.ts';
import type { Task, TaskKind, TaskState } from '../domain/task.ts';
import { type Instruments, measureTasks } from '../metrics/instruments.ts';
import type { BackgroundHealth } from '../metrics/loop-health.ts';
import { type IdempotencyKey, once } from '../store/postgres/idempotency.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { taskTable } from '../store/postgres/task-table.ts';
import type { TaskHandler } from './handlers.ts';
import { reportReceivers } from './receivers.ts';
import { startReclaimer } from './reclaimer.ts';
import { type ClaimDue, startWorker } from './worker.ts';

export interface TasksContext {
  readonly postgres: PostgresStore;
  /** What happens around each claim: see `ServiceOptions`. */
  readonly aroundClaims?: ((claim: ClaimDue) => ClaimDue) | undefined;
  /** Null: tasks of the kind wait for another process that has one. */
  readonly handlers: Readonly<Record<TaskKind, TaskHandler | null>>;
  readonly instruments: Instruments;
  readonly log: (message: string, details: object) => void;
  readonly background: BackgroundHealth;
}

/** Operations for administrators. */
export interface TaskAdmin {
  /** Newest first. @param state null: every state */
  list(state: TaskState | null, max: number): Promise<readonly Task[]>;
  /** Number of tasks in each state except `done`. */
  countOpen(): Promise<ReadonlyMap<TaskState, number>>;
  /**
   * Returns a dead task to `waiting`.
   * @param key of a request that has one: it happens once, and a repeat gets the same task
   * @returns null when it does not exist; `not-dead` with the task as it is
   */
  retry(id: number, key?: IdempotencyKey | null): Promise<DeadTaskResult>;
  /**
   * Ends a dead task without its effect; the later ones of its subject follow.
   * @param actor for the audit log
   * @param key as in `retry`
   * @returns as `retry`
   */
  discard(id: number, actor: string, key?: IdempotencyKey | null): Promise<DeadTaskResult>;
}

type DeadTaskResult = { readonly kind: 'changed' | 'not-dead'; readonly task: Task } | null;

export interface Tasks extends TaskAdmin {
  stop(): Promise<void>;
}

export function startTasks(context: TasksContext): Tasks {
  const { postgres, instruments, background, aroundClaims = (claim) => claim } = context;
  const health = background.loop('tasks');
  const handlers = new Map<string, TaskHandler>();
  const unreceived: TaskKind[] = [];
  for (const [kind, handler] of Object.entries(context.handlers) as [TaskKind, TaskHandler | null][])
    if (handler === null) unreceived.push(kind);
    else handlers.set(kind, handler);
  const table = taskTable(postgres, health, unreceived);
  const parts = {
    ...context,
    table,
    handlers,
    claimDue: aroundClaims(table.claimDue),
    health,
    bounds: limits.tasks,
  };
  const worker = startWorker(parts);
  const receivers = { table, unreceived, bounds: limits.tasks, health: background.loop('receivers') };
  const stops = [worker.stop, startReclaimer(parts), reportReceivers(receivers)];
  measureTasks(instruments, () => table.countOpen());
  type Change = (client: pg.PoolClient) => Promise<Task | null>;
  async function changeDead(id: number, key: IdempotencyKey | null, change: Change): Promise<DeadTaskResult> {
    const changed = await once(postgres, key, async (client) => {
      const value = await change(client);
      return { commit: value !== null, value };
    });
    if (changed !== null) {
      worker.wake();
      return { kind: 'changed', task: changed };
    }
    const task = await table.get(id);
    return task === null ? null : { kind: 'not-dead', task };
  }
  return {
    list: table.list,
    countOpen: table.countOpen,
    retry: (id, key = null) => changeDead(id, key, (client) => table.revive(id, client)),
    discard: (id, actor, key = null) => changeDead(id, key, (client) => table.discard(id, actor, client)),
    async stop() {
      await Promise.all(stops.map((stop) => stop()));
    },
  };
}
