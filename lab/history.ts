/**
 * Requests of clients and their answers, one JSON object per line. The audit knows the load only by its history: a history
 * from elsewhere (k6, a script) can be audited as well.
 */
import { createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';

/** `ok`: it happened. `fail`: it certainly did not happen. `info`: unknown (timeout, reset, unexpected answer). */
export type AttemptResult = 'ok' | 'fail' | 'info';

/** Whether an order exists, by outcome. */
export const resultOf = {
  accepted: 'ok',
  replayed: 'ok',
  'sold-out': 'fail',
  'not-enough-units': 'fail',
  'not-open': 'fail',
  busy: 'fail',
  /** No answer came, or the service answered that the outcome is unknown. */
  unknown: 'info',
  /** An answer that the contract does not have for a purchase in a benchmark: 4xx, 500, a body without an order. */
  unexpected: 'info',
  /** A cancellation, a payment or a restock. */
  done: 'ok',
  refused: 'fail',
} as const satisfies Readonly<Record<string, AttemptResult>>;

/** How a request ended, as the client saw it. */
export type AttemptOutcome = keyof typeof resultOf;

/** One request that was sent, or `expire`: the customer let the time to pay run out. */
export interface HistoryRecord {
  /** Unique within the history. */
  readonly id: number;
  readonly op: 'purchase' | 'cancel' | 'pay' | 'expire' | 'restock';
  readonly saleId: number;
  readonly userId: string;
  /** When the request was handed to the socket: µs since the load began, on the generator's monotonic clock. */
  readonly invokedUs: number;
  /** When its answer was complete, same clock; null: no answer was seen. */
  readonly completedUs: number | null;
  readonly result: AttemptResult;
  readonly outcome: AttemptOutcome;
  /** The order that the answer named, or that was cancelled or paid. */
  readonly orderId: string | null;
  /** The HTTP status of the answer; null: no answer was seen. */
  readonly status: number | null;
  /** A payment's notification, and the status of the order in its answer. */
  readonly paymentId?: string;
  readonly orderStatus?: string;
  /** Units that a restock adds to the stock, or that a purchase asks for; by default one. */
  readonly units?: number;
  /** Units that the answer `not-enough-units` said are left. */
  readonly remaining?: number;
}

/** The fields of a request without an answer. */
export const unanswered = {
  completedUs: null,
  result: 'info',
  outcome: 'unknown',
  orderId: null,
  status: null,
} as const;

/** Number of lines per write. */
const chunkLines = 2_000;

/** Writes the history to `path`, after the load, so that writing costs the load nothing. */
export async function writeHistory(path: string, records: readonly HistoryRecord[]): Promise<void> {
  function* chunks(): Generator<string> {
    for (let from = 0; from < records.length; from += chunkLines) {
      const lines = records.slice(from, from + chunkLines).map((record) => `${JSON.stringify(record)}\n`);
      yield lines.join('');
    }
  }
  await pipeline(chunks, createWriteStream(path));
}

/** Reads a history back. @throws with the number of a malformed line */
export async function readHistory(path: string): Promise<HistoryRecord[]> {
  const lines = (await readFile(path, 'utf8')).split('\n');
  return lines.flatMap((line, index) => (line === '' ? [] : [parsed(line, `${path}:${index + 1}`)]));
}

function parsed(line: string, where: string): HistoryRecord {
  let record: Partial<HistoryRecord>;
  try {
    record = JSON.parse(line) as Partial<HistoryRecord>;
  } catch (cause) {
    throw new Error(`${where}: not a JSON object`, { cause });
  }
  const { outcome, result, userId, saleId, invokedUs, completedUs } = record;
  if (outcome === undefined || result === undefined || resultOf[outcome] !== result) {
    throw new Error(`${where}: outcome "${outcome}" with result "${result}" is not a history record`);
  }
  const isOfSale = typeof userId === 'string' && typeof saleId === 'number';
  if (!isOfSale) throw new Error(`${where}: a record needs a saleId and a userId`);
  const hasTimes = typeof invokedUs === 'number' && completedUs !== undefined;
  if (!hasTimes) throw new Error(`${where}: a record needs invokedUs and completedUs`);
  return record as HistoryRecord;
}
