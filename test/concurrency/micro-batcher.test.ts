import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { microBatcher } from '../../src/concurrency/micro-batcher.ts';
import { limits } from '../../src/config/limits.ts';

/** A batch in flight, which the test ends. */
interface Batch {
  readonly key: number;
  readonly items: readonly string[];
  end(error?: Error): void;
}
let batches: Batch[];
/** Batch sizes that `onBatch` reported. */
let reported: number[];
const bounds = {
  name: 'letters',
  maxBatch: limits.commitBatchSize,
  leastBatch: limits.leastBatch,
  inFlight: () => inFlight,
  maxQueued: limits.commitQueue,
  waitMs: limits.commitWaitMs,
  onBatch: (size: number) => void reported.push(size),
};
let submit: (key: number, item: string, untilMs?: number) => Promise<string>;
let has: (key: number) => boolean;
/** What the key's queue may do. */
let inFlight: number;
let holdMs: number;
const sizes = () => batches.map(({ items }) => items.length);
/** What has arrived forms batches; after an answer, a turn of the event loop later. */
async function turn(): Promise<void> {
  for (let n = 0; n < 2; n++) await new Promise((resolve) => setImmediate(resolve));
}
/** Submits each in another turn of the event loop. */
async function submitInTurn(...items: string[]): Promise<Promise<string>[]> {
  const answers: Promise<string>[] = [];
  for (const item of items) {
    answers.push(submit(1, item));
    await turn();
  }
  return answers;
}
/** Ends all batches, with those that follow from them. */
async function endAll(): Promise<void> {
  await turn();
  while (batches.length > 0) {
    batches[0]!.end();
    await turn();
  }
}

beforeEach(() => {
  batches = [];
  inFlight = limits.commitInFlight;
  holdMs = 0;
  reported = [];
  ({ submit, has } = microBatcher<string, string>({
    work: (key, items, answer) =>
      new Promise((resolve, reject) => {
        const end = (error?: Error) => {
          batches = batches.filter((other) => other.end !== end);
          if (error !== undefined) return reject(error);
          for (const item of items) answer(item, `done ${item}`);
          resolve();
        };
        batches.push({ key, items, end });
      }),
    ...bounds,
    holdMs: () => holdMs,
    rejected: (reason) => reason,
    isMemberError: (error) => (error as Error).message === 'a member',
  }));
});
afterEach(() => vi.useRealTimers());

describe('batches', () => {
  it('send a lone submission at once, and gather those that arrive meanwhile', async () => {
    const answers = await submitInTurn(...'abcdef');
    const members = () => batches.map(({ items }) => items.join(''));
    expect(members()).toEqual(['a', 'b', 'c']);
    batches[0]!.end();
    await turn();
    expect(members()).toEqual(['b', 'c', 'def']);
    expect(reported).toEqual([1, 1, 1, 3]);
    await endAll();
    expect(await Promise.all(answers)).toEqual([...'abcdef'].map((item) => `done ${item}`));
  });

  it('become equal in size, and wait for their share beside others', async () => {
    let submitted = 0;
    async function submitMany(count: number): Promise<number[]> {
      for (let i = 0; i < count; i++) void submit(1, String(submitted++));
      await turn();
      return sizes();
    }
    expect(await submitMany(90)).toEqual([30, 30, 30]); // and not 1, 1, 1
    batches[0]!.end();
    expect(await submitMany(29)).toEqual([30, 30]);
    expect(await submitMany(1)).toEqual([30, 30, 30]);
  });

  it('leave their key when the last has ended, in the same turn', async () => {
    const answer = submit(1, 'a');
    await turn();
    expect(has(1)).toBe(true);
    batches[0]!.end();
    await answer;
    for (let n = 0; n < 10; n++) await Promise.resolve(); // no turn of the event loop
    expect(has(1)).toBe(false);
  });

  it('are formed per key', async () => {
    for (let i = 0; i < 5; i++) for (const key of [1, 2]) void submit(key, `${key}-${i}`);
    await turn();
    expect(batches.map(({ key, items }) => [key, items])).toEqual(
      [1, 2].map((key) => [key, [0, 1, 2, 3, 4].map((i) => `${key}-${i}`)]),
    );
  });

  it('have a bounded size', async () => {
    const count = limits.commitInFlight * (limits.commitBatchSize + 10);
    const answers = Array.from({ length: count }, (_, i) => submit(1, String(i)));
    await turn();
    expect(sizes()).toEqual(Array(limits.commitInFlight).fill(limits.commitBatchSize));
    await endAll();
    await Promise.all(answers);
  });

  it('reject submissions when the queue is full', async () => {
    const answers = Array.from({ length: limits.commitQueue }, (_, i) => submit(1, String(i)));
    expect(await submit(2, 'one more')).toBe('queue-full');
    await endAll();
    await Promise.all(answers);
    void submit(2, 'later');
    await turn();
    expect(sizes()).toEqual([1]);
  });

  it('reject submissions that waited too long, and do not send them', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    await submitInTurn('a', 'b', 'c');
    const early = submit(1, 'early');
    vi.advanceTimersByTime(limits.commitWaitMs + 1);
    const late = submit(1, 'late');
    batches[0]!.end();
    expect(await early).toBe('waited-too-long');
    await turn();
    expect(batches.map(({ items }) => items)).toEqual([['b'], ['c'], ['late']]);
    batches[2]!.end();
    expect(await late).toBe('done late');
  });
});

