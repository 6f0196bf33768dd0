/**
 * A micro-batcher: groups concurrent items by key and processes them in batches. Batches form at the end of the turn of the event
 * loop, of all items that arrived in it, so an item that arrives alone starts a batch at once, without a timer. With `inFlight`
 * batches at once, a batch takes its share of all items of its key, those in flight included; beside others it starts when its
 * share has arrived. So batches in flight become equal in size: while the store works on one, the next is waiting there, and the
 * answers of the last are passed on. If a batch started within the turn, the first item of many that arrive together, as answers
 * of one script do, would form a batch of one, which costs nearly as much as a full one.
 *
 *   submit ──▶ queued ──fewer than `inFlight` batches of the key──▶ in a batch ──▶ answered
 *      │          └─ `holdMs` after the end of the last batch ──▶ held back until then, or it is full
 *      │ queue full: rejected                                          └─ the batch fails ──▶ every member fails; if one
 *      └─ queued for too long: rejected, not processed                      member may be the cause, the halves are retried
 *                                                                           separately, down to single members
 */
import { trace } from './trace.ts';

interface Submitted<T, R> {
  readonly item: T;
  /** When it was submitted, on `performance.now()`'s clock. */
  readonly sinceMs: number;
  /** Rejected after this instant, on `performance.now()`'s clock. */
  readonly untilMs: number;
  resolve(answer: R): void;
  reject(error: unknown): void;
}

interface KeyQueue<T, R> {
  readonly waiting: Submitted<T, R>[];
  /** Batches in flight. */
  inFlight: number;
  /** Their members. */
  members: number;
  /** At the end of this turn of the event loop, batches form. */
  isScheduled: boolean;
  /** When the last batch ended, on `performance.now()`'s clock. */
  endedMs: number;
  /** Ends the hold. */
  timer?: NodeJS.Timeout;
}

/** Why an item was not processed. */
export type NotProcessed = 'queue-full' | 'waited-too-long';

export interface MicroBatcherOptions<T, R> {
  /** Names the queue in traces. */
  readonly name: string;
  /** Members of a batch. */
  readonly maxBatch: number;
  /** So many go together although their share is smaller. */
  readonly leastBatch: number;
  /** Batches of a key in flight at once. */
  inFlight(key: number): number;
  /**
   * While none is in flight, the next batch starts so long after the end of the last one, or when it is full, or if the deadline of its first
   * item comes before. The key is kept for longer than that. Milliseconds; below 1 at once.
   */
  holdMs?(key: number): number;
  /** Items queued, over all keys. */
  readonly maxQueued: number;
  /** Time an item may be queued, milliseconds. */
  readonly waitMs: number;
  /** Receives the size of each batch. */
  onBatch(size: number): void;
  /** Processes one batch. Calls `answer` for each member as soon as its result is final. */
  work(key: number, items: readonly T[], answer: (item: T, answer: R) => void): Promise<void>;
  /** The answer to an item that is not processed. */
  rejected(reason: NotProcessed, item: T): R;
  /** Whether a single member may have caused the failure of the batch. */
  isMemberError(error: unknown): boolean;
}

export interface MicroBatcher<T, R> {
  /**
   * Submits one item; rejects with what `work` threw.
   * @param untilMs deadline for its batch to start, on `performance.now()`'s clock
   */
  submit(key: number, item: T, untilMs?: number): Promise<R>;
  /** Whether items of this key are queued or in a batch. */
  has(key: number): boolean;
  /** Items queued. */
  readonly waiting: number;
}

/** A key without items is kept for so many holds. */
const HOLDS_KEPT = 5;
const EMPTY = { inFlight: 0, members: 0, isScheduled: false, endedMs: Number.NEGATIVE_INFINITY };

export function microBatcher<T, R>(options: MicroBatcherOptions<T, R>): MicroBatcher<T, R> {
  const queues = new Map<number, KeyQueue<T, R>>();
  let waiting = 0;

  function schedule(key: number, queue: KeyQueue<T, R>): void {
    if (!queue.isScheduled) setImmediate(pump, key, queue);
    queue.isScheduled = true;
  }

  function pump(key: number, queue: KeyQueue<T, R>): void {
    queue.isScheduled = false;
    if (queue.inFlight === 0 && isHeld(key, queue)) return;
    const most = options.inFlight(key);
    while (queue.inFlight < most && queue.waiting.length > 0) {
      const start = Math.min(Math.ceil((queue.waiting.length + queue.members) / most), options.maxBatch);
      if (queue.inFlight > 0 && queue.waiting.length < start) break;
      const next = queue.waiting.splice(0, Math.max(start, options.leastBatch));
      waiting -= next.length;
      const batch = next.filter(keepUnlessLate);
      if (batch.length === 0) continue;
      queue.inFlight++;
      queue.members += batch.length;
      options.onBatch(batch.length);
      const about = { size: batch.length, sinceMs: batch[0]!.sinceMs, left: queue.waiting.length };
      void trace({ name: options.name, batch: about }, () => run(options, key, batch)).finally(() => {
        queue.inFlight--;
        queue.members -= batch.length;
        queue.endedMs = performance.now();
        if (queue.waiting.length > 0) schedule(key, queue);
        else if (queue.inFlight === 0 && !isHeld(key, queue)) queues.delete(key);
      });
    }
    if (queue.inFlight === 0) queues.delete(key);
  }

  /** Whether the next batch is held back, or the key kept for it. A timer ends that. */
  function isHeld(key: number, queue: KeyQueue<T, R>): boolean {
    clearTimeout(queue.timer);
    const leftMs = holdLeftMs(queue, options.holdMs?.(key) ?? 0);
    if (leftMs < 1 || queue.waiting.length >= options.maxBatch) return false;
    queue.timer = setTimeout(() => pump(key, queue), leftMs);
    return true;
  }

  function keepUnlessLate(submitted: Submitted<T, R>): boolean {
    if (performance.now() <= submitted.untilMs) return true;
    submitted.resolve(options.rejected('waited-too-long', submitted.item));
    return false;
  }

  return {
    submit(key, item, untilMs) {
      if (waiting >= options.maxQueued) return Promise.resolve(options.rejected('queue-full', item));
      return new Promise((resolve, reject) => {
        const queue = queues.get(key) ?? { waiting: [], ...EMPTY };
        queues.set(key, queue);
        const sinceMs = performance.now();
        queue.waiting.push({ item, sinceMs, untilMs: untilMs ?? sinceMs + options.waitMs, resolve, reject });
        waiting++;
        schedule(key, queue);
      });
    },
    has: (key) => queues.has(key),
    get waiting() {
      return waiting;
    },
  };
}

