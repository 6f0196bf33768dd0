/** A closed loop: every connection sends the next attempt when its last one was answered, each by another customer. */
import { oneUnit, type Quantities, unitsField } from './purchase.ts';
import type { Purchase, Recorded } from './recorder.ts';

export interface RateLoad {
  /** Where the server answers, without a path. */
  readonly url: string;
  /** Attempt n goes to sale n mod their number. */
  readonly saleIds: readonly number[];
  readonly connections: number;
  /** Letters in front of the customers' numbers: loads with different letters have different customers. */
  readonly prefix: string;
  /** Number of customers, who take turns; left out: each attempt is another customer's. */
  readonly customers?: number;
  /** One of these two ends the load; the other is null. */
  readonly durationMs: number | null;
  readonly attempts: number | null;
  /** Units of an order; left out: one. */
  readonly quantities?: Quantities;
  /** Whether each attempt is recorded, for an audit; costs the generator some µs an attempt. */
  readonly record: boolean;
  /** A file with the purchase ticket of attempt n on line n, counted from 1; left out: attempts carry none. */
  readonly tickets?: string;
  /** Called regularly with the attempts sent so far. */
  readonly onSent?: (attempts: number) => void;
  /** Ends the load at once, with this signal's reason. */
  readonly signal: AbortSignal;
}

export interface RateNumbers {
  readonly durationMs: number;
  readonly answers: number;
  /** Answers with a status of 400 or more. */
  readonly refused: number;
  /** Of these, answers with another status than 503, of a load that is recorded. */
  readonly notBusy?: number;
  /** Requests without an answer, except those in flight at the end. */
  readonly unanswered: number;
  /** As the generator reports it; null: nothing was answered. */
  readonly latencyMs: { readonly p50: number; readonly p99: number } | null;
  /** CPU time of the generator; null: the system does not report it. */
  readonly cpuS: number | null;
}

/** Without `record`, the history is empty. */
export interface RateResult extends RateNumbers, Recorded {}

export interface Generator {
  /** With its version, for the report. */
  readonly name: string;
  /** @throws when it cannot be run, or was ended by the load's signal */
  run(load: RateLoad): Promise<RateResult>;
}

/** An attempt without an answer after this counts as unanswered: longer than any wait inside the service. */
export const answerTimeoutMs = 15_000;
/** How long a load may take to report its result. */
export const resultWithinMs = 30_000;
/** Customers are numbered from here: all names, and so all requests, are equally long. */
export const firstCustomer = 1_000_000_000;

/** The sale and the customer of attempt n. */
export const attemptOf =
  ({
    saleIds,
    prefix,
    customers = Number.MAX_SAFE_INTEGER,
    quantities = oneUnit,
  }: Pick<RateLoad, 'saleIds' | 'prefix' | 'customers' | 'quantities'>) =>
  (n: number): Purchase => {
    const userId = `${prefix}${firstCustomer + (n % customers)}`;
    return { saleId: saleIds[n % saleIds.length]!, userId, ...unitsField(userId, quantities) };
  };

/**
 * The numbers of loads that ran at the same time, together. Percentiles cannot be added: they are those of the slowest load.
 * @param parts at least one
 */
export function merged(parts: readonly RateNumbers[]): RateNumbers {
  const sum = (key: 'answers' | 'refused' | 'unanswered'): number =>
    parts.reduce((total, part) => total + part[key], 0);
  const latencies = parts.flatMap(({ latencyMs }) => latencyMs ?? []);
  const cpuS = parts.map((part) => part.cpuS);
  return {
    durationMs: Math.max(...parts.map(({ durationMs }) => durationMs)),
    answers: sum('answers'),
    refused: sum('refused'),
    unanswered: sum('unanswered'),
    latencyMs: latencies.sort((a, b) => b.p99 - a.p99)[0] ?? null,
    cpuS: cpuS.includes(null) ? null : cpuS.reduce<number>((total, seconds) => total + seconds!, 0),
  };
}
