/**
 * A queue for the contenders of one process, first in, first out. Only its head contends at the lock's server for a resource,
 * and the next contender starts as soon as the head is done.
 *
 *   enter ──free──▶ turn ──leave──▶ the next contender's turn
 *     └──busy──▶ queued      └──pass(handoff)──▶ the next contender's turn, with what the previous one held
 */

/** Exclusive access of one contender to a resource, within this process. */
export interface Turn<Handoff> {
  /** What the previous contender passed on. This one must use or release it. */
  readonly handoff: Handoff | null;
  /** Contenders of this process queued for the resource. */
  readonly waiting: number;
  /** Ends the turn. Repeated calls have no effect. */
  leave(): void;
  /** Ends the turn and hands what it holds to the next contender. @returns false, without effect, when none is queued */
  pass(handoff: Handoff): boolean;
}

export interface LocalQueue<Handoff = never> {
  /** Waits for a turn at the resource. @returns null after `waitMs`, or when `signal` fires */
  enter(resource: string, waitMs: number, signal: AbortSignal): Promise<Turn<Handoff> | null>;
}

export function localQueue<Handoff = never>(): LocalQueue<Handoff> {
  type Wake = (handoff: Handoff | null) => void;
  // The queue behind the current turn of each busy resource. A free resource has no entry.
  const busy = new Map<string, Wake[]>();

  function turnAt(resource: string, waiters: Wake[], handoff: Handoff | null): Turn<Handoff> {
    let isOver = false;
    const end = (passed: Handoff | null) => {
      isOver = true;
      const wake = waiters.shift();
      if (wake === undefined) busy.delete(resource);
      else wake(passed);
    };
    return {
      handoff,
      get waiting() {
        return waiters.length;
      },
      leave() {
        if (!isOver) end(null);
      },
      pass(passed) {
        if (isOver || waiters.length === 0) return false;
        end(passed);
        return true;
      },
    };
  }

  return {
    async enter(resource, waitMs, signal) {
      if (signal.aborted) return null;
      const waiters = busy.get(resource);
      if (waiters === undefined) {
        const none: Wake[] = [];
        busy.set(resource, none);
        return turnAt(resource, none, null);
      }
      if (waitMs <= 0) return null;
      return new Promise((resolve) => {
        const end = (turn: Turn<Handoff> | null) => {
          clearTimeout(timer);
          signal.removeEventListener('abort', cancel);
          resolve(turn);
        };
        const wake: Wake = (handoff) => end(turnAt(resource, waiters, handoff));
        const cancel = () => {
          waiters.splice(waiters.indexOf(wake), 1);
          end(null);
        };
        const timer = setTimeout(cancel, waitMs);
        signal.addEventListener('abort', cancel, { once: true });
        waiters.push(wake);
      });
    },
  };
}

/** A turn outside any queue. */
export function unqueued<Handoff>(): Turn<Handoff> {
  return { handoff: null, waiting: 0, leave: () => {}, pass: () => false };
}
