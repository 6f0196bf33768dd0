/** Which tier runs, and how much of its long matrices: see test/tiers.ts. */
import { describe, inject } from 'vitest';
import { type Size, WHOLE_IN_QUICK } from '../tiers.ts';

declare module 'vitest' {
  interface ProvidedContext {
    tier: 'quick' | 'full';
    size: Size;
  }
}

export const tier = inject('tier');

/** The value for this run: the cells of a matrix, or a number of repetitions. */
export const bySize = <T>(values: Readonly<Record<Size, T>>): T => values[inject('size')];

/**
 * Which parts of a contract run now. @param name of its test file
 *
 *   core     quick tier, for every implementation
 *   rest     quick tier for the implementations that it covers whole, full tier for the others
 *   timed    full tier: these tests bound a duration, which a busy machine can exceed
 */
export function contractParts(name: string) {
  const isQuick = tier === 'quick';
  return { core: isQuick, rest: isQuick === WHOLE_IN_QUICK.includes(name), timed: !isQuick };
}

/** A `describe` of the full tier: in the quick tier it registers nothing, not even a skipped test. */
export const describeInFull: (name: string, body: () => void) => void = tier === 'full' ? describe : () => {};
