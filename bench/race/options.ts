/** Options of a race: defaults, bounds, and the validation that the command line and the page share. */

import * as z from 'zod';
import type { StrategyFault } from '../../lab/faults/strategy-fault.ts';
import { strategyFaults } from '../../lab/faults/strategy-faults.ts';
import { strategies } from '../../src/strategies/registry.ts';
import type { RaceOptions } from './view.ts';

const OFFERED = ['service-killed', 'redis-emptied', 'redis-silent', 'postgres-killed', 'postgres-silent'];
/** In the order of the buttons. */
export const raceFaults: readonly StrategyFault[] = strategyFaults.filter(({ name }) =>
  OFFERED.includes(name),
);

/**
 * Sized for two cores that run all lanes and their customers. The fastest strategy sells out after a third of the race, so slower
 * ones sell out too, and the phase after the last unit is visible.
 */
export const defaults: RaceOptions = {
  strategies: ['unsafe', 'for-update', 'segmented-lock', 'lua', 'group-commit'],
  customers: 2_000,
  units: 600,
  rate: 80,
  seed: 1,
};

/** A lane runs two servers and a process, and more than six lanes do not fit on a screen. */
export const bounds = {
  lanes: 6,
  customers: [10, 50_000],
  units: [1, 50_000],
  rate: [1, 1_000],
  seed: [0, 4_294_967_295],
} as const;

const whole = (name: 'customers' | 'units' | 'rate' | 'seed') => {
  const [min, max] = bounds[name];
  const error = `must be a whole number from ${min} to ${max}`;
  return z.int(error).min(min, error).max(max, error).default(defaults[name]);
};
const error = `must be 1 to ${bounds.lanes} different ones`;
const schema = z.object({
  strategies: z
    .array(
      z.string().refine((name) => strategies.has(name), {
        error: ({ input }) =>
          `there is no strategy "${input}"; there are ${[...strategies.keys()].join(', ')}`,
      }),
      error,
    )
    .min(1, error)
    .max(bounds.lanes, error)
    .refine((names) => new Set(names).size === names.length, error)
    .default([...defaults.strategies]),
  customers: whole('customers'),
  units: whole('units'),
  rate: whole('rate'),
  seed: whole('seed'),
});

/** @returns the options with defaults for what is missing, or every mistake */
export function raceOptions(given: unknown): RaceOptions | readonly string[] {
  const { data, error } = schema.safeParse(given);
  if (data !== undefined) return data;
  return error.issues.map(({ path: [name], message }) => `${String(name)}: ${message}`);
}

/** Parses "service-killed@10": the fault and its time, ms; null: an unknown fault, or no time. */
export function plannedFault(text: string): { readonly fault: StrategyFault; readonly atMs: number } | null {
  const [name, seconds = ''] = text.split('@');
  const fault = raceFaults.find((one) => one.name === name);
  return fault && /^\d+(\.\d+)?$/.test(seconds) ? { fault, atMs: Number(seconds) * 1_000 } : null;
}
