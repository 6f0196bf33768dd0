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
export function createLoadShedder(
  targetMs: number,
  maxBatch: number,
  bounds: Bounds = limits.admission,
): LoadShedder {
  const minLimit = Math.max(bounds.minLimit, maxBatch / 2);
  const serviceMs = bounds.serviceShare * targetMs;
  const queueMs = targetMs - serviceMs;
  let limit = Math.max(bounds.initialLimit, minLimit);
  let inFlight = 0;
  let queue: Queued[] = [];
  /** Index of the first queued attempt; the slots before it are consumed. */
  let head = 0;
  /** Queued attempts of each client that has any. */
  const queuedOf = new Map<string, number>();
  let timer: NodeJS.Timeout | null = null;
  let windowStartMs = performance.now();
  let completed = 0;
  let served = 0;
  let queuedEver = 0;
  let wasSaturated = false;
  let lastTimeoutMs = Number.NEGATIVE_INFINITY;

  const queued = () => queue.length - head;

  /** Adjusts the limit once per window; most calls return at the first check. */
  function adjust(nowMs: number): void {
    const elapsedMs = nowMs - windowStartMs;
    if (elapsedMs < bounds.windowMs) return;
    // A much longer window included idle time.
    if (wasSaturated && elapsedMs < 2 * bounds.windowMs) {
      const sustained = (completed / elapsedMs) * serviceMs;
      limit = Math.min(bounds.maxLimit, Math.max(minLimit, Math.round((limit + sustained) / 2)));
    }
    windowStartMs = nowMs;
    completed = 0;
    wasSaturated = queued() > 0;
  }

  function count(client: string | null, change: 1 | -1): void {
    if (client === null) return;
    const counted = (queuedOf.get(client) ?? 0) + change;
    if (counted === 0) queuedOf.delete(client);
    else queuedOf.set(client, counted);
  }

  function dequeue(): Queued | undefined {
    const first = queue[head];
    if (first === undefined) return undefined;
    head += 1;
    count(first.client, -1);
    if (head > 1_000 && head * 2 > queue.length) {
      queue = queue.slice(head);
      head = 0;
    }
    return first;
  }

  function admit(): void {
    while (inFlight < limit) {
      const first = dequeue();
      if (first === undefined) return;
      inFlight += 1;
      first.resolve(true);
    }
  }

  /** Runs while the queue is not empty: rejects attempts that were queued for too long. */
  function check(): void {
    const nowMs = performance.now();
    adjust(nowMs);
    admit();
    while (queued() > 0 && nowMs - queue[head]!.sinceMs > queueMs) {
      lastTimeoutMs = nowMs;
      dequeue()!.resolve(false);
    }
    if (queued() === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  }

  return {
    enter(client = null) {
      if (inFlight < limit && queued() === 0) {
        inFlight += 1;
        return true;
      }
      wasSaturated = true;
      const nowMs = performance.now();
      const isShort = nowMs - lastTimeoutMs < bounds.shortQueueMs;
      const maxQueued = isShort ? (limit * queueMs) / serviceMs : bounds.maxQueued;
      if (queued() >= maxQueued) return false;
      const share = Math.max(1, maxQueued * bounds.clientShare);
      if (client !== null && (queuedOf.get(client) ?? 0) >= share) return false;
      count(client, 1);
      queuedEver += 1;
      timer ??= setInterval(check, bounds.checkMs).unref();
      return new Promise((resolve) => queue.push({ sinceMs: nowMs, client, resolve }));
    },
    leave() {
      inFlight -= 1;
      completed += 1;
      served += 1;
      adjust(performance.now());
      admit();
    },
    get state() {
      const perSecond = (limit / serviceMs) * 1_000;
      return { inFlight, queued: queued(), limit, perSecond, served, queuedEver };
    },
  };
}
