/** A lease without renewal: it is held until its release or its expiry. Its signal never fires; only `deadlineMs` helps. */
import type { Lease, ReleaseResult } from '../lock.ts';
import { within } from './within.ts';

export interface PlainAcquisition {
  readonly resource: string;
  readonly token: string;
  /** Default: null. */
  readonly fencingToken?: number | null;
  /** On `performance.now()`'s clock, counted from before the request; infinite for a lock without expiry. */
  readonly deadlineMs: number;
  /** @returns whether the lock was still held; may throw, and then the lock expires with its TTL, if it has one */
  release(): Promise<boolean>;
}

/** Longest release, in milliseconds: a caller's pool may have no connection for it. Then it continues in the background. */
const RELEASE_MS = 3_000;

export class PlainLease implements Lease {
  readonly resource: string;
  readonly token: string;
  readonly fencingToken: number | null;
  deadlineMs: number;
  /** Called once, when the lease has ended. */
  onEnd: (ended: ReleaseResult) => void = () => {};
  #signal: AbortSignal | undefined;
  readonly #acquisition: PlainAcquisition;
  #released: Promise<ReleaseResult> | undefined;

  constructor(acquisition: PlainAcquisition) {
    this.resource = acquisition.resource;
    this.token = acquisition.token;
    this.fencingToken = acquisition.fencingToken ?? null;
    this.deadlineMs = acquisition.deadlineMs;
    this.#acquisition = acquisition;
  }

  get signal(): AbortSignal {
    this.#signal ??= new AbortController().signal;
    return this.#signal;
  }

  release(): Promise<ReleaseResult> {
    this.#released ??= this.end();
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** What the first `release` does. */
  protected async end(): Promise<ReleaseResult> {
    const ended = await this.releaseAtServer();
    this.onEnd(ended);
    return ended;
  }

  protected async releaseAtServer(): Promise<ReleaseResult> {
    const wasHeld = await within(this.#acquisition.release(), RELEASE_MS).catch(() => null);
    if (wasHeld === null) return 'unknown';
    return wasHeld ? 'released' : 'lost';
  }
}
