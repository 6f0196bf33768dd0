import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 25;

/** Waits until `holds` accepts a value of `probe`. @throws with the last value after `ms` */
export async function eventually<T>(
  probe: () => Promise<T>,
  holds: (value: T) => boolean,
  ms = 90_000,
): Promise<T> {
  const untilMs = performance.now() + ms;
  for (;;) {
    const value = await probe();
    if (holds(value)) return value;
    if (performance.now() > untilMs) throw new Error(`not within ${ms} ms: ${JSON.stringify(value)}`);
    await sleep(POLL_MS);
  }
}
