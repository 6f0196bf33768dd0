/**
 * A lease that nobody looks after: it is held until it is given back or runs out, and its signal never fires. Its
 * holder may only compare the clock with `deadlineMs`.
 */
import type { Lease } from '../lock.ts';

export interface PlainClaim {
  readonly resource: string;
  readonly token: string;
  /** On `performance.now()`'s clock, counted from before the lock was asked for; infinite for a lock without expiry. */
  readonly deadlineMs: number;
  /** @returns whether the lock was still held; may throw */
  giveBack(): Promise<boolean>;
}

export class PlainLease implements Lease {
  readonly resource: string;
  readonly token: string;
  readonly fencingToken = null;
  readonly signal = new AbortController().signal;
  deadlineMs: number;
  readonly #giveBack: () => Promise<boolean>;
  #over = false;

  constructor(claim: PlainClaim) {
    this.resource = claim.resource;
    this.token = claim.token;
    this.deadlineMs = claim.deadlineMs;
    this.#giveBack = claim.giveBack;
  }

  async release(): Promise<boolean> {
    if (this.#over) return false;
    this.#over = true;
    try {
      return await this.#giveBack();
    } catch {
      return false; // nobody can tell; it runs out with its TTL, if it has one
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
