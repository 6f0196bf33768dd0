/**
 * Receivers of tasks that are not configured, or fail. A kind of tasks whose webhook is not configured waits in Postgres: this process claims
 * none of it, another one that has the URL may. While such tasks wait, or tasks of a kind are dead or were tried several times, the loop
 * `receivers` is failing, which /readyz, the console and the metrics show.
 *
 * Only local use needs no receiver: a service that starts its own Postgres, or that is configured with the URL `none`, logs its tasks
 * and marks them done.
 */

import type { LoopHealth } from '../concurrency/loop-health.ts';
import { repeatedly } from '../concurrency/periodic.ts';
import type { TaskBounds } from '../config/limits.ts';
import type { TaskKind } from '../domain/task.ts';
import type { TaskTable } from '../store/postgres/task-table.ts';

/** The variable that names the receiver of a kind. */
export const RECEIVERS: Readonly<Record<TaskKind, string>> = {
  ship: 'TASK_WEBHOOK_URL',
  award: 'TASK_WEBHOOK_URL',
  refund: 'TASK_WEBHOOK_URL',
  event: 'EVENT_WEBHOOK_URL',
};

export interface ReceiversContext {
  readonly table: TaskTable;
  /** The kinds without a receiver. */
  readonly unreceived: readonly TaskKind[];
  readonly health: LoopHealth;
  readonly bounds: TaskBounds;
}

const KINDS = Object.keys(RECEIVERS) as TaskKind[];

/** Reports kinds of which tasks wait for a receiver, or keep failing. @returns stops it, and waits for the pass in progress */
export function reportReceivers({
  table,
  unreceived,
  health,
  bounds,
}: ReceiversContext): () => Promise<void> {
  return repeatedly(bounds.reclaimEveryMs, async () => {
    const waiting = await health.step('read waiting tasks', () => table.waitingOf(unreceived));
    const failing = await health.step('read failing tasks', () => table.failingOf(KINDS));
    if (waiting === null || failing === null) return;
    for (const kind of KINDS) {
      const item = `${kind} tasks`;
      const error = failing.get(kind);
      if (waiting.has(kind)) health.failed(item, new Error(`waiting, because ${RECEIVERS[kind]} is not set`));
      else if (error !== undefined) health.failed(item, new Error(`retried or dead: ${error}`));
      else health.succeeded(item);
    }
  });
}
