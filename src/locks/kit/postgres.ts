/** Bounds of the locks in Postgres, in milliseconds. */

/** How long a statement may take before its outcome counts as unknown. */
export const REPLY_MS = 1_500;
/** Shortest TTL: a connection may have to be opened first. */
export const MIN_TTL_MS = 100;
