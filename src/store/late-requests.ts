/**
 * Late requests: a store may execute a request after its client has given up, because the reply was lost, the request is still
 * in the network, or the server process is frozen.
 *
 *   sent ──answered──▶ known
 *    └──no answer──▶ unanswered ──the store's clock passes the deadline──▶ expired: it has taken effect by now, or never will
 *
 * Each request that takes a unit carries a deadline, which the store compares with its own clock when it executes the request. Before an
 * attempt retries, it waits until that deadline has passed. In Postgres a statement may be frozen after that check, so `setBarrier` updates the
 * row of the sale, which each statement that places an order updates, too; `before_deadline` is evaluated on the version that it updates:
 *
 *   it holds the row lock          the barrier waits for its end, and a later read finds its order
 *   it waits for the row lock      the barrier changes the row's version, so Postgres (READ COMMITTED) evaluates the statement's
 *                                  expressions again, after the deadline
 *   it has not arrived             it meets the deadline
 *
 * A transaction of several statements needs no deadline: only its COMMIT can be late, and it holds the row lock until then.
 *
 * The deadline is the store's time as this process estimates it, never ahead of the store: it must not be later than the end of the claim that
 * it enforces (domain/outcome.ts). An estimate that is behind can make a request fail needlessly, and is then refreshed. What defeats a
 * deadline: docs/explanation/consistency.md, "Late requests".
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { shared } from '../concurrency/coalesce.ts';

/** A store's clock, as this process estimates it. */
export interface StoreClock {
  /** Reads the store's clock unless a recent reading exists. @throws what the store throws */
  synchronize(): Promise<void> | void;
  /** The store's time, milliseconds since 1970; call `synchronize` first. Never ahead, and behind by at most one round trip. */
  nowMs(): number;
  /** As `nowMs`, but never behind, and ahead by at most one round trip. It synchronizes in the background. */
  latestMs(): number;
  /** Makes the next `synchronize` read the clock: the store rejected a deadline that lay ahead. */
  invalidate(): void;
  /**
   * Waits until the store's clock has passed an instant; 0 has passed.
   * @returns false when the instant is more than `limitMs` away: the clock was set back
   * @throws what the store throws
   */
  hasPassed(instantMs: number, limitMs: number): Promise<boolean>;
}

/** Lifetime of a reading: two clocks drift apart by a fraction of a millisecond in that time. */
const REFRESH_MS = 10_000;
/** Of two clocks, for each millisecond: each is slewed by at most 500 ppm. */
const DRIFT = 0.001;

/** @param read fetches the store's time, milliseconds since 1970 */
export function storeClock(read: () => Promise<number>): StoreClock {
  let offsetMs = 0;
  let latestOffsetMs = Number.POSITIVE_INFINITY;
  let readAtMs: number | null = null;

  async function readNow(): Promise<number> {
    const sentMs = performance.now();
    const storeMs = await read();
    const sinceMs = performance.now() - (readAtMs ?? Number.NEGATIVE_INFINITY);
    readAtMs = performance.now();
    offsetMs = storeMs - readAtMs; // as if the reply had taken no time: the estimate is never ahead of the store
    // As if the request had taken no time. A slow reading does not replace a better one that it does not refute.
    const knownMs = latestOffsetMs + sinceMs * DRIFT;
    latestOffsetMs = knownMs < offsetMs ? storeMs - sentMs : Math.min(storeMs - sentMs, knownMs);
    return storeMs;
  }
  const isDue = () => readAtMs === null || performance.now() - readAtMs > REFRESH_MS;

  const readOnce = shared<void, number>(readNow);

  return {
    synchronize() {
      if (readAtMs === null) return readOnce().then(() => {});
      // In the background; the current estimate is used meanwhile.
      if (isDue()) readOnce().catch(() => {});
    },
    nowMs: () => performance.now() + offsetMs,
    latestMs() {
      if (isDue()) readOnce().catch(() => {});
      return performance.now() + latestOffsetMs;
    },
    invalidate() {
      readAtMs = null;
    },
    async hasPassed(instantMs, limitMs) {
      if (instantMs === 0) return true;
      const startedMs = performance.now();
      // By the estimate first: a lost connection may come back meanwhile.
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
