/**
 * Gathers what is asked at the same time, each key apart, and hands it on in batches. There is no timer: who asks alone
 * goes at once, and those that come while batches of their key are under way form the next one. Beside a batch of only a few
 * another goes at once; beside a large one only when it is full: otherwise the first that came after the large one would go
 * alone, and cost as much as all of them together.
 *
 *   ask ──▶ waiting ──fewer than `inFlight` of this key under way──▶ in a batch ──▶ answered
 *     │ too many wait: turned down                                       └─ the batch fails ──▶ failed, or, when one
 *     │                                                                     member may be the cause, again in halves
 *     └─ waited too long: turned down, nothing was asked                     down to the one
 */
interface Asked<T, R> {
  readonly item: T;
  /** After this, on `performance.now()`'s clock, it is turned down. */
  readonly untilMs: number;
  resolve(answer: R): void;
  reject(error: unknown): void;
}

interface Line<T, R> {
  readonly waiting: Asked<T, R>[];
  underWay: number;
  /** Members of the batch that went last. */
  size: number;
}

export interface MicroBatcherOptions<T, R> {
  /** Members of a batch. */
  readonly maxBatch: number;
  /** Batches of a key under way at once. */
  readonly inFlight: number;
  /** A batch of so many members lets another one go beside it that is not full. */
  readonly eagerBelow: number;
  /** Items of all keys that may wait. */
  readonly maxQueued: number;
  /** How long one may wait until it is turned down, milliseconds. */
  readonly waitMs: number;
  /** Told of the size of each batch. */
  onBatch(size: number): void;
  /** Does the work of one batch: calls `answer` for members as soon as their answers are sure. */
  work(key: number, items: readonly T[], answer: (item: T, answer: R) => void): Promise<void>;
  /** The answer to an item that is not handed on. */
  rejected(reason: string): R;
  /** Whether a single member may have made the batch fail. */
  isMemberError(error: unknown): boolean;
}

export interface MicroBatcher<T, R> {
  /**
   * Asks for one item; rejects with what `work` threw.
   * @param untilMs until when it waits, on `performance.now()`'s clock
   */
  submit(key: number, item: T, untilMs?: number): Promise<R>;
  /** Items that wait for their batch. */
  readonly waiting: number;
}

export function microBatcher<T, R>(options: MicroBatcherOptions<T, R>): MicroBatcher<T, R> {
  const lines = new Map<number, Line<T, R>>();
  let waiting = 0;

  function pump(key: number, line: Line<T, R>): void {
    while (line.underWay < options.inFlight && mayGo(line)) {
      const next = line.waiting.splice(0, options.maxBatch);
      waiting -= next.length;
      const batch = next.filter(inTime);
      if (batch.length === 0) continue;
      line.underWay++;
      line.size = batch.length;
      options.onBatch(batch.length);
      void run(key, batch).finally(() => {
        line.underWay--;
        pump(key, line);
      });
    }
    if (line.underWay === 0) lines.delete(key);
  }

  function mayGo({ waiting, underWay, size }: Line<T, R>): boolean {
    const least = underWay === 0 || size <= options.eagerBelow ? 1 : options.maxBatch;
    return waiting.length >= least;
  }

  function inTime(asked: Asked<T, R>): boolean {
    if (performance.now() <= asked.untilMs) return true;
    asked.resolve(options.rejected('waited-too-long'));
    return false;
  }

  async function run(key: number, batch: readonly Asked<T, R>[]): Promise<void> {
    const members = new Map(batch.map((asked) => [asked.item, asked]));
    const answer = (item: T, value: R) => {
      const asked = members.get(item);
      members.delete(item);
      asked?.resolve(value);
    };
    try {
      await options.work(key, [...members.keys()], answer);
      if (members.size > 0) throw new Error(`${members.size} members of a batch were not answered`);
    } catch (error) {
      const rest = [...members.values()];
      const middle = rest.length >> 1;
      if (middle > 0 && options.isMemberError(error)) {
        await run(key, rest.slice(0, middle));
        await run(key, rest.slice(middle));
      } else for (const asked of rest) asked.reject(error);
    }
  }

  return {
    submit(key, item, untilMs = performance.now() + options.waitMs) {
      if (waiting >= options.maxQueued) return Promise.resolve(options.rejected('queue-full'));
      return new Promise((resolve, reject) => {
        const line = lines.get(key) ?? { waiting: [], underWay: 0, size: 0 };
        lines.set(key, line);
        line.waiting.push({ item, untilMs, resolve, reject });
        waiting++;
        pump(key, line);
      });
    },
    get waiting() {
      return waiting;
    },
  };
}
