/**
 * Batches of items with any keys, so that many keys with few items each are processed together; and batches of one key, which may wait for
 * that key and delay no other:
 *
 *   submit ──▶ shared batch ──▶ answered
 *     │           └─ left, or its key fills a good part of the batch ──▶ batch of the key
 *     └─ its key has a batch ──▶ batch of the key ──▶ answered
 */
import { type MicroBatcherOptions, microBatcher } from './micro-batcher.ts';

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
