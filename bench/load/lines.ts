/**
 * Attempts as generators outside this process write them, one event a line: `n µs` when attempt n begins and
 * `n µs status outcome order` when it was answered, with the body as JSON behind it where the answer is strange. A file is
 * whole whatever ends its writer: an attempt without a second line has an unknown outcome.
 */
import { readFile } from 'node:fs/promises';
import { type AttemptOutcome, type HistoryRecord, resultOf } from '../kit/history.ts';
import { type StrangeAnswer, strangeKept } from './recorder.ts';

interface Seen {
  readonly begunUs: number;
  answer: {
    readonly us: number;
    readonly status: number;
    readonly outcome: AttemptOutcome;
    readonly orderId: string | null;
  } | null;
}

/** The customer and the sale of attempt n. */
export interface Attempts {
  readonly user: (n: number) => string;
  readonly sale: (n: number) => number;
}

/** Reads files whose times are of one clock. Times of the history are µs since the first attempt. */
export async function readLines(
  paths: readonly string[],
  { user, sale }: Attempts,
): Promise<{ readonly history: HistoryRecord[]; readonly strangeAnswers: StrangeAnswer[] }> {
  const seen = new Map<number, Seen>();
  const strangeAnswers: StrangeAnswer[] = [];
  for (const path of paths) {
    for (const line of wholeLines(await readFile(path, 'utf8'))) take(line, seen, strangeAnswers);
  }
  let originUs = Number.POSITIVE_INFINITY;
  for (const { begunUs } of seen.values()) originUs = Math.min(originUs, begunUs);
  const history = [...seen]
    .sort(([a], [b]) => a - b)
    .map(([id, { begunUs, answer }]): HistoryRecord => {
      const outcome = answer?.outcome ?? 'unknown';
      return {
        id,
        op: 'purchase',
        saleId: sale(id),
        userId: user(id),
        invokedUs: begunUs - originUs,
        completedUs: answer === null ? null : answer.us - originUs,
        result: resultOf[outcome],
        outcome,
        orderId: answer?.orderId ?? null,
        status: answer?.status ?? null,
      };
    });
  return { history, strangeAnswers };
}

/** Without what a writer that was ended left of its last line. */
const wholeLines = (text: string): string[] =>
  text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter(Boolean);

function take(line: string, seen: Map<number, Seen>, strangeAnswers: StrangeAnswer[]): void {
  const [n = '', us = '', status, outcome = '', orderId = '', ...body] = line.split(' ');
  const [at, time] = [Number(n), Number(us)];
  if (Number.isNaN(at) || Number.isNaN(time)) throw new Error(`not a line of attempts: "${line}"`);
  if (status === undefined) {
    seen.set(at, { begunUs: time, answer: null });
    return;
  }
  const attempt = seen.get(at);
  if (attempt === undefined || attempt.answer !== null || !Object.hasOwn(resultOf, outcome)) {
    throw new Error(`a line of attempts where it cannot be: "${line}"`);
  }
  const order = orderId === '-' ? null : orderId;
  attempt.answer = { us: time, status: Number(status), outcome: outcome as AttemptOutcome, orderId: order };
  if (body.length > 0 && strangeAnswers.length < strangeKept) {
    strangeAnswers.push({ status: Number(status), body: JSON.parse(body.join(' ')) as string });
  }
}
