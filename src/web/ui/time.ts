/** The server's clock on this page, independent of the visitor's clock. */
import { signal } from '@preact/signals';

let aheadMs = 0;

/** The server's time, milliseconds since 1970. */
export const serverNow = (): number => performance.now() + aheadMs;

/** The server's time as a signal, updated five times a second. */
export const now = signal(0);

/** @param ms the server's time when it sent the message */
export function setClock(ms: number): void {
  aheadMs = ms - performance.now();
  now.value = serverNow();
}

setInterval(() => {
  now.value = serverNow();
}, 200);

/** The longest time that a browser's timer waits; a longer one ends at once. */
const LONGEST_MS = 2 ** 31 - 1;

export async function pause(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= LONGEST_MS)
    await new Promise((resolve) => setTimeout(resolve, Math.min(left, LONGEST_MS)));
}
