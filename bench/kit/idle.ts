/** Measures other work on the machine before a trial, whose figures it would spoil. */
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

const sampleMs = 500;
/** Up to this busy share, a machine is idle. */
const idleShare = 0.2;

interface Ticks {
  readonly idle: number;
  readonly all: number;
}

function ticks(): Ticks {
  const all = cpus().map(({ times }) => times);
  const sum = (numbers: number[]): number => numbers.reduce((total, one) => total + one, 0);
  return { idle: sum(all.map(({ idle }) => idle)), all: sum(all.flatMap((times) => Object.values(times))) };
}

/** Share of the time between two samples that was not idle; 1 when no time has passed. */
function busyShare(before: Ticks, after: Ticks): number {
  const all = after.all - before.all;
  return all <= 0 ? 1 : 1 - (after.idle - before.idle) / all;
}

/** Samples until the machine is idle: at least once, and for `withinMs` at most. @returns the last sample, 0 to 1 */
export async function untilIdle(withinMs: number, signal: AbortSignal): Promise<number> {
  const untilMs = performance.now() + withinMs;
  for (;;) {
    const before = ticks();
    await sleep(sampleMs, undefined, { signal }).catch(() => {});
    const busy = busyShare(before, ticks());
    if (busy <= idleShare || signal.aborted || performance.now() >= untilMs) return busy;
  }
}
