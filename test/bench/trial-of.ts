import { type BenchOptions, parseOptions } from '../../bench/options.ts';
import type { TrialResult } from '../../bench/result.ts';

/** The options of a run without any. */
export function usualOptions(): BenchOptions {
  const parsed = parseOptions([]);
  if (parsed.kind !== 'run') throw new Error(JSON.stringify(parsed));
  return parsed.options;
}

/** Every check was made, and found nothing. */
export const untroubled = {
  oversold: 0,
  undersold: 0,
  duplicates: 0,
  lost: 0,
  phantom: 0,
  drift: 0,
  pointsMismatch: 0,
  returnsMismatch: 0,
  paymentsMismatch: 0,
  tasksMismatch: 0,
};

type Changes = Partial<Omit<TrialResult, 'audit'>> & { readonly audit?: Partial<TrialResult['audit']> };

/** A trial that passed, with changes. */
export function trialOf(changes: Changes = {}): TrialResult {
  return {
    strategy: 'lua',
    lock: null,
    unsafe: false,
    twin: false,
    round: 1,
    load: 'closed',
    point: { rttMs: 0, connections: 64, sales: 1 },
    rush: null,
    cost: null,
    roundTrips: null,
    generatorUtilization: null,
    invalid: [],
    startedAt: '2026-11-21T07:38:00.000Z',
    durationMs: 3_000,
    attempts: 1_000,
    accepted: 200,
    replayed: 20,
    soldOut: 780,
    notOpen: 0,
    busy: 0,
    unknown: 0,
    unexpected: 0,
    acceptedPerSecond: 2_000,
    attemptsPerSecond: 9_000,
    latencyMs: { p50: 1.5, p90: 2.5, p99: 9.125, max: 20 },
    timeToSellOutMs: 100,
    acceptedLatencyMs: { p50: 1.5, p90: 2.5, p99: 9.125, max: 20 },
    refusedLatencyMs: { p50: 1.5, p90: 2.5, p99: 9.125, max: 20 },
    latencyCurve: [],
    firstComeShare: null,
    remainingOverTime: [],
    aftermath: { paid: 50, cancelled: 50, refundDue: 25 },
    history: 'history-1-lua.jsonl',
    serviceDied: false,
    notes: [],
    ...changes,
    audit: {
      verdict: 'pass',
      ...untroubled,
      findings: [],
      ...changes.audit,
    },
  };
}

/** A trial of the control that oversold. */
export function oversoldTrial(changes: Changes = {}): TrialResult {
  return trialOf({
    strategy: 'unsafe',
    unsafe: true,
    ...changes,
    audit: {
      verdict: 'fail',
      oversold: 213,
      findings: ['sold 1,213 of 1,000: 213 oversold'],
      ...changes.audit,
    },
  });
}
