/** Periodic work in the background. */
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Calls `work`, which must not throw, again and again, with a pause in between, until stopped.
 * @returns stops it, and waits for the call in progress
 */
export function repeatedly(
  everyMs: number,
  work: (isStopped: () => boolean) => Promise<unknown>,
): () => Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let running: Promise<void> = Promise.resolve();
  async function run(): Promise<void> {
    await work(() => stopped);
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

/**
 * Calls `batch` until it has nothing left to do. After each batch it pauses for as long as the batch took, which leaves half of
 * the stores' time to requests.
 * @param batch returns how many items it processed
 */
export async function untilNone(batch: () => Promise<number>, isStopped: () => boolean): Promise<void> {
  while (!isStopped()) {
    const startedMs = performance.now();
    if ((await batch()) === 0) return;
    await sleep(performance.now() - startedMs);
  }
}
