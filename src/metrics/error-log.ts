/** Logs repeated errors once per interval with their count, so that an outage does not fill a disk. */
import { limits } from '../config/limits.ts';

/** Writes one line. */
export type WriteError = (details: object, message: string) => void;

export interface LoggedError {
  readonly err: unknown;
  /** The failed operation. Together with the error's code, or else its message, it identifies the error. */
  readonly operation: string;
  /** Logged with the error; not part of its identity. */
  readonly details?: object;
  readonly message: string;
}

/** The interval that starts when an error is logged. */
interface Window {
  repeated: number;
  last: LoggedError;
}

/** Open windows. Above this number, all errors of one operation share a window. */
const MAX_WINDOWS = 200;

/**
 * @returns a function that logs an error. Repetitions within `windowMs` are not logged; when the window ends, the last one is
 * logged with their count as `repeated`
 */
export function errorLog(write: WriteError, windowMs = limits.repeatedErrorMs): (error: LoggedError) => void {
  const windows = new Map<string, Window>();

  function log({ err, operation, details, message }: LoggedError, repeated?: number): void {
    write({ err, operation, ...details, ...(repeated === undefined ? {} : { repeated }) }, message);
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
    const exact = `${error.operation} ${code ?? message ?? error.err}`;
    const key = windows.size < MAX_WINDOWS || windows.has(exact) ? exact : error.operation;
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
