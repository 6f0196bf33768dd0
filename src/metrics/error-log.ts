/** Errors that repeat: the first is logged at once, the following ones together, so that an outage does not fill a disk. */
import { limits } from '../config/limits.ts';

/** Writes one line. */
export type WriteError = (details: object, message: string) => void;

export interface LoggedError {
  readonly err: unknown;
  /** What failed; with the error's code, or its message, it tells one error from another. */
  readonly doing: string;
  /** Named with it: they do not tell one error from another. */
  readonly details?: object;
  readonly message: string;
}

/** A window that begins when an error is logged. */
interface Window {
  repeated: number;
  last: LoggedError;
}

/** Errors whose windows are open at once; beyond that, errors that share `doing` share a window. */
const WINDOWS_MOST = 200;

/**
 * @returns logs an error, unless the same one was logged less than `windowMs` ago: then the last of these is logged when
 * the window ends, with their number as `repeated`
 */
export function errorLog(write: WriteError, windowMs = limits.repeatedErrorMs): (error: LoggedError) => void {
  const windows = new Map<string, Window>();

  function log({ err, doing, details, message }: LoggedError, repeated?: number): void {
    write({ err, doing, ...details, ...(repeated === undefined ? {} : { repeated }) }, message);
  }

  function open(key: string, last: LoggedError): void {
    const window: Window = { repeated: 0, last };
    windows.set(key, window);
    const end = () => {
      windows.delete(key);
      if (window.repeated === 0) return;
      log(window.last, window.repeated);
      open(key, window.last);
    };
    setTimeout(end, windowMs).unref();
  }

  return (error) => {
    const { code, message } = (error.err ?? {}) as { code?: unknown; message?: unknown };
    const exact = `${error.doing} ${code ?? message ?? error.err}`;
    const key = windows.size < WINDOWS_MOST || windows.has(exact) ? exact : error.doing;
    const window = windows.get(key);
    if (window === undefined) {
      log(error);
      open(key, error);
    } else {
      window.repeated++;
      window.last = error;
    }
  };
}
