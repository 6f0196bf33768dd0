/** Options of a race: defaults, bounds, and the validation that the command line and the page share. */

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

/** @returns the options with defaults for what is missing, or every mistake */
export function raceOptions(given: Readonly<Record<string, unknown>>): RaceOptions | readonly string[] {
  const mistakes: string[] = [];
  const whole = (name: 'customers' | 'units' | 'rate' | 'seed'): number => {
    const value = given[name] ?? defaults[name];
    const [min, max] = bounds[name];
    if (Number.isSafeInteger(value) && Number(value) >= min && Number(value) <= max) return Number(value);
    mistakes.push(`${name}: must be a whole number from ${min} to ${max}`);
    return min;
  };
  const names = given.strategies ?? defaults.strategies;
  const isList = Array.isArray(names) && new Set(names).size === names.length;
  if (!isList || names.length < 1 || names.length > bounds.lanes)
    mistakes.push(`strategies: must be 1 to ${bounds.lanes} different ones`);
  for (const name of isList ? names : []) {
    if (strategies.has(String(name))) continue;
    mistakes.push(`there is no strategy "${name}"; there are ${[...strategies.keys()].join(', ')}`);
  }
  const options: RaceOptions = {
    strategies: names as string[],
    ...{ customers: whole('customers'), units: whole('units'), rate: whole('rate'), seed: whole('seed') },
  };
  return mistakes.length > 0 ? mistakes : options;
}

/** Parses "service-killed@10": the fault and its time, ms; null: an unknown fault, or no time. */
export function plannedFault(text: string): { readonly fault: StrategyFault; readonly atMs: number } | null {
  const [name, seconds = ''] = text.split('@');
  const fault = raceFaults.find((one) => one.name === name);
  return fault && /^\d+(\.\d+)?$/.test(seconds) ? { fault, atMs: Number(seconds) * 1_000 } : null;
}
