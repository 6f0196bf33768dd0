/** A lease without renewal: it is held until its release or its expiry. Its signal never fires; only `deadlineMs` helps. */
import type { Lease } from '../lock.ts';

export interface PlainAcquisition {
  readonly resource: string;
  readonly token: string;
  /** On `performance.now()`'s clock, counted from before the request; infinite for a lock without expiry. */
  readonly deadlineMs: number;
  /** @returns whether the lock was still held; may throw */
  release(): Promise<boolean>;
}

export class PlainLease implements Lease {
  readonly resource: string;
  readonly token: string;
  readonly fencingToken = null;
  readonly signal = new AbortController().signal;
  deadlineMs: number;
  readonly #release: () => Promise<boolean>;
  #isReleased = false;

  constructor(acquisition: PlainAcquisition) {
    this.resource = acquisition.resource;
    this.token = acquisition.token;
    this.deadlineMs = acquisition.deadlineMs;
    this.#release = acquisition.release;
  }

  async release(): Promise<boolean> {
    if (this.#isReleased) return false;
    this.#isReleased = true;
    try {
      return await this.#release();
    } catch {
      return false; // unknown; the lock expires with its TTL, if it has one
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
