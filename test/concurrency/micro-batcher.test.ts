import { tracingChannel } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { microBatcher } from '../../src/concurrency/micro-batcher.ts';
import { limits } from '../../src/config/limits.ts';

/** A batch in flight, which the test ends. */
interface UnderWay {
  readonly key: number;
  readonly items: readonly string[];
  end(error?: Error): void;
}
let underWay: UnderWay[];
/** Batch sizes that `onBatch` reported. */
let reported: number[];
const bounds = {
  name: 'letters',
  maxBatch: limits.commitBatchSize,
  leastBatch: limits.leastBatch,
  inFlight: limits.commitInFlight,
  maxQueued: limits.commitQueue,
  waitMs: limits.commitWaitMs,
  onBatch: (size: number) => void reported.push(size),
};
let submit: (key: number, item: string) => Promise<string>;
const sizes = () => underWay.map(({ items }) => items.length);
/** Lets one turn of the event loop pass. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

beforeEach(() => {
  underWay = [];
  reported = [];
  ({ submit } = microBatcher<string, string>({
    work: (key, items, answer) =>
      new Promise((resolve, reject) => {
        const end = (error?: Error) => {
          underWay = underWay.filter((other) => other.end !== end);
          if (error !== undefined) return reject(error);
          for (const item of items) answer(item, `done ${item}`);
          resolve();
        };
        underWay.push({ key, items, end });
      }),
    ...bounds,
    rejected: (reason) => reason,
    isMemberError: (error) => (error as Error).message === 'a member',
  }));
});
afterEach(() => vi.useRealTimers());

describe('batches', () => {
  it('send a lone submission at once, and gather those that arrive meanwhile', async () => {
    const answers = [...'abcdef'].map((item) => submit(1, item));
    const members = () => underWay.map(({ items }) => items.join(''));
    expect(members()).toEqual(['a', 'b', 'c']);
    underWay[0]!.end();
    await turn();
    expect(members()).toEqual(['b', 'c', 'def']);
    expect(reported).toEqual([1, 1, 1, 3]);
    while (underWay.length > 0) {
      underWay[0]!.end();
      await turn();
    }
    expect(await Promise.all(answers)).toEqual([...'abcdef'].map((item) => `done ${item}`));
  });

  it('become equal in size, and wait for their share beside others', async () => {
    let asked = 0;
    const askMany = (count: number) => {
      for (let i = 0; i < count; i++) void submit(1, String(asked++));
    };
    askMany(90);
    for (const left of [
      [1, 1, 30],
      [1, 30, 30],
      [30, 30],
    ]) {
      underWay[0]!.end();
      await turn();
      expect(sizes()).toEqual(left);
    }
    askMany(1); // 28 wait
    expect(sizes()).toEqual([30, 30]);
    askMany(2);
    expect(sizes()).toEqual([30, 30, 30]);
  });

  it('are traced for a subscriber, with what waited', async () => {
    const seen: unknown[] = [];
    const subscriber = { asyncEnd: (context: object) => void seen.push(context) };
    const channel = tracingChannel('stampede:trace') as unknown as Record<
      'subscribe' | 'unsubscribe',
      (subscriber: object) => void
    >;
    channel.subscribe(subscriber);
    const answers = [...'abcde'].map((item) => submit(1, item));
    while (underWay.length > 0) {
      underWay[0]!.end();
      await turn();
    }
    await Promise.all(answers);
    channel.unsubscribe(subscriber);
    const batch = (size: number) => ({
      name: 'letters',
      batch: { size, left: 0, sinceMs: expect.any(Number) },
    });
    expect(seen).toEqual([batch(1), batch(1), batch(1), batch(2)]);
  });

  it('are formed per key', () => {
    for (let i = 0; i < 5; i++) for (const key of [1, 2]) void submit(key, `${key}-${i}`);
    expect(underWay.map(({ key }) => key).sort()).toEqual([1, 1, 1, 2, 2, 2]);
    for (const { key, items } of underWay)
      expect(items.every((item) => item.startsWith(`${key}-`))).toBe(true);
  });

  it('have a bounded size', async () => {
    const count = limits.commitInFlight * (limits.commitBatchSize + 10);
    const answers = Array.from({ length: count }, (_, i) => submit(1, String(i)));
    underWay[0]!.end();
    await turn();
    expect(sizes().at(-1)).toBe(limits.commitBatchSize);
    while (underWay.length > 0) {
      underWay[0]!.end();
      await turn();
    }
    await Promise.all(answers);
  });

  it('reject submissions when the queue is full', async () => {
    const answers = Array.from({ length: limits.commitInFlight + limits.commitQueue }, (_, i) =>
      submit(1, String(i)),
    );
    expect(await submit(2, 'one more')).toBe('queue-full');
    while (underWay.length > 0) {
      underWay[0]!.end();
      await turn();
    }
    await Promise.all(answers);
    void submit(2, 'later');
    expect(sizes()).toEqual([1]);
  });

  it('reject submissions that waited too long, and do not send them', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    void submit(1, 'a');
    void submit(1, 'b');
    void submit(1, 'c');
    const early = submit(1, 'early');
    vi.advanceTimersByTime(limits.commitWaitMs + 1);
    const late = submit(1, 'late');
    underWay[0]!.end();
    expect(await early).toBe('waited-too-long');
    await turn();
    expect(underWay.map(({ items }) => items)).toEqual([['b'], ['c'], ['late']]);
    underWay[2]!.end();
    expect(await late).toBe('done late');
  });
});

describe('a batch that fails', () => {
  async function gathered(items: string): Promise<PromiseSettledResult<string>[]> {
    for (let n = 0; n < limits.commitInFlight; n++) void submit(1, 'ahead');
    const answers = Promise.allSettled([...items].map((item) => submit(1, item)));
    underWay[0]!.end();
    await turn();
    return answers;
  }
  /** Ends each batch; a batch with an x fails. @returns the batches tried */
  async function endAll(message: string): Promise<string[]> {
    const tried: string[] = [];
    for (;;) {
      const batch = underWay.find(({ items }) => items[0] !== 'ahead');
      if (batch === undefined) return tried;
      tried.push(batch.items.join(''));
      batch.end(batch.items.includes('x') ? new Error(message) : undefined);
      await turn();
    }
  }

  it('because of one member fails only that member', async () => {
    const answers = gathered('abxcdefg');
    await turn();
    const tried = await endAll('a member');
    expect(tried).toEqual(['abxcdefg', 'abxc', 'ab', 'xc', 'x', 'c', 'defg']);
    const ends = await answers;
    expect(ends.filter(({ status }) => status === 'rejected')).toHaveLength(1);
    expect(ends[2]).toMatchObject({ status: 'rejected', reason: { message: 'a member' } });
  });

  it('for any other reason fails as a whole, once', async () => {
    const answers = gathered('abxc');
    await turn();
    expect(await endAll('the connection')).toEqual(['abxc']);
    for (const { status } of await answers) expect(status).toBe('rejected');
  });

  it('keeps the answers that it gave before', async () => {
    let calls = 0;
    const { submit: asking } = microBatcher<string, string>({
      async work(_key, items, answer) {
        if (++calls <= limits.commitInFlight) return;
        answer(items[0]!, 'kept');
        throw new Error('then it failed');
      },
      ...bounds,
      rejected: (reason) => reason,
      isMemberError: () => false,
    });
    const ends = await Promise.allSettled([...'abcde'].map((item) => asking(1, item)));
    expect(ends.map((end) => (end.status === 'fulfilled' ? end.value : end.reason.message))).toEqual([
      ...Array<string>(limits.commitInFlight).fill('1 members of a batch were not answered'),
      'kept',
      'then it failed',
    ]);
  });
});
