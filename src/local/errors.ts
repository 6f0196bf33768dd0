/** Errors of the local stores. Each message says what happened and what to do next. */
import { OperatorError } from '../config/errors.ts';

/** Stable codes, one for each remedy. */
export type LocalStoreErrorCode =
  | 'folder-in-use'
  | 'folder-unusable'
  | 'platform-unsupported'
  | 'port-taken'
  | 'postgres-binaries'
  | 'postgres-failed'
  | 'postgres-version'
  | 'redis-failed'
  | 'redis-install-failed'
  | 'redis-missing'
  | 'redis-too-old'
  | 'server-account'
  | 'stores-failed';

/** A local store cannot be started or stopped. */
export class LocalStoreError extends OperatorError {
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

/** What to do about stores that another service uses. @param pid of that service */
export const inUse = (folder: string, pid: number): string =>
  `The local stores in ${folder} are in use by another service (pid ${pid}). Stop it (kill ${pid}), run this service in another folder, or set DATABASE_URL and REDIS_URL to your own stores.`;

/** What to do about a folder that cannot be written for want of a disk, not of a right; null for other errors. */
export function diskAdvice(error: unknown, folder: string): string | null {
  const elsewhere = 'or set DATABASE_URL and REDIS_URL to your own stores';
  switch (systemCode(error)) {
    case 'EROFS':
      return `The file system is read-only. Run a copy of the project in a folder that can be written, ${elsewhere}.`;
    case 'ENOSPC':
    case 'EDQUOT':
      return `The disk is full, or a quota is used up (df -h '${folder}'; df -i '${folder}'). Free some space, ${elsewhere}.`;
    default:
      return null;
  }
}
