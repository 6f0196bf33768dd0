/** What must happen outside of Stampede, written in the transaction of the change that causes it. */

/** Who moves a task from one state to the next: src/store/postgres/task-table.ts. */
export const taskStates = ['waiting', 'queued', 'processing', 'done', 'retry', 'dead'] as const;
export type TaskState = (typeof taskStates)[number];

/** A task as operators see it. */
export interface Task {
  readonly id: number;
  readonly kind: string;
  /** What there is once, such as `ship:<order id>`. */
  readonly key: string | null;
  readonly payload: unknown;
  readonly state: TaskState;
  /** How often a worker has claimed it. */
  readonly attempts: number;
  /** Not before this instant. */
  readonly runAt: string;
  /** Why the last attempt that failed did so. */
  readonly lastError: string | null;
  readonly createdAt: string;
  /** When it got into its state. */
  readonly updatedAt: string;
}

/** A task that a worker has claimed; `attempts` counts this attempt, and tells its claim from every other. */
export interface ClaimedTask {
  readonly id: number;
  readonly kind: string;
  /** For the outside, to know a repeat by: the task's own key, or one made of its number. */
  readonly idempotencyKey: string;
  readonly payload: unknown;
  readonly attempts: number;
}
