/** How busy the machine is before a turn begins: other work on it makes figures low, and by how much nobody can tell. */
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

/** Each look takes so long. */
const LOOK_MS = 500;
/** A machine that is this busy, or less, is at rest. */
const AT_REST = 0.2;

interface Ticks {
  readonly idle: number;
  readonly all: number;
}

function ticks(): Ticks {
  return cpus().reduce(
    ({ idle, all }, { times }) => ({
      idle: idle + times.idle,
      all: all + times.idle + times.user + times.nice + times.sys + times.irq,
    }),
    { idle: 0, all: 0 },
  );
}

/** Share of the processors' time between two looks that was not idle; 1 when no time has passed: nothing is known. */
export function busyShare(before: Ticks, after: Ticks): number {
  const all = after.all - before.all;
  return all <= 0 ? 1 : 1 - (after.idle - before.idle) / all;
}

/**
 * Looks until the machine is at rest, for at most so long, and at least once.
 * @returns how busy it was at the last look, from 0 to 1
 */
export async function untilAtRest(withinMs: number, signal: AbortSignal, look = ticks): Promise<number> {
  const untilMs = performance.now() + withinMs;
  for (;;) {
    const before = look();
    await sleep(LOOK_MS, undefined, { signal }).catch(() => {});
    const busy = busyShare(before, look());
    if (busy <= AT_REST || signal.aborted || performance.now() >= untilMs) return busy;
  }
}
