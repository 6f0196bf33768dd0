/**
 * A closed loop at full rate: every connection sends the next attempt when its last one was answered, each attempt by
 * another customer. It measures what a server can do. wrk makes the load where it is installed, else autocannon.
 */
import type { HistoryRecord } from '../kit/history.ts';
import type { StrangeAnswer } from './recorder.ts';

export interface RateLoad {
  /** Where the server answers, without a path. */
  readonly url: string;
  /** Attempt n goes to sale n mod their number. */
  readonly saleIds: readonly number[];
  readonly connections: number;
  /** Letters in front of the customers' numbers: loads with different letters have different customers. */
  readonly prefix: string;
  /** What ends it: the first of the two. Null: not that. */
  readonly durationMs: number | null;
  readonly attempts: number | null;
  /** Whether each attempt is recorded, for an audit; costs the generator some µs an attempt. */
  readonly record: boolean;
  /** Called now and then with the attempts sent so far. */
  readonly onSent?: (attempts: number) => void;
  /** Ends it at once, with this signal's reason. */
  readonly signal: AbortSignal;
}

export interface RateResult {
  readonly durationMs: number;
  readonly answers: number;
  /** Answers with a status of 400 or more. */
  readonly refused: number;
  /** Requests without an answer, but for those in flight at the end. */
  readonly unanswered: number;
  /** As the generator reports it; null: nothing was answered. */
  readonly latencyMs: { readonly p50: number; readonly p99: number } | null;
  /** CPU time of the generator; null: the system does not report it. */
  readonly cpuS: number | null;
  /** Empty: not recorded. */
  readonly history: readonly HistoryRecord[];
  readonly strangeAnswers: readonly StrangeAnswer[];
}

export interface Generator {
  /** With its version, for the report. */
  readonly name: string;
  /** @throws when it cannot be run, or was ended by the load's signal */
  run(load: RateLoad): Promise<RateResult>;
}

/** An attempt without an answer after this counts as unanswered: longer than any wait inside the service. */
export const answerTimeoutMs = 15_000;
/** Customers are numbered from here, so that all names, and all requests, are equally long. */
export const firstCustomer = 1_000_000_000;

/** The customer of attempt n. */
export const customerOf = (prefix: string, n: number): string => `${prefix}${firstCustomer + n}`;

/** The parts of a request before the customer's number and after it. */
export function requestParts(url: string, saleId: number, prefix: string): readonly [string, string] {
  const body = [`{"userId":"${prefix}`, '"}'] as const;
  const length = body[0].length + String(firstCustomer).length + body[1].length;
  const head = [
    `POST /sales/${saleId}/orders HTTP/1.1`,
    `Host: ${new URL(url).host}`,
    'Content-Type: application/json',
    `Content-Length: ${length}`,
  ];
  return [`${head.join('\r\n')}\r\n\r\n${body[0]}`, body[1]];
}
