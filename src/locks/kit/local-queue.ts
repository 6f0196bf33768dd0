/**
 * A queue for the contenders of one process, first in, first out. Only its head contends at the lock's server for a resource,
 * and the next contender starts as soon as the head is done.
 *
 *   enter ──free──▶ turn ──leave──▶ the next contender's turn
 *     └──busy──▶ queued      └──pass(handoff)──▶ the next contender's turn, with what the previous one held
 */
import { within } from './within.ts';

type Wake<Handoff> = (handoff: Handoff | null) => void;

/** Exclusive access of one contender to a resource, within this process. */
export class Turn<Handoff> {
  /** What the previous contender passed on. This one must use or release it. */
  readonly handoff: Handoff | null;
  readonly #waiters: Wake<Handoff>[];
  readonly #onFree: () => void;
  #isOver = false;

  /** By default, a turn outside any queue. */
  constructor(handoff: Handoff | null = null, waiters: Wake<Handoff>[] = [], onFree: () => void = () => {}) {
    this.handoff = handoff;
    this.#waiters = waiters;
    this.#onFree = onFree;
  }

  /** Contenders of this process queued for the resource. */
  get waiting(): number {
    return this.#waiters.length;
  }

  /** Ends the turn. Repeated calls have no effect. */
  leave(): void {
    if (this.pass(null) || this.#isOver) return;
    this.#isOver = true;
    this.#onFree();
  }

  /** Ends the turn and hands what it holds to the next contender. @returns false, without effect, when none is queued */
  pass(handoff: Handoff | null): boolean {
    if (this.#isOver || this.#waiters.length === 0) return false;
    this.#isOver = true;
    this.#waiters.shift()!(handoff);
    return true;
  }
}

export class LocalQueue<Handoff = never> {
  /** The contenders behind the current turn of each busy resource. A free resource has no entry. */
  readonly #busy = new Map<string, Wake<Handoff>[]>();

  /** Waits for a turn at the resource. @returns null after `waitMs`, or when `signal` fires */
  async enter(resource: string, waitMs: number, signal: AbortSignal): Promise<Turn<Handoff> | null> {
    if (signal.aborted) return null;
    const waiters = this.#busy.get(resource) ?? [];
    const turn = (handoff: Handoff | null) => new Turn(handoff, waiters, () => this.#busy.delete(resource));
    if (!this.#busy.has(resource)) {
      this.#busy.set(resource, waiters);
      return turn(null);
    }
    if (waitMs <= 0) return null;
    let wake: Wake<Handoff> = () => {};
    const woken = new Promise<Turn<Handoff>>((resolve) => {
      wake = (handoff) => resolve(turn(handoff));
    });
    waiters.push(wake);
    const granted = await within(woken, waitMs, signal);
    const place = waiters.indexOf(wake);
    if (place === -1) return woken; // also if the wait ended at the same moment
    waiters.splice(place, 1);
    return granted;
  }
}
