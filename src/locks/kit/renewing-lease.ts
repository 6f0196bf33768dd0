/**
 * A lease that renews itself and computes from its own clock how long it is certainly held.
 *
 *   held ──every TTL/3──▶ renew ──yes──▶ held, with a later deadline
 *    │                     ├──failed──▶ renew again after a short pause
 *    │                     └──no, or no reply until the deadline──▶ lost: `signal` fires
 *    └──release──▶ released
 *
 * The deadline counts from before a request was sent, on the monotonic clock, minus a margin for clock drift between the
 * two machines. It therefore precedes the expiry at the server.
 */
import { LeaseLostError, type ReleaseResult } from '../lock.ts';
import { PlainLease } from './plain-lease.ts';

/** Bound of the drift between two machines' clocks: a share of the lease plus a constant. */
const DRIFT_SHARE = 0.01;
const DRIFT_MS = 2;
/** Pause after a failed renewal: a share of the TTL, with a minimum in milliseconds. */
const RETRY_SHARE = 0.05;
const MIN_RETRY_MS = 10;
/** Renewal stops this long after the acquisition, in milliseconds, so that a hung holder loses its lease. */
const MAX_HOLD_MS = 600_000;
/** Shortest TTL, in milliseconds: a renewal after a third of it, a repeat of the renewal and the margin for drift fit in. */
export const MIN_TTL_MS = Math.ceil((MIN_RETRY_MS + DRIFT_MS) / (2 / 3 - DRIFT_SHARE));

/** The server's side of a lease. Both methods may throw. */
export interface LeaseBackend {
  /** Extends the lease to its full TTL from now. @returns whether it was still held */
  renew(): Promise<boolean>;
  /** @returns whether it was still held */
  release(): Promise<boolean>;
}

export interface LeaseAcquisition {
  readonly resource: string;
  readonly token: string;
  readonly fencingToken: number | null;
  readonly ttlMs: number;
  /** `performance.now()` before the granted request was sent. */
  readonly requestedAtMs: number;
}

export class RenewingLease extends PlainLease {
  readonly #backend: LeaseBackend;
  readonly #ttlMs: number;
  readonly #holdUntilMs: number;
  readonly #lost = new AbortController();
  #confirmedAtMs = 0;
  #renewal: NodeJS.Timeout | undefined;
  #deadline: NodeJS.Timeout | undefined;
  #hasEnded = false;

  constructor(backend: LeaseBackend, acquisition: LeaseAcquisition) {
    const { ttlMs, requestedAtMs } = acquisition;
    super({ ...acquisition, deadlineMs: 0, release: () => backend.release() });
    this.#backend = backend;
    this.#ttlMs = ttlMs;
    this.#holdUntilMs = requestedAtMs + MAX_HOLD_MS;
    // Counted from the request, like the deadline: the reply may have taken most of the lease.
    this.#scheduleRenewal(Math.max(0, requestedAtMs + this.#renewalPauseMs() - performance.now()));
    this.#confirm(requestedAtMs);
  }

  override get signal(): AbortSignal {
    if (performance.now() >= this.deadlineMs) this.lose('the lease was not renewed in time');
    return this.#lost.signal;
  }

  /** When the newest granted request was sent, on `performance.now()`'s clock. */
  get confirmedAtMs(): number {
    return this.#confirmedAtMs;
  }

  /** Ends the lease before its deadline, on information from the lock's server or connection. */
  lose(reason: string): void {
    if (this.#hasEnded) return;
    this.#end();
    this.deadlineMs = Math.min(this.deadlineMs, performance.now());
    this.#lost.abort(new LeaseLostError(`${this.resource}: ${reason}`));
    // The next local contender may try: the server decides whether the lease has expired.
    this.onEnd('lost');
  }

  protected override async end(): Promise<ReleaseResult> {
    if (this.#hasEnded) {
      // Lost for this process; the server may still hold the lock for the rest of the TTL.
      this.#backend.release().catch(() => {});
      return 'lost';
    }
    this.#end();
    const result = await this.releaseAtServer();
    if (result === 'lost')
      this.#lost.abort(new LeaseLostError(`${this.resource}: it had ended before its release`));
    this.onEnd(result);
    return result;
  }

  #confirm(requestedAtMs: number): void {
    // Replies can overtake each other: the deadline never moves back.
    this.#confirmedAtMs = Math.max(this.#confirmedAtMs, requestedAtMs);
    this.deadlineMs = this.#confirmedAtMs + this.#ttlMs * (1 - DRIFT_SHARE) - DRIFT_MS;
    clearTimeout(this.#deadline);
    const leftMs = this.deadlineMs - performance.now();
    if (leftMs <= 0) this.lose('the lease may have expired');
    else this.#deadline = setTimeout(() => this.lose('the lease was not renewed in time'), leftMs);
  }

  /** A jitter of a tenth spreads the renewals of leases that were acquired together. */
  #renewalPauseMs(): number {
    return (this.#ttlMs / 3) * (0.9 + Math.random() * 0.1);
  }

  #scheduleRenewal(pauseMs = this.#renewalPauseMs()): void {
    clearTimeout(this.#renewal);
    this.#renewal = setTimeout(() => void this.#renew(), pauseMs);
  }

  async #renew(): Promise<void> {
    const requestedAtMs = performance.now();
    if (requestedAtMs + this.#ttlMs > this.#holdUntilMs) return;
    this.#scheduleRenewal(); // even if this renewal hangs
    try {
      const isRenewed = await this.#backend.renew();
      if (this.#hasEnded) return;
      if (isRenewed) this.#confirm(requestedAtMs);
      else this.lose('another contender holds the lock, or its key was deleted');
    } catch {
      // The deadline is unchanged; another renewal may succeed before it.
      if (!this.#hasEnded) this.#scheduleRenewal(Math.max(MIN_RETRY_MS, this.#ttlMs * RETRY_SHARE));
    }
  }

  #end(): void {
    this.#hasEnded = true;
    clearTimeout(this.#renewal);
    clearTimeout(this.#deadline);
  }
}
