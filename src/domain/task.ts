/** Effects outside of Stampede, recorded in the transaction of the change that causes them. */

/** An effect outside Stampede; `event` publishes a change. */
export type TaskKind = 'ship' | 'award' | 'refund' | 'event';

/** The changes that events report. The triggers of the tables write them: see the migration 20261126140000_events. */
export const eventTypes = [
  ...(['order.placed', 'order.extended', 'order.paid', 'order.cancelled', 'order.expired'] as const),
  ...(['order.refund-due', 'order.transferred', 'order.offered'] as const),
  ...(['sale.sold-out', 'sale.units-returned'] as const),
] as const;
export type EventType = (typeof eventTypes)[number];

/** The payload of a task of the kind `event`. */
export interface EventPayload {
  readonly type: EventType;
  /** When it happened, ISO 8601, by the database's clock. */
  readonly timestamp: string;
  readonly data: object;
}

/** The transitions: src/store/postgres/task-table.ts. Only earlier versions write `queued`. */
export const taskStates = ['waiting', 'queued', 'processing', 'done', 'retry', 'dead'] as const;
export type TaskState = (typeof taskStates)[number];

/** A task as operators see it. */
export interface Task {
  readonly id: number;
  readonly kind: string;
  /** Unique, such as `ship:<order id>`. */
  readonly key: string | null;
  readonly payload: unknown;
  readonly state: TaskState;
  /** How often a worker has claimed it. */
  readonly attempts: number;
  /** Not before this instant. */
  readonly runAt: string;
  /** The error of the last failed attempt. */
  readonly lastError: string | null;
  readonly createdAt: string;
  /** When it entered its state. */
  readonly updatedAt: string;
}

/** A task that a worker has claimed; `attempts` counts this attempt and so identifies the claim. */
export interface ClaimedTask {
  readonly id: number;
  readonly kind: string;
  /** The receiver recognizes a repeat by it: the task's own key, or one made of its id. */
  readonly idempotencyKey: string;
  readonly payload: unknown;
  readonly attempts: number;
}
