/** Gathers what happens to each attempt in flat arrays: writing a number costs the generator almost nothing. */
import { type AttemptOutcome, type HistoryRecord, resultOf } from '../kit/history.ts';
import type { Answer } from './answer.ts';
import { saleOf } from './attempts.ts';

/** A time that has not come. */
const never = -1;

/** An answer that the contract does not have, kept so that a report can quote it. */
export interface StrangeAnswer {
  readonly status: number;
  /** The first characters of the body. */
  readonly body: string;
}

export const strangeKept = 3;
const strangeBodyLength = 300;

export class AttemptRecorder {
  readonly #saleIds: readonly number[];
  readonly #users: readonly string[];
  readonly #invokedUs: Float64Array;
  readonly #completedUs: Float64Array;
  readonly #status: Uint16Array;
  readonly #answers: (Answer | undefined)[];
  readonly #originMs = performance.now();
  readonly strangeAnswers: StrangeAnswer[] = [];
  #completed = 0;

  /** @param saleIds the sales that are attempted; the sale of each customer: see attempts.ts */
  constructor(saleIds: readonly number[], users: readonly string[]) {
    this.#saleIds = saleIds;
    this.#users = users;
    this.#invokedUs = new Float64Array(users.length).fill(never);
    this.#completedUs = new Float64Array(users.length).fill(never);
    this.#status = new Uint16Array(users.length);
    this.#answers = new Array<Answer | undefined>(users.length);
  }

  /** Attempts that were answered so far. */
  get completed(): number {
    return this.#completed;
  }

  /** The attempt is handed to a socket now. */
  invoked(attempt: number): void {
    this.#invokedUs[attempt] = this.#nowUs();
  }

  /** The attempt was never sent after all: its connection was not established. */
  withdrawn(attempt: number): void {
    this.#invokedUs[attempt] = never;
  }

  /** The attempt's answer is complete now. */
  answered(attempt: number, status: number, answer: Answer, body: string): void {
    this.#completedUs[attempt] = this.#nowUs();
    this.#status[attempt] = status;
    this.#answers[attempt] = answer;
    this.#completed += 1;
    if (answer.outcome === 'unexpected' && this.strangeAnswers.length < strangeKept) {
      this.strangeAnswers.push({ status, body: body.slice(0, strangeBodyLength) });
    }
  }

  /** The history: every attempt that was sent, in the order of the list, those without an answer as `unknown`. */
  records(): HistoryRecord[] {
    const records: HistoryRecord[] = [];
    for (const [id, userId] of this.#users.entries()) {
      const invokedUs = this.#invokedUs[id] ?? never;
      if (invokedUs === never) continue;
      const answer = this.#answers[id];
      const outcome: AttemptOutcome = answer?.outcome ?? 'unknown';
      records.push({
        id,
        op: 'purchase',
        saleId: saleOf(this.#saleIds, userId),
        userId,
        invokedUs,
        completedUs: answer === undefined ? null : (this.#completedUs[id] ?? null),
        result: resultOf[outcome],
        outcome,
        orderId: answer?.orderId ?? null,
        status: answer === undefined ? null : (this.#status[id] ?? null),
      });
    }
    return records;
  }

  #nowUs(): number {
    return Math.round((performance.now() - this.#originMs) * 1_000);
  }
}
