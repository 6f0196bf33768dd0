import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../bench/kit/random.ts';
import { readAnswer } from '../../bench/load/answer.ts';
import { attemptList, buyerName } from '../../bench/load/attempts.ts';
import { AttemptRecorder } from '../../bench/load/recorder.ts';

describe('the list of attempts', () => {
  it('has every buyer, and repeats for the rest', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 400 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.nat(),
        (attempts, share, seed) => {
          const buyers = Math.max(1, Math.round(attempts * share));
          const list = attemptList({ attempts, buyers, seed });
          expect(list).toHaveLength(attempts);
          expect(new Set(list)).toEqual(new Set(Array.from({ length: buyers }, (_, n) => buyerName(n))));
          // First attempts come in order: a repeat never stands before its customer's first attempt.
          const firsts = [...new Set(list)];
          expect(firsts).toEqual(Array.from({ length: buyers }, (_, n) => buyerName(n)));
        },
      ),
    );
  });

  it('depends on the seed alone', () => {
    const options = { attempts: 1_000, buyers: 900 };
    expect(attemptList({ ...options, seed: 1 })).toEqual(attemptList({ ...options, seed: 1 }));
    expect(attemptList({ ...options, seed: 1 })).not.toEqual(attemptList({ ...options, seed: 2 }));
  });

  it('has repeats that meet their first attempt, and repeats that come much later', () => {
    const list = attemptList({ attempts: 20_000, buyers: 10_000, seed: 3 });
    const firstAt = new Map<string, number>();
    const distances: number[] = [];
    for (const [at, user] of list.entries()) {
      const first = firstAt.get(user);
      if (first === undefined) firstAt.set(user, at);
      else distances.push(at - first);
    }
    expect(distances).toHaveLength(10_000);
    expect(distances.filter((distance) => distance < 64).length).toBeGreaterThan(2_000);
    expect(distances.filter((distance) => distance > 1_000).length).toBeGreaterThan(2_000);
  });

  it('draws numbers evenly', () => {
    const random = seededRandom(42);
    const counts = new Array<number>(10).fill(0);
    for (let n = 0; n < 10_000; n++) {
      const drawn = Math.floor(random() * 10);
      counts[drawn] = (counts[drawn] ?? 0) + 1;
    }
    for (const count of counts) expect(Math.abs(count - 1_000)).toBeLessThan(150);
  });
});

describe('an answer', () => {
  const order = '{"orderId":"0190-a","saleId":1,"userId":"u","status":"pending","replayed":false}';
  const problem = (slug: string): string => `{"type":"https://x/problems/${slug}","title":"t","status":1}`;

  it.each([
    [201, order, { outcome: 'accepted', orderId: '0190-a' }],
    [202, order, { outcome: 'accepted', orderId: '0190-a' }],
    [200, order, { outcome: 'replayed', orderId: '0190-a' }],
    [409, problem('sold-out'), { outcome: 'sold-out', orderId: null }],
    [409, problem('sale-not-open'), { outcome: 'not-open', orderId: null }],
    [503, problem('busy'), { outcome: 'busy', orderId: null }],
    [503, problem('unknown-outcome'), { outcome: 'unknown', orderId: null }],
    [409, '{"type":"sold-out"}', { outcome: 'sold-out', orderId: null }],
    [404, problem('unknown-sale'), { outcome: 'unexpected', orderId: null }],
    [500, problem('busy'), { outcome: 'unexpected', orderId: null }],
    [503, problem('toString'), { outcome: 'unexpected', orderId: null }],
    [503, 'upstream gone', { outcome: 'unexpected', orderId: null }],
    [201, '{}', { outcome: 'unexpected', orderId: null }],
    [201, '{"orderId":"cut', { outcome: 'unexpected', orderId: null }],
    [204, '', { outcome: 'unexpected', orderId: null }],
  ] as const)('%i %s', (status, body, expected) => {
    expect(readAnswer(status, body)).toEqual(expected);
  });
});

describe('the recorder', () => {
  it('leaves out what was never sent, and keeps what was never answered', () => {
    const recorder = new AttemptRecorder([9], ['a', 'b', 'c', 'd']);
    recorder.invoked(0);
    recorder.answered(0, 201, { outcome: 'accepted', orderId: 'o' }, '');
    recorder.invoked(1);
    recorder.invoked(2);
    recorder.withdrawn(2);
    expect(recorder.completed).toBe(1);
    expect(recorder.records()).toEqual([
      expect.objectContaining({ id: 0, userId: 'a', saleId: 9, result: 'ok', orderId: 'o', status: 201 }),
      expect.objectContaining({
        id: 1,
        userId: 'b',
        result: 'info',
        outcome: 'unknown',
        completedUs: null,
        status: null,
      }),
    ]);
  });
});
