/** Failures of loops: one that meets the same failure every second tells it once, and counts the others. */
import type { Instruments } from '../metrics/instruments.ts';

export interface Watch {
  /**
   * Does the work and tells when it throws, unless it threw the last time, too.
   * @returns null when it threw
   */
  over<T>(doing: string, work: () => Promise<T>): Promise<T | null>;
}

export function watch(
  instruments: Pick<Instruments, 'storeErrors'>,
  onError: (doing: string, error: unknown) => void,
): Watch {
  const failing = new Set<string>();
  return {
    async over(doing, work) {
      try {
        const value = await work();
        failing.delete(doing);
        return value;
      } catch (error) {
        if (failing.has(doing)) instruments.storeErrors.inc({ store: 'any', doing });
        else onError(doing, error);
        failing.add(doing);
        return null;
      }
    },
  };
}
