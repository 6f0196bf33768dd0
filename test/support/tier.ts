/** Which tier runs: see test/tiers.ts. */
import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    tier: 'quick' | 'full';
  }
}

export const tier = inject('tier');

/**
 * Which parts of an interface's contract run now.
 *
 *   core     quick tier, for every implementation
 *   rest     quick tier for the implementations that it covers whole, full tier for the others
 *   timed    full tier: these tests bound a duration, which a busy machine can exceed
 */
export function contractParts({ whole }: { readonly whole: boolean }) {
  const isQuick = tier === 'quick';
  return { core: isQuick, rest: isQuick === whole, timed: !isQuick };
}
