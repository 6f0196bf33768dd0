/** What is looked for again and again in the background: expired orders, and units that Redis has not heard of. */
import { setTimeout as sleep } from 'node:timers/promises';
import { limits } from '../config/limits.ts';
import type { BackgroundHealth } from '../metrics/background.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { OutboxRelay } from './outbox-relay.ts';

/**
 * Calls `work`, which does not throw, again and again, with a pause in between, until stopped.
 * @returns stops it, and waits for the call under way
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
 * Expires what is due and tells Redis what it has not heard, each until nothing is left, every second. After each batch it
 * rests for as long as the batch took, so that those who buy meanwhile have the stores for the other half of the time.
 */
export function keepSweeping(
  { lifecycle, moves }: { readonly lifecycle: Lifecycle; readonly moves: OutboxRelay | null },
  background: BackgroundHealth,
): () => Promise<void> {
  const health = background.loop('expiry');
  const stops = [
    repeatedly(limits.sweepEveryMs, (isStopped) =>
      health.step('expire orders', () => untilNone(() => lifecycle.expireDue(), isStopped)),
    ),
  ];
  // It notes its failures by itself.
  if (moves !== null) {
    stops.push(repeatedly(limits.sweepEveryMs, (isStopped) => untilNone(() => moves.tell(), isStopped)));
  }
  return async () => {
    await Promise.all(stops.map((stop) => stop()));
  };
}

async function untilNone(batch: () => Promise<number>, isStopped: () => boolean): Promise<void> {
  while (!isStopped()) {
    const startedMs = performance.now();
    if ((await batch()) === 0) return;
    await sleep(performance.now() - startedMs);
  }
}