describe('a batch that is held back', () => {
  const members = () => batches.map(({ items }) => items.join(''));
  /** One batch has ended. */
  beforeEach(async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
    inFlight = 1;
    holdMs = 10;
    void submit(1, 'first');
    await turn();
    expect(members(), 'no batch ended before it').toEqual(['first']);
    await endAll();
  });

  it('starts so long after the end of the last one, with all that arrived', async () => {
    void submit(1, 'a');
    await turn();
    vi.advanceTimersByTime(9);
    void submit(1, 'b');
    await turn();
    expect(members()).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(members()).toEqual(['ab']);
  });

  it('starts when it is full, and needs no timer then', async () => {
    for (let i = 0; i < limits.commitBatchSize; i++) void submit(1, String(i));
    await turn();
    expect(sizes()).toEqual([limits.commitBatchSize]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('starts before the deadline of its first item', async () => {
    void submit(1, 'soon', performance.now() + 10);
    await turn();
    expect(members()).toEqual(['soon']);
  });

  it('keeps its key for some holds, and starts at once after the first', async () => {
    vi.advanceTimersByTime(49);
    expect(has(1)).toBe(true);
    void submit(1, 'late');
    await turn();
    expect(members()).toEqual(['late']);
    await endAll();
    vi.advanceTimersByTime(50);
    expect(has(1)).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('a batch that fails', () => {
  /** Ends each batch; a batch with an x fails. @returns the batches tried */
  async function endEach(message: string): Promise<string[]> {
    const tried: string[] = [];
    for (;;) {
      const [batch] = batches;
      if (batch === undefined) return tried;
      tried.push(batch.items.join(''));
      batch.end(batch.items.includes('x') ? new Error(message) : undefined);
      await turn();
    }
  }

  it('because of one member fails only that member', async () => {
    const answers = Promise.allSettled([...'abxcdefg'].map((item) => submit(1, item)));
    await turn();
    const tried = await endEach('a member');
    expect(tried).toEqual(['abxcdefg', 'abxc', 'ab', 'xc', 'x', 'c', 'defg']);
    const ends = await answers;
    expect(ends.filter(({ status }) => status === 'rejected')).toHaveLength(1);
    expect(ends[2]).toMatchObject({ status: 'rejected', reason: { message: 'a member' } });
  });

  it('for any other reason fails as a whole, once', async () => {
    const answers = Promise.allSettled([...'abxc'].map((item) => submit(1, item)));
    await turn();
    expect(await endEach('the connection')).toEqual(['abxc']);
    for (const { status } of await answers) expect(status).toBe('rejected');
  });

  it('keeps the answers that it gave before', async () => {
    const { submit: submitOther } = microBatcher<string, string>({
      async work(_key, items, answer) {
        if (items.length === 1) return;
        answer(items[0]!, 'kept');
        throw new Error('then it failed');
      },
      ...bounds,
      rejected: (reason) => reason,
      isMemberError: () => false,
    });
    const settled = async (...items: string[]) => {
      const ends = await Promise.allSettled(items.map((item) => submitOther(1, item)));
      return ends.map((end) => (end.status === 'fulfilled' ? end.value : end.reason.message));
    };
    expect(await settled('a')).toEqual(['1 members of a batch were not answered']);
    expect(await settled('b', 'c')).toEqual(['kept', 'then it failed']);
  });
});
