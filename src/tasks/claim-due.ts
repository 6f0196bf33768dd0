/**
 * How concurrent workers avoid the same tasks (TASK_PICK):
 *
 *   skip-locked   each skips the rows that another has locked; none waits
 *   lock          one claim at a time, under the lock named by LOCK. For comparison: each claim costs the lock's round trips,
 *                 workers do not claim in parallel, and tasks wait while the lock's server is down
 *
 * Safety does not depend on the lock: the update is conditional, so two holders at once claim different tasks.
 */
import type { ClaimedTask } from '../domain/task.ts';
import { type Lock, using } from '../locks/lock.ts';
import type { TaskTable } from '../store/postgres/task-table.ts';

/** Claims due tasks, at most `max`. */
export type ClaimDue = (max: number) => Promise<readonly ClaimedTask[]>;

export function skipLocked(table: TaskTable): ClaimDue {
  return (max) => table.claimDue(max, 'skip');
}

const RESOURCE = 'tasks';

export function underLock(
  table: TaskTable,
  lock: Lock,
  { lockTtlMs, lockWaitMs }: { readonly lockTtlMs: number; readonly lockWaitMs: number },
): ClaimDue {
  return async (max) => {
    const result = await using(lock, RESOURCE, { ttlMs: lockTtlMs, waitMs: lockWaitMs }, () =>
      table.claimDue(max, 'wait'),
    );
    if (result.kind === 'done') return result.value;
    if ('reason' in result) throw new Error(`TASK_PICK=lock: lock ${result.kind}: ${result.reason}`);
    return []; // another worker holds the lock
  };
}
