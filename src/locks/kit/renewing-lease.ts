/**
 * A lease that renews itself, and knows from its own clock until when it is surely held.
 *
 *   held ──every TTL/3──▶ renew ──yes──▶ held, the deadline moved
 *    │                     ├──failed──▶ renew again after a short pause
 *    │                     └──no, or no answer until the deadline──▶ lost: `signal` fires ──release──▶ given back
 *    └──release──▶ over
 *
 * The deadline is counted from *before* a request was sent, on the monotonic clock, less a margin for drift between
 * the two machines' clocks; so it comes before the server can have let the lease expire.
 */
import { type Lease, LeaseLostError } from '../lock.ts';

/** Clocks of two machines drift apart by less than this share of a lease, plus the constant. */
const DRIFT_SHARE = 0.01;
const DRIFT_MS = 2;
/** After a renewal that failed: a share of the TTL, and at least so many milliseconds. */
const RETRY_SHARE = 0.05;
const RETRY_LEAST_MS = 10;

/** What the lease asks of its lock's server. Both may throw; neither answer is waited for by a customer. */
export interface LeaseServer {
  /** Prolongs the lease by its TTL from now. @returns whether it was still held */
  renew(): Promise<boolean>;
  /** @returns whether it was still held */
  release(): Promise<boolean>;
}

export interface LeaseClaim {
  readonly resource: string;
  readonly token: string;
  readonly fencingToken: number | null;
  readonly ttlMs: number;
  /** `performance.now()` before the lock was asked for. */
  readonly askedMs: number;
  /** Renewal ends this long after the first claim, and the lease runs out: a hung holder does not hold for ever. */
  readonly maxHoldMs?: number;
}

/** The default cap on one hold, in milliseconds. */
const MAX_HOLD_MS = 600_000;

export class RenewingLease implements Lease {
  readonly resource: string;
  readonly token: string;
  readonly fencingToken: number | null;
  deadlineMs = 0;
  /** Called once, when the lease is over for this process. */
  onEnd: () => void = () => {};
  readonly #server: LeaseServer;
  readonly #ttlMs: number;
  readonly #holdUntilMs: number;
  readonly #lost = new AbortController();
  #confirmedMs = 0;
  #renewal: NodeJS.Timeout | undefined;
  #deadline: NodeJS.Timeout | undefined;
  #over = false;
  #released = false;

  constructor(server: LeaseServer, claim: LeaseClaim) {
    const { resource, token, fencingToken, ttlMs, askedMs, maxHoldMs = MAX_HOLD_MS } = claim;
    this.#server = server;
    this.resource = resource;
    this.token = token;
    this.fencingToken = fencingToken;
    this.#ttlMs = ttlMs;
    this.#holdUntilMs = askedMs + maxHoldMs;
    // Counted from the question, as the deadline is: the answer may have taken most of the lease.
    this.#scheduleRenewal(Math.max(0, askedMs + this.#pauseMs() - performance.now()));
    this.#confirm(askedMs);
  }

  get signal(): AbortSignal {
    if (performance.now() >= this.deadlineMs) this.lose('the lease was not renewed in time');
    return this.#lost.signal;
  }

  /** When the newest request was sent that the server granted, on `performance.now()`'s clock. */
  get confirmedMs(): number {
    return this.#confirmedMs;
  }

  async release(): Promise<boolean> {
    if (this.#released) return false;
    this.#released = true;
    if (this.#over) {
      // Lost for this process; the server may keep it for the rest of the TTL, but needs not to.
      this.#server.release().catch(() => {});
      return false;
    }
    this.#end();
    try {
      return await this.#server.release();
    } catch {
      return false; // it runs out with its TTL
    } finally {
      this.onEnd();
    }
  }

  /** The lease is over for this process, before its deadline: what its lock's server tells by other ways. */
  lose(reason: string): void {
    if (this.#over) return;
    this.#end();
    this.deadlineMs = Math.min(this.deadlineMs, performance.now());
    this.#lost.abort(new LeaseLostError(`${this.resource}: ${reason}`));
    // Whoever waits in this process asks the server, which knows whether the lease is over.
    this.onEnd();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #confirm(askedMs: number): void {
    // Answers can overtake each other: the deadline only moves on.
    this.#confirmedMs = Math.max(this.#confirmedMs, askedMs);
    this.deadlineMs = this.#confirmedMs + this.#ttlMs * (1 - DRIFT_SHARE) - DRIFT_MS;
    clearTimeout(this.#deadline);
    const leftMs = this.deadlineMs - performance.now();
    if (leftMs <= 0) this.lose('the lease may have expired');
    else this.#deadline = setTimeout(() => this.lose('the lease was not renewed in time'), leftMs);
  }

  /** Jitter of a tenth, so that leases taken together are not renewed together. */
  #pauseMs(): number {
    return (this.#ttlMs / 3) * (0.9 + Math.random() * 0.1);
  }

  #scheduleRenewal(pauseMs = this.#pauseMs()): void {
    clearTimeout(this.#renewal);
    this.#renewal = setTimeout(() => void this.#renew(), pauseMs);
  }

  async #renew(): Promise<void> {
    const askedMs = performance.now();
    if (askedMs + this.#ttlMs > this.#holdUntilMs) return;
    this.#scheduleRenewal(); // also when this one hangs
    try {
      const renewed = await this.#server.renew();
      if (this.#over) return;
      if (renewed) this.#confirm(askedMs);
      else this.lose('the lock is held by another, or was deleted');
    } catch {
      // The deadline stands; another renewal may come through before it.
      if (!this.#over) this.#scheduleRenewal(Math.max(RETRY_LEAST_MS, this.#ttlMs * RETRY_SHARE));
    }
  }

  #end(): void {
    this.#over = true;
    clearTimeout(this.#renewal);
    clearTimeout(this.#deadline);
  }
}
