/** Reclaims abandoned tasks: those whose worker died, and those that an earlier version queued. Every process does. */

import type { LoopHealth } from '../concurrency/loop-health.ts';
import { repeatedly } from '../concurrency/periodic.ts';
import type { TaskBounds } from '../config/limits.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { TaskTable } from '../store/postgres/task-table.ts';

export interface ReclaimerContext {
  readonly table: TaskTable;
  readonly instruments: Instruments;
  readonly health: LoopHealth;
  readonly bounds: TaskBounds;
  readonly log: (message: string, details: object) => void;
}

/** @returns stops it, and waits for the pass in progress */
export function startReclaimer({
  table,
  instruments,
  health,
  bounds,
  log,
}: ReclaimerContext): () => Promise<void> {
  const { reclaimEveryMs, reclaimBatch, queuedMs, processingMs, attempts } = bounds;
  const reclaim = async () => ({
    queued: await table.reclaimQueued(queuedMs, reclaimBatch),
    processing: await table.reclaimProcessing(processingMs, reclaimBatch, attempts),
  });
  return repeatedly(reclaimEveryMs, async () => {
    const counts = await health.step('reclaim tasks', reclaim);
    for (const [from, count] of Object.entries(counts ?? {})) {
      if (count === 0) continue;
      instruments.tasksReclaimed.inc({ from }, count);
      log('Reclaimed abandoned tasks', { from, count });
    }
  });
}
