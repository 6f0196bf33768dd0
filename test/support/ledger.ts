/** What clients asked a service, and what it answered: the history that the audit judges. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type AttemptOutcome, type HistoryRecord, resultOf, unanswered } from '../../lab/history.ts';
import type { Answer } from './client.ts';

/** Longer than any answer of the service takes; a later one counts as none. */
const ANSWER_MS = 25_000;

type Request = Pick<HistoryRecord, 'op' | 'userId'> & Partial<HistoryRecord>;

/** Outcomes of purchases, by status and problem; other requests are done, refused, busy, or unknown. */
const OUTCOMES: Readonly<Record<string, AttemptOutcome>> = {
  200: 'replayed',
  201: 'accepted',
  202: 'accepted',
  '409 sold-out': 'sold-out',
  '409 not-enough-units': 'not-enough-units',
};
const OTHERS: Readonly<Record<string, AttemptOutcome>> = {
  200: 'done',
  '409 invalid-transition': 'refused',
  '409 below-sold': 'refused',
};
const EITHER: Readonly<Record<string, AttemptOutcome>> = {
  '503 busy': 'busy',
  '503 unknown-outcome': 'unknown',
};

function outcomeOf(op: HistoryRecord['op'], answer: Answer | null): AttemptOutcome {
  if (answer === null) return 'unknown';
  const key = `${answer.status} ${answer.problem}`.trim();
  return (op === 'purchase' ? OUTCOMES : OTHERS)[key] ?? EITHER[key] ?? 'unexpected';
}

const nowUs = (): number => Date.now() * 1_000;

export class Ledger {
  readonly #history: HistoryRecord[] = [];
  readonly #saleId: number;

  constructor(saleId: number) {
    this.#saleId = saleId;
  }

  get history(): readonly HistoryRecord[] {
    return this.#history;
  }

  /** Purchases with these outcomes. */
  ended(...outcomes: readonly AttemptOutcome[]): HistoryRecord[] {
    return this.#history.filter(({ op, outcome }) => op === 'purchase' && outcomes.includes(outcome));
  }

  /** Records a request when it is sent, and again when it is answered. @returns null when no answer came */
  async record(request: Request, answering: Promise<Answer>): Promise<Answer | null> {
    const id = this.#add(request);
    const late = sleep(ANSWER_MS, null, { ref: false });
    const answer = await Promise.race([answering, late]).catch(() => null);
    const outcome = outcomeOf(request.op, answer);
    this.#history[id] = {
      ...this.#history[id]!,
      ...{ outcome, result: resultOf[outcome] },
      completedUs: answer === null ? null : nowUs(),
      status: answer?.status ?? null,
      orderId: request.orderId ?? (answer?.body.orderId as string | undefined) ?? null,
      ...(outcome === 'not-enough-units' && { remaining: Number(answer?.body.remaining) }),
      ...(request.op === 'pay' && { orderStatus: String(answer?.body.status) }),
    };
    return answer;
  }

  expired(userId: string, orderId: string): void {
    this.#add({ op: 'expire', userId, orderId, completedUs: nowUs(), outcome: 'done', result: 'ok' });
  }

  #add(request: Request): number {
    const id = this.#history.length;
    this.#history.push({ ...unanswered, ...request, id, saleId: this.#saleId, invokedUs: nowUs() });
    return id;
  }
}
