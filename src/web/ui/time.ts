/** The server's clock on this page: it decides, however wrong the visitor's own clock is. */
import { signal } from '@preact/signals';

let aheadMs = 0;

/** The server's time, milliseconds since 1970. */
export const serverNow = (): number => performance.now() + aheadMs;

/** The same, a few times a second, for what shows it. */
export const now = signal(0);

/** @param ms what the server's clock was a moment ago */
export function setClock(ms: number): void {
  aheadMs = ms - performance.now();
  now.value = serverNow();
}

setInterval(() => {
  now.value = serverNow();
}, 200);

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
