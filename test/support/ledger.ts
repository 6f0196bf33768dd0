/** What clients asked a service, and what it answered: the history that invariants are checked against. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer } from './client.ts';

/** Longer than any answer of the service takes; a later one counts as none. */
const ANSWER_MS = 25_000;

/** One request of a client. */
export interface Operation {
  /** `expire`: the customer lets the time to pay run out; no request. */
  readonly action: 'purchase' | 'cancel' | 'pay' | 'expire' | 'restock';
  readonly userId: string;
  readonly invokedMs: number;
  readonly completedMs: number;
  /** Null: no answer came, or none yet. */
  readonly status: number | null;
  readonly problem: string;
  /** The order of the answer, or the one that was cancelled or paid. */
  readonly orderId: string | null;
  /** Of a payment. */
  readonly notificationId?: string;
  /** Of a restock: what is added to the stock. */
  readonly units?: number;
  /** The order's status as a payment's answer gives it. */
  readonly result?: string;
}

type Request = Pick<Operation, 'action' | 'userId'> &
  Partial<Pick<Operation, 'orderId' | 'notificationId' | 'units'>>;

export class Ledger {
  #operations: Operation[] = [];

  get operations(): readonly Operation[] {
    return this.#operations;
  }

  /** Records a request when it is sent, and again when it is answered. @returns null when no answer came */
  async record(request: Request, answering: Promise<Answer>): Promise<Answer | null> {
    const { length } = this.#operations;
    const sent = { orderId: null, ...request, invokedMs: Date.now(), completedMs: Number.POSITIVE_INFINITY };
    this.#operations.push({ ...sent, status: null, problem: '' });
    const late = sleep(ANSWER_MS, null, { ref: false });
    const answer = await Promise.race([answering, late]).catch(() => null);
    this.#operations[length] = {
      ...sent,
      completedMs: Date.now(),
      status: answer?.status ?? null,
      problem: answer?.problem ?? '',
      orderId: request.orderId ?? (answer?.body.orderId as string | undefined) ?? null,
      ...(request.action === 'pay' && { result: String(answer?.body.status) }),
    };
    return answer;
  }

  expired(userId: string, orderId: string): void {
    const atMs = Date.now();
    const times = { invokedMs: atMs, completedMs: atMs };
    this.#operations.push({ action: 'expire', userId, orderId, ...times, status: null, problem: '' });
  }
}
