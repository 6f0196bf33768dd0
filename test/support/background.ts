/** The health of background work, for parts that are tested without a service. */

import { createInstruments } from '../../src/metrics/instruments.ts';
import { type BackgroundHealth, backgroundHealth } from '../../src/metrics/loop-health.ts';

/** @param failing called with each failure that a service would log */
export function testHealth(
  failing: (what: string, error: unknown) => void = () => {},
  nowMs?: () => number,
): BackgroundHealth {
  return backgroundHealth(createInstruments().registry, { failing, recovered: () => {} }, nowMs);
}
