/** Records what happens to each attempt, and reads what generators outside this process recorded in files. */
import { readFile } from 'node:fs/promises';
import { type AttemptOutcome, type HistoryRecord, resultOf, unanswered } from '../../lab/history.ts';
import { quantity } from '../../lab/kit/text.ts';
import { type Answer, quotedLength } from './answer.ts';

/** An answer outside the contract, kept for the report. */
export interface StrangeAnswer {
  readonly status: number;
  /** Its first characters. */
  readonly body: string;
}

export interface Recorded {
  /** Every attempt that was sent, by id; one without an answer is `unknown`. */
  readonly history: readonly HistoryRecord[];
  readonly strangeAnswers: readonly StrangeAnswer[];
}

const strangeKept = 3;

/** What was answered outside the contract, as a finding; empty: nothing was. */
export function strangeIn({ history, strangeAnswers }: Recorded): string[] {
  const strange = history.filter(({ outcome }) => outcome === 'unexpected').length;
  const examples = strangeAnswers.map(({ status, body }) => `${status} ${body}`).join(' | ');
  return strange === 0 ? [] : [`${quantity(strange, 'answer')} outside the contract, such as ${examples}`];
}

/** `units` is left out when all ask for one. */
export type Purchase = Pick<HistoryRecord, 'saleId' | 'userId' | 'units'>;

export class Recorder {
  readonly strangeAnswers: StrangeAnswer[] = [];
  readonly #records = new Map<number, HistoryRecord>();
  #answers = 0;

  get answers(): number {
    return this.#answers;
  }

  /** @param us when the request was handed to its socket, µs of the load's clock */
  sent(id: number, purchase: Purchase, us: number): void {
    this.#records.set(id, { id, op: 'purchase', ...purchase, invokedUs: us, ...unanswered });
  }

  hasSent(id: number): boolean {
    return this.#records.has(id);
  }

  hasAnswer(id: number): boolean {
    return (this.#records.get(id)?.completedUs ?? null) !== null;
  }

  /** @throws when the attempt was not sent, or has an answer */
  answered(id: number, completedUs: number, status: number, answer: Answer, body: string): void {
    const record = this.#records.get(id);
    if (record?.completedUs !== null) throw new Error(`attempt ${id} was not sent, or answered twice`);
    this.#records.set(id, { ...record, completedUs, result: resultOf[answer.outcome], ...answer, status });
    this.#answers += 1;
    if (answer.outcome !== 'unexpected' || this.strangeAnswers.length >= strangeKept) return;
    this.strangeAnswers.push({ status, body: body.slice(0, quotedLength) });
  }

  history(): HistoryRecord[] {
    return [...this.#records.values()].sort((a, b) => a.id - b.id);
  }
}

type Line = readonly [
  n: number,
  us: number,
  status?: number,
  outcome?: AttemptOutcome,
  orderId?: string | null,
  body?: string,
];

/**
 * Reads files of one clock, with a JSON array per line: `[n,µs]` when attempt n was sent, `[n,µs,status,outcome,order]` when it
 * was answered, followed by the body if the answer is outside the contract. An incomplete last line is left out: its
 * writer was ended. Times of the history are µs since the first attempt.
 * @throws for a line that is not JSON, or an answer to an attempt that was not sent
 */
export async function readLines(
  paths: readonly string[],
  attempt: (n: number) => Purchase,
): Promise<Recorded> {
  const recorder = new Recorder();
  let originUs = Number.POSITIVE_INFINITY;
  for (const path of paths) {
    for (const line of (await readFile(path, 'utf8')).split('\n').slice(0, -1)) {
      const [n, us, status, outcome = 'unknown', orderId = null, body = ''] = JSON.parse(line) as Line;
      originUs = Math.min(originUs, us);
      if (status !== undefined) recorder.answered(n, us, status, { outcome, orderId }, body);
      else recorder.sent(n, attempt(n), us);
    }
  }
  const history = recorder.history().map((record) => {
    const { invokedUs, completedUs } = record;
    const doneUs = completedUs === null ? null : completedUs - originUs;
    return { ...record, invokedUs: invokedUs - originUs, completedUs: doneUs };
  });
  return { history, strangeAnswers: recorder.strangeAnswers };
}