/** How long the next batch is still held back: not beyond the deadline of its first item. Without items, how long the key is kept. */
function holdLeftMs<T, R>({ endedMs, waiting }: KeyQueue<T, R>, holdMs: number): number {
  if (holdMs < 1) return 0;
  const untilMs = endedMs + (waiting.length > 0 ? holdMs : HOLDS_KEPT * holdMs);
  return waiting.length > 0 && waiting[0]!.untilMs <= untilMs ? 0 : untilMs - performance.now();
}
/** Processes a batch. If it fails, and one member may be the cause, the halves follow. */
async function run<T, R>(
  options: Pick<MicroBatcherOptions<T, R>, 'work' | 'isMemberError'>,
  key: number,
  batch: readonly Submitted<T, R>[],
): Promise<void> {
  const members = new Map(batch.map((submitted) => [submitted.item, submitted]));
  const answer = (item: T, value: R) => {
    const submitted = members.get(item);
    members.delete(item);
    submitted?.resolve(value);
  };
  try {
    await options.work(key, [...members.keys()], answer);
    if (members.size > 0) throw new Error(`${members.size} members of a batch were not answered`);
  } catch (error) {
    const rest = [...members.values()];
    const middle = rest.length >> 1;
    if (middle > 0 && options.isMemberError(error)) {
      await run(options, key, rest.slice(0, middle));
      await run(options, key, rest.slice(middle));
    } else for (const submitted of rest) submitted.reject(error);
  }
}

export interface SharedBatchesOptions<T, R> extends MicroBatcherOptions<T, R> {
  /** Not 0. */
  keyOf(item: T): number;
  /** Processes a batch of one key, or with the key SHARED of any: there an item that it does not answer goes to a batch of its key. */
  work: MicroBatcherOptions<T, R>['work'];
}

export interface SharedBatches<T, R> {
  /** As `MicroBatcher.submit`. */
  submit(item: T, untilMs?: number): Promise<R>;
  /** Items queued. */
  readonly waiting: number;
}

/** The key of the shared batches. */
export const SHARED = 0;
const LEFT = Symbol('left');

/**
 * Batches of items with any keys, so that many keys with few items each are processed together; and batches of one key, which may wait for
 * that key and delay no other:
 *
 *   submit ──▶ shared batch ──▶ answered
 *     │           └─ left, or its key fills a good part of the batch ──▶ batch of the key
 *     └─ its key has a batch ──▶ batch of the key ──▶ answered
 */
export function sharedBatches<T, R>(options: SharedBatchesOptions<T, R>): SharedBatches<T, R> {
  const { keyOf, work, ...batches } = options;
  /** Items of one key in a shared batch, from which on they go to a batch of the key: others do not queue behind them. */
  const ownBatch = batches.maxBatch / 4;
  const own = microBatcher<T, R>({ ...batches, name: `${batches.name}-of-key`, work });
  const together = microBatcher<T, R | typeof LEFT>({
    ...batches,
    onBatch: () => {},
    async work(_, items, answer) {
      const perKey = new Map<number, number>();
      for (const item of items) perKey.set(keyOf(item), (perKey.get(keyOf(item)) ?? 0) + 1);
      const few: T[] = [];
      for (const item of items)
        if (own.has(keyOf(item)) || perKey.get(keyOf(item))! >= ownBatch) answer(item, LEFT);
        else few.push(item);
      if (few.length === 0) return;
      batches.onBatch(few.length);
      await work(SHARED, few, answer);
      for (const item of few) answer(item, LEFT); // has no effect on one that is answered
    },
  });
  return {
    submit(item, untilMs) {
      const key = keyOf(item);
      if (own.has(key)) return own.submit(key, item, untilMs);
      return together
        .submit(SHARED, item, untilMs)
        .then((answer) => (answer === LEFT ? own.submit(key, item, untilMs) : answer));
    },
    get waiting() {
      return together.waiting + own.waiting;
    },
  };
}
