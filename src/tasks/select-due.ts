/**
 * How concurrent dispatchers avoid the same tasks (TASK_PICK):
 *
 *   skip-locked   each skips the rows that another has locked; none waits
 *   lock          one at a time, under the lock named by LOCK. For comparison: it costs the lock's round trips, dispatchers do
 *                 not work in parallel, and tasks wait while the lock's server is down
 *
 * Safety does not depend on the lock: the update is conditional, so two holders at once queue different tasks.
 */
import { type Lock, using } from '../locks/lock.ts';
import type { TaskTable } from '../store/postgres/task-table.ts';

/** Marks due tasks as queued, at most `max` waiting ones and `max` retries. @returns their ids */
export type SelectDue = (max: number) => Promise<readonly string[]>;

export function skipLocked(table: TaskTable): SelectDue {
  return (max) => table.queueDue(max, 'skip');
}

const RESOURCE = 'tasks';

export function underLock(
  table: TaskTable,
  lock: Lock,
  { lockTtlMs, lockWaitMs }: { readonly lockTtlMs: number; readonly lockWaitMs: number },
): SelectDue {
  return async (max) => {
    const result = await using(lock, RESOURCE, { ttlMs: lockTtlMs, waitMs: lockWaitMs }, () =>
      table.queueDue(max, 'wait'),
    );
    if (result.kind === 'done') return result.value;
    if (result.kind === 'unavailable') throw new Error(`TASK_PICK=lock: lock unavailable: ${result.reason}`);
    return []; // another dispatcher holds the lock
  };
}
