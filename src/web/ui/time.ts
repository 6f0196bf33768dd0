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

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
