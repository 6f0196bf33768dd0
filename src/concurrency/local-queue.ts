/**
 * Contenders of one process queue here, first come first served, so that a process has one contender at the lock's
 * server for a resource, and the next one starts the moment the last one is done.
 *
 *   enter ──free──▶ turn ──leave──▶ the next one's turn
 *     └──busy──▶ waits      └──pass(gift)──▶ the next one's turn, with what the last one held
 */

/** One contender's time at a resource. */
export interface Turn<Gift> {
  /** What the last one passed on, which this one has to use or to give back. */
  readonly gift: Gift | null;
  /** How many of this process wait for the resource. */
  readonly waiting: number;
  /** Ends the turn; a second call does nothing. */
  leave(): void;
  /** Ends the turn and gives the next one what this one holds. @returns false when nobody waits: nothing was done */
  pass(gift: Gift): boolean;
}

export interface LocalQueue<Gift = never> {
  /** Waits for this process's turn at a resource. @returns null when `waitMs` passed or `signal` fired before */
  enter(resource: string, waitMs: number, signal: AbortSignal): Promise<Turn<Gift> | null>;
}

export function localQueue<Gift = never>(): LocalQueue<Gift> {
  type Wake = (gift: Gift | null) => void;
  // A resource is here while somebody has its turn; the list holds those who wait for it.
  const busy = new Map<string, Wake[]>();

  function turnAt(resource: string, waiters: Wake[], gift: Gift | null): Turn<Gift> {
    let over = false;
    const end = (passed: Gift | null) => {
      over = true;
      const wake = waiters.shift();
      if (wake === undefined) busy.delete(resource);
      else wake(passed);
    };
    return {
      gift,
      get waiting() {
        return waiters.length;
      },
      leave() {
        if (!over) end(null);
      },
      pass(passed) {
        if (over || waiters.length === 0) return false;
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
        const nobody: Wake[] = [];
        busy.set(resource, nobody);
        return turnAt(resource, nobody, null);
      }
      if (waitMs <= 0) return null;
      return new Promise((resolve) => {
        const end = (turn: Turn<Gift> | null) => {
          clearTimeout(timer);
          signal.removeEventListener('abort', giveUp);
          resolve(turn);
        };
        const wake: Wake = (gift) => end(turnAt(resource, waiters, gift));
        const giveUp = () => {
          waiters.splice(waiters.indexOf(wake), 1);
          end(null);
        };
        const timer = setTimeout(giveUp, waitMs);
        signal.addEventListener('abort', giveUp, { once: true });
        waiters.push(wake);
      });
    },
  };
}

/** The turn of one who did not have to wait for it. */
export function unqueued<Gift>(): Turn<Gift> {
  return { gift: null, waiting: 0, leave: () => {}, pass: () => false };
}
