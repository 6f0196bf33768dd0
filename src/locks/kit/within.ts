/**
 * Waits for a promise, at most `ms` and until one of the signals fires. A wait that is over leaves no timer and no listener behind.
 * (`AbortSignal.any` on a lock's long-lived signal leaks about 60 bytes a call: measured, Node 20.)
 * @param promise continues after the wait; its later error is ignored
 * @param ms undefined: without a bound
 * @returns the promise's value, or null if the time or a signal ended the wait
 */
export function within<T>(
  promise: Promise<T>,
  ms: number | undefined,
  ...signals: readonly AbortSignal[]
): Promise<T | null> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener('abort', end);
    };
    const end = () => {
      stop();
      resolve(null);
    };
    const timer = ms === undefined ? undefined : setTimeout(end, ms);
    for (const signal of signals) signal.addEventListener('abort', end, { once: true });
    promise.finally(stop).then(resolve, reject);
    if (signals.some(({ aborted }) => aborted)) end();
  });
}
