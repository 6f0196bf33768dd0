/**
 * Requests that a store may still carry out after their client has given up: the answer was lost, or the bytes are still
 * on their way, or the server's process is frozen.
 *
 *   sent ──answered──▶ known
 *    └──no answer──▶ unanswered ──the store's clock passes the deadline──▶ fenced: it has happened by now, or never will
 *
 * Each request that takes a unit carries a deadline, which the store compares with its own clock when it carries the
 * request out. Before an attempt asks again it waits for that deadline. Redis runs a script at one instant, so nothing
 * more is needed there. A Postgres statement takes time: one that has passed the check may be frozen before it commits.
 * `fenceSales` settles that with the row of the sale. Each statement that places an order updates this row, and evaluates
 * `before_deadline` on the version of the row that it updates:
 *
 *   holds the row's lock            the fence waits for its end, and whoever looks afterwards finds its order
 *   does not hold the lock yet      the fence changes the row's version, so that Postgres (READ COMMITTED) evaluates the
 *                                   statement's expressions again, and the deadline is over
 *   has not arrived                 the same
 *
 * A transaction of several statements needs no deadline: its COMMIT, the only one that can be late, holds the row's lock.
 *
 * The deadline is the store's time as this process estimates it, so clocks of different machines are never compared. The
 * estimate is never ahead of the store, because a deadline must not be later than the end of the claim that it stands for
 * (domain/outcome.ts); an estimate that is behind makes a request fail in vain, and is read anew. Two things break this: a
 * store whose clock is set back after a fence, as by a failover to a standby with another clock; and a machine that is
 * suspended, as the clock of a process does not count that time.
 */
import { setTimeout as sleep } from 'node:timers/promises';

/** A request failed, and the store may carry it out until `lateUntilMs`, milliseconds since 1970 by the store's clock. */
export class UnansweredError extends Error {
  override readonly name = 'UnansweredError';
  readonly code = 'ERR_STAMPEDE_UNANSWERED';
  readonly lateUntilMs: number;
  constructor(cause: unknown, lateUntilMs: number) {
    super((cause as Error).message, { cause });
    this.lateUntilMs = lateUntilMs;
  }
}

/** A store's clock, as this process knows it. */
export interface StoreClock {
  /** Reads the store's clock unless that was done not long ago. @throws what the store throws */
  synchronize(): Promise<void> | void;
  /** The store's time, milliseconds since 1970; to be called after `synchronize`. Never ahead, and behind by a round trip at most. */
  nowMs(): number;
  /** The next `synchronize` reads the clock anew: the store refused a deadline that was not over. */
  invalidate(): void;
  /**
   * Waits until the store's clock is past an instant; 0 is past.
   * @returns false when that is more than `limitMs` away: the clock was set back
   * @throws what the store throws
   */
  hasPassed(instantMs: number, limitMs: number): Promise<boolean>;
}

/** A reading is used for so long; by then two clocks drift apart by a fraction of a millisecond. */
const REFRESH_MS = 10_000;

/** @param read asks the store for its time, milliseconds since 1970 */
export function storeClock(read: () => Promise<number>): StoreClock {
  let offsetMs = 0;
  let readAtMs: number | null = null;
  let reading: Promise<number> | null = null;

  async function readNow(): Promise<number> {
    const storeMs = await read();
    readAtMs = performance.now();
    offsetMs = storeMs - readAtMs; // as if the answer had taken no time: the estimate is never ahead of the store
    return storeMs;
  }

  function readOnce(): Promise<number> {
    reading ??= readNow().finally(() => {
      reading = null;
    });
    return reading;
  }

  return {
    synchronize() {
      if (readAtMs === null) return readOnce().then(() => {});
      // In the background: the estimate that is there does meanwhile.
      if (performance.now() - readAtMs > REFRESH_MS) readOnce().catch(() => {});
    },
    nowMs: () => performance.now() + offsetMs,
    invalidate() {
      readAtMs = null;
    },
    async hasPassed(instantMs, limitMs) {
      if (instantMs === 0) return true;
      const startedMs = performance.now();
      // First by the estimate: meanwhile a connection that was lost may come back.
      let leftMs = instantMs - (startedMs + offsetMs);
      for (;;) {
        if (performance.now() - startedMs + leftMs > limitMs) return false;
        if (leftMs > 0) await sleep(leftMs + 1);
        leftMs = instantMs - (await readNow());
        if (leftMs < 0) return true;
      }
    },
  };
}
