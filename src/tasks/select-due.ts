/**
 * How dispatchers keep out of each other's way, TASK_PICK:
 *
 *   skip-locked   each passes over the rows that another is marking; nobody waits
 *   lock          one at a time, under the lock that LOCK names; for comparison. It costs the lock's round trips, one
 *                 dispatcher works at a time, and tasks wait for as long as the lock's server is away
 *
 * The lock is not what makes it safe: the mark is conditional, so that two who hold it at once mark different tasks.
 */
import { type Lock, using } from '../locks/lock.ts';
import type { TaskTable } from '../store/postgres/task-table.ts';

/** Marks at most so many due tasks of either state. @returns their numbers */
export type PickDue = (most: number) => Promise<readonly string[]>;

export function skipLocked(table: TaskTable): PickDue {
  return (most) => table.pick(most, 'skip');
}

const RESOURCE = 'tasks';

export function underLock(
  table: TaskTable,
  lock: Lock,
  { lockTtlMs, lockWaitMs }: { readonly lockTtlMs: number; readonly lockWaitMs: number },
): PickDue {
  return async (most) => {
    const result = await using(lock, RESOURCE, { ttlMs: lockTtlMs, waitMs: lockWaitMs }, () =>
      table.pick(most, 'meet'),
    );
    if (result.kind === 'done') return result.value;
    if (result.kind === 'unavailable') throw new Error(`the lock of TASK_PICK=lock: ${result.reason}`);
    return []; // another dispatcher picks
  };
}
