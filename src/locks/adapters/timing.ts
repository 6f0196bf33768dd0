/** The bounds of every client of Redis. */

/** How long a command may take before its outcome counts as unknown. */
export const REPLY_MS = 1_500;

/** A lost connection is replaced soon, because the renewal of a lease may be waiting. @returns the pause before a try, milliseconds */
export const retryMs = (times: number): number => Math.min(25 * 2 ** Math.min(times, 5), 250);
