/** Background work that undoes what requests without a reply may have done. */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

/** First and longest pause between two attempts, in milliseconds; each is twice the one before. */
const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 1_000;

export class Compensations {
  readonly #closing = new AbortController();
  readonly #pending = new Set<Promise<void>>();

  constructor() {
    setMaxListeners(0, this.#closing.signal); // one listener per pending compensation
  }

  get isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Resolves after `ms`, or when the lock closes. */
  async pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#closing.signal }).catch(() => {});
  }

  /** Repeats `compensate` until it resolves to true or the TTL has expired what it would undo. */
  add(compensate: () => Promise<boolean>, ttlMs: number): void {
    const work = this.#run(compensate, performance.now() + ttlMs);
    this.#pending.add(work);
    void work.finally(() => this.#pending.delete(work));
  }

  async #run(compensate: () => Promise<boolean>, untilMs: number): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    // At least one attempt, even after the TTL: the request may still be in flight.
    while (!(await compensate().catch(() => false)) && !this.isClosed && performance.now() < untilMs) {
      await this.pause(pauseMs);
      pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS);
    }
  }

  /** Waits for the current attempts and makes no further ones. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#pending);
  }
}
