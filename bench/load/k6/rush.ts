/**
 * k6: a rush. Attempts arrive at a rate that grows from 0 to RATE over the first quarter of the time and then holds,
 * whether earlier ones were answered or not. An arrival that finds all VUS busy is dropped, and counted by k6 as
 * `dropped_iterations`. By hand: `k6 run -e URL=http://127.0.0.1:3000 -e STOCK=100 bench/load/k6/rush.ts`; what can be
 * set is in purchase.ts.
 */
import type { Options } from 'k6/options';
import {
  attempt,
  commonOptions,
  durationMs,
  gracefulStop,
  ratePerSecond,
  type Sale,
  virtualUsers,
} from './purchase.ts';

export { handleSummary, setup, teardown } from './purchase.ts';

const rampMs = Math.round(durationMs / 4);
/** k6 takes whole numbers only: over this many seconds, a rate with a fraction is one. */
const unitS = Number.isInteger(ratePerSecond) ? 1 : 1_000;
const target = Math.round(ratePerSecond * unitS);

export const options: Options = {
  ...commonOptions,
  scenarios: {
    rush: {
      executor: 'ramping-arrival-rate',
      startRate: 0,
      timeUnit: `${unitS}s`,
      // All of them at the start: one that is added under load makes k6 late.
      preAllocatedVUs: virtualUsers,
      stages: [
        { target, duration: `${rampMs}ms` },
        { target, duration: `${Math.round(durationMs) - rampMs}ms` },
      ],
      gracefulStop,
    },
  },
};

export default function (sale: Sale): void {
  attempt(sale);
}
