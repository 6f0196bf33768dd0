/**
 * Contenders of one process queue here, first come first served, so that a process has one contender at the lock's
 * server for a resource, and the next one starts the moment the last one is done.
 */
interface Waiter {
  wake(): void;
  giveUp(): void;
}

export interface LocalQueue {
  /**
   * Waits for this process's turn at a resource.
   * @returns what ends the turn, or null when `waitMs` passed or `signal` fired before it came
   */
  enter(resource: string, waitMs: number, signal?: AbortSignal): Promise<(() => void) | null>;
  /** Ends all waiting; nobody gets a turn any more. */
  close(): void;
  readonly closed: boolean;
}

export function localQueue(): LocalQueue {
  // A resource is here while somebody has its turn; the list holds those who wait for it.
  const busy = new Map<string, Waiter[]>();
  let closed = false;

  function leave(resource: string): void {
    const next = busy.get(resource)?.shift();
    if (next === undefined) busy.delete(resource);
    else next.wake();
  }

  return {
    async enter(resource, waitMs, signal) {
      if (closed || signal?.aborted) return null;
      const waiters = busy.get(resource);
      if (waiters === undefined) {
        busy.set(resource, []);
        return () => leave(resource);
      }
      if (waitMs <= 0) return null;
      const turn = await new Promise<boolean>((resolve) => {
        const end = (value: boolean) => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', giveUp);
          resolve(value);
        };
        const waiter: Waiter = { wake: () => end(true), giveUp: () => giveUp() };
        const giveUp = () => {
          waiters.splice(waiters.indexOf(waiter), 1);
          end(false);
        };
        const timer = setTimeout(giveUp, waitMs);
        signal?.addEventListener('abort', giveUp, { once: true });
        waiters.push(waiter);
      });
      return turn ? () => leave(resource) : null;
    },
    get closed() {
      return closed;
    },
    close() {
      closed = true;
      for (const waiters of busy.values()) for (const waiter of [...waiters]) waiter.giveUp();
    },
  };
}
