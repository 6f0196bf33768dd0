/**
 * What can go wrong with the local stores. Every message is written for the person at the terminal: it says
 * what happened and what to do next. `code` is stable, for callers that decide by it.
 */

/** Stable names of the failures, one for each thing that a person would do next. */
export type LocalStoreErrorCode =
  | 'aborted'
  | 'folder-in-use'
  | 'folder-unusable'
  | 'guardian-failed'
  | 'platform-unsupported'
  | 'port-taken'
  | 'postgres-account'
  | 'postgres-binaries'
  | 'postgres-failed'
  | 'postgres-version'
  | 'redis-failed'
  | 'redis-install-failed'
  | 'redis-missing'
  | 'redis-too-old';

/** A local store cannot be started or stopped. */
export class LocalStoreError extends Error {
  override readonly name = 'LocalStoreError';
  readonly code: LocalStoreErrorCode;

  constructor(code: LocalStoreErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** The `code` of a Node system error (`ENOENT`, `EACCES`, …), or null. */
export function systemCode(error: unknown): string | null {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
  return typeof code === 'string' ? code : null;
}

/** Throws `aborted` once the signal has fired: start-up checks it between its steps. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new LocalStoreError('aborted', 'The start of the local stores was cut short.');
}
