/**
 * One claim of due tasks at a time, under a lock. Each claim costs the lock's round trips, workers do not claim in parallel, and tasks wait
 * while the lock's server is down. Safety does not depend on the lock: two holders at once claim different tasks.
 */
import { type Lock, using } from '../../../src/locks/lock.ts';
import type { ClaimDue } from '../../../src/tasks/worker.ts';

const RESOURCE = 'tasks';

export const claimsUnderLock =
  ({ lockTtlMs: ttlMs, lockWaitMs: waitMs }: { readonly lockTtlMs: number; readonly lockWaitMs: number }) =>
  (claim: ClaimDue, lock: Lock): ClaimDue =>
  async (max) => {
    const result = await using(lock, RESOURCE, { ttlMs, waitMs }, () => claim(max));
    if (result.kind === 'done') return result.value;
    if ('reason' in result) throw new Error(`claims under a lock: ${result.kind}: ${result.reason}`);
    return []; // another worker holds the lock
  };
