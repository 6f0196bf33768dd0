/** What is looked for again and again in the background: expired orders, and units that Redis has not heard of. */
import { limits } from '../config/limits.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { UnitMoves } from './unit-moves.ts';

/**
 * Calls `work` again and again, with a pause in between, until stopped. What it throws is told, and it goes on.
 * @returns stops it, and waits for the call under way
 */
export function repeatedly(
  everyMs: number,
  work: () => Promise<unknown>,
  onError: (error: unknown) => void,
): () => Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let running: Promise<void> = Promise.resolve();
  async function run(): Promise<void> {
    try {
      await work();
    } catch (error) {
      onError(error);
    }
    if (!stopped) timer = setTimeout(start, everyMs);
  }
  function start(): void {
    running = run();
  }
  start();
  return async () => {
    stopped = true;
    clearTimeout(timer);
    await running;
  };
}

/** Expires what is due and tells Redis what it has not heard, each until nothing is left, every second. */
export function keepSweeping(
  { lifecycle, moves }: { readonly lifecycle: Lifecycle; readonly moves: UnitMoves | null },
  onError: (doing: string, error: unknown) => void,
): () => Promise<void> {
  const stops = [
    repeatedly(
      limits.sweepEveryMs,
      () => untilNone(() => lifecycle.expireDue()),
      (error) => onError('expire orders', error),
    ),
  ];
  if (moves !== null) {
    stops.push(
      repeatedly(
        limits.sweepEveryMs,
        () => untilNone(() => moves.tell()),
        (error) => onError('tell redis of units', error),
      ),
    );
  }
  return async () => {
    await Promise.all(stops.map((stop) => stop()));
  };
}

async function untilNone(batch: () => Promise<number>): Promise<void> {
  while ((await batch()) > 0);
}
