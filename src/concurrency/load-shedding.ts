/**
 * Load shedding: admits attempts up to a concurrency limit, queues further ones briefly, and rejects the rest.
 *
 *   attempt ──below the limit──▶ in flight ──▶ done; the head of the queue is admitted
 *      ├──at the limit──▶ queued ──admitted──▶ in flight
 *      │                     └──queue timeout──▶ rejected
 *      └──queue full──▶ rejected
 *
 * An admitted attempt should be answered within a target time. A share of it is for service by the stores. The concurrency
 * limit is what they complete in that share (Little's law: concurrency = throughput × service time). It is measured only
 * while attempts are queued; otherwise the throughput describes the customers rather than the stores. The rest of the target
 * time is for the queue, which is first in, first out. A sudden rush may fill a long queue. After a queue timeout, the queue
 * is no longer than what is served in time. One client may fill only a share of the queue, short or long.
 */
import { limits } from '../config/limits.ts';

export interface LoadShedder {
  /**
   * Requests admission. Every admitted caller must call `leave` when done.
   * @param client the client whose share of the queue the attempt uses; null: no share applies
   * @returns true: admitted; false: rejected; a promise of either: queued
   */
  enter(client?: string | null): boolean | Promise<boolean>;
  leave(): void;
  /** For metrics. */
  readonly state: {
    readonly inFlight: number;
    readonly queued: number;
    readonly limit: number;
    /** Attempts a second that the limit admits. */
    readonly perSecond: number;
    /** Attempts served, and queued, since the start. */
    readonly served: number;
    readonly queuedEver: number;
  };
}

interface Queued {
  readonly sinceMs: number;
  readonly client: string | null;
  resolve(admitted: boolean): void;
}

type Bounds = { readonly [Bound in keyof typeof limits.admission]: number };

/**
 * @param targetMs response-time target of an admitted attempt, milliseconds
 * @param maxBatch attempts that the strategy decides together; a limit below half of it would only make batches smaller
 */
export const createLoadShedder = (
  targetMs: number,
  maxBatch: number,
  bounds: Bounds = limits.admission,
): LoadShedder => new Shedder(targetMs, maxBatch, bounds);

class Shedder implements LoadShedder {
  readonly #bounds: Bounds;
  readonly #minLimit: number;
  readonly #serviceMs: number;
  readonly #queueMs: number;
  #limit: number;
  #inFlight = 0;
  #queue: Queued[] = [];
  /** Index of the first queued attempt; the slots before it are consumed. */
  #head = 0;
  /** Queued attempts of each client that has any. */
  readonly #queuedOf = new Map<string, number>();
  #timer: NodeJS.Timeout | null = null;
  #windowStartMs = performance.now();
  #completed = 0;
  #served = 0;
  #queuedEver = 0;
  #wasSaturated = false;
  #lastTimeoutMs = Number.NEGATIVE_INFINITY;

  constructor(targetMs: number, maxBatch: number, bounds: Bounds) {
    this.#bounds = bounds;
    this.#minLimit = Math.max(bounds.minLimit, maxBatch / 2);
    this.#serviceMs = bounds.serviceShare * targetMs;
    this.#queueMs = targetMs - this.#serviceMs;
    this.#limit = Math.max(bounds.initialLimit, this.#minLimit);
  }

  get #queued(): number {
    return this.#queue.length - this.#head;
  }

  enter(client: string | null = null): boolean | Promise<boolean> {
    if (this.#inFlight < this.#limit && this.#queued === 0) {
      this.#inFlight += 1;
      return true;
    }
    this.#wasSaturated = true;
    const nowMs = performance.now();
    const isShort = nowMs - this.#lastTimeoutMs < this.#bounds.shortQueueMs;
    const maxQueued = isShort ? (this.#limit * this.#queueMs) / this.#serviceMs : this.#bounds.maxQueued;
    if (this.#queued >= maxQueued) return false;
    const share = Math.max(1, maxQueued * this.#bounds.clientShare);
    if (client !== null && (this.#queuedOf.get(client) ?? 0) >= share) return false;
    this.#count(client, 1);
    this.#queuedEver += 1;
    this.#timer ??= setInterval(() => this.#check(), this.#bounds.checkMs).unref();
    return new Promise((resolve) => this.#queue.push({ sinceMs: nowMs, client, resolve }));
  }

  leave(): void {
    this.#inFlight -= 1;
    this.#completed += 1;
    this.#served += 1;
    this.#adjust(performance.now());
    this.#admit();
  }

  get state(): LoadShedder['state'] {
    return {
      inFlight: this.#inFlight,
      queued: this.#queued,
      limit: this.#limit,
      perSecond: (this.#limit / this.#serviceMs) * 1_000,
      served: this.#served,
      queuedEver: this.#queuedEver,
    };
  }

  /** Adjusts the limit once per window; most calls return at the first check. */
  #adjust(nowMs: number): void {
    const { windowMs, maxLimit } = this.#bounds;
    const elapsedMs = nowMs - this.#windowStartMs;
    if (elapsedMs < windowMs) return;
    // A much longer window included idle time.
    if (this.#wasSaturated && elapsedMs < 2 * windowMs) {
      const sustained = (this.#completed / elapsedMs) * this.#serviceMs;
      const between = Math.round((this.#limit + sustained) / 2);
      this.#limit = Math.min(maxLimit, Math.max(this.#minLimit, between));
    }
    this.#windowStartMs = nowMs;
    this.#completed = 0;
    this.#wasSaturated = this.#queued > 0;
  }

  #count(client: string | null, change: 1 | -1): void {
    if (client === null) return;
    const counted = (this.#queuedOf.get(client) ?? 0) + change;
    if (counted === 0) this.#queuedOf.delete(client);
    else this.#queuedOf.set(client, counted);
  }

  #dequeue(): Queued | undefined {
    const first = this.#queue[this.#head];
    if (first === undefined) return undefined;
    this.#head += 1;
    this.#count(first.client, -1);
    if (this.#head > 1_000 && this.#head * 2 > this.#queue.length) {
      this.#queue = this.#queue.slice(this.#head);
      this.#head = 0;
    }
    return first;
  }

  #admit(): void {
    while (this.#inFlight < this.#limit) {
      const first = this.#dequeue();
      if (first === undefined) return;
      this.#inFlight += 1;
      first.resolve(true);
    }
  }

  /** Runs while the queue is not empty: rejects attempts that were queued for too long. */
  #check(): void {
    const nowMs = performance.now();
    this.#adjust(nowMs);
    this.#admit();
    while (this.#queued > 0 && nowMs - this.#queue[this.#head]!.sinceMs > this.#queueMs) {
      this.#lastTimeoutMs = nowMs;
      this.#dequeue()!.resolve(false);
    }
    if (this.#queued === 0 && this.#timer !== null) {
      clearInterval(this.#timer);
      this.#timer = null;
    }
  }
}
