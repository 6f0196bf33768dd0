/**
 * k6: a fixed number of attempts, as fast as VUS virtual users send them; each begins its next attempt when its last one
 * was answered. What DURATION_S leaves is counted by k6 as `dropped_iterations`. By hand:
 * `k6 run -e URL=http://127.0.0.1:3000 -e STOCK=100 bench/load/k6/fixed.ts`; what can be set is in purchase.ts.
 */
import type { Options } from 'k6/options';
import {
  attempt,
  commonOptions,
  durationMs,
  gracefulStop,
  listLength,
  type Sale,
  virtualUsers,
} from './purchase.ts';

export { handleSummary, setup, teardown } from './purchase.ts';

export const options: Options = {
  ...commonOptions,
  scenarios: {
    fixed: {
      executor: 'shared-iterations',
      vus: Math.min(virtualUsers, listLength),
      iterations: listLength,
      maxDuration: `${Math.round(durationMs)}ms`,
      gracefulStop,
    },
  },
};

export default function (sale: Sale): void {
  attempt(sale);
}
