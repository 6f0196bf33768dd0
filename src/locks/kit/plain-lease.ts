/** A lease without renewal: it is held until its release or its expiry. Its signal never fires; only `deadlineMs` helps. */
import type { Lease, ReleaseResult } from '../lock.ts';
import { within } from './within.ts';

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
  readonly signal: AbortSignal = new AbortController().signal;
  deadlineMs: number;
  readonly #release: () => Promise<boolean>;
  #released: Promise<ReleaseResult> | undefined;

  constructor(acquisition: PlainAcquisition) {
    this.resource = acquisition.resource;
    this.token = acquisition.token;
    this.deadlineMs = acquisition.deadlineMs;
    this.#release = acquisition.release;
  }

  release(): Promise<ReleaseResult> {
    this.#released ??= resultOf(this.#release);
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

/** Longest release, in milliseconds: a caller's pool may have no connection for it. Then it continues in the background. */
const RELEASE_MS = 3_000;

/** @param release returns whether the lease was still held; may throw, and then the lock expires with its TTL, if it has one */
export async function resultOf(release: () => Promise<boolean>): Promise<ReleaseResult> {
  const wasHeld = await within(release(), RELEASE_MS).catch(() => null);
  if (wasHeld === null) return 'unknown';
  return wasHeld ? 'released' : 'lost';
}
