import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readAnswer } from '../../bench/load/answer.ts';
import { attemptList, buyerName, poisson } from '../../bench/load/attempts.ts';
import { Recorder, readLines } from '../../bench/load/recorder.ts';

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
});

/** Number of starts in each `windowMs`. */
function counts(schedule: Float64Array, windowMs: number, windows: number): number[] {
  const found = new Array<number>(windows).fill(0);
  for (const us of schedule) found[Math.floor(us / 1_000 / windowMs)]! += 1;
  return found;
}

/** Independent arrivals differ more from the expected count once in 15,000 times. */
const within4Sigma = (count: number, expected: number): boolean =>
  Math.abs(count - expected) < 4 * Math.sqrt(expected);

describe('arrivals at a constant rate', () => {
  const schedule = poisson({ ratePerSecond: 5_000, durationMs: 20_000, seed: 7 });

  it('are as many as the rate says', () => {
    expect(within4Sigma(schedule.length, 100_000)).toBe(true);
    for (const count of counts(schedule, 1_000, 20)) expect(within4Sigma(count, 5_000)).toBe(true);
  });
});

describe('a schedule', () => {
  it('is ascending, ends in time, and depends on the seed alone', () => {
    const rate = fc.double({ min: 1, max: 5_000, noNaN: true });
    const time = fc.double({ min: 0, max: 500, noNaN: true });
    fc.assert(
      fc.property(rate, time, fc.nat(), (ratePerSecond, durationMs, seed) => {
        const schedule = poisson({ ratePerSecond, durationMs, seed });
        let before = 0;
        for (const us of schedule) {
          expect(us).toBeGreaterThan(before);
          before = us;
        }
        expect(before).toBeLessThanOrEqual(durationMs * 1_000);
        expect(poisson({ ratePerSecond, durationMs, seed })).toEqual(schedule);
      }),
    );
    const busy = { ratePerSecond: 1_000, durationMs: 1_000 };
    expect(poisson({ ...busy, seed: 1 })).not.toEqual(poisson({ ...busy, seed: 2 }));
  });

  it.each([
    ['no rate', { ratePerSecond: 0, durationMs: 1, seed: 1 }],
    ['a negative rate', { ratePerSecond: -1, durationMs: 1, seed: 1 }],
    ['an endless one', { ratePerSecond: 1, durationMs: Number.POSITIVE_INFINITY, seed: 1 }],
    ['no number', { ratePerSecond: Number.NaN, durationMs: 1, seed: 1 }],
  ])('refuses %s', (_name, options) => {
    expect(() => poisson(options)).toThrow(RangeError);
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
  it('omits attempts that were not sent, and keeps unanswered ones', () => {
    const recorder = new Recorder();
    recorder.sent(1, { saleId: 9, userId: 'b' }, 7);
    recorder.sent(0, { saleId: 9, userId: 'a' }, 5);
    recorder.answered(0, 8, 201, { outcome: 'accepted', orderId: 'o' }, '');
    expect(recorder.answers).toBe(1);
    const nothing = { completedUs: null, result: 'info', outcome: 'unknown', orderId: null, status: null };
    const known = { completedUs: 8, result: 'ok', outcome: 'accepted', orderId: 'o', status: 201 };
    expect(recorder.history()).toEqual([
      { id: 0, op: 'purchase', saleId: 9, userId: 'a', invokedUs: 5, ...known },
      { id: 1, op: 'purchase', saleId: 9, userId: 'b', invokedUs: 7, ...nothing },
    ]);
    expect(() => recorder.answered(0, 9, 201, { outcome: 'accepted', orderId: 'p' }, '')).toThrow(
      'attempt 0',
    );
    expect(() => recorder.answered(2, 9, 201, { outcome: 'accepted', orderId: 'p' }, '')).toThrow(
      'attempt 2',
    );
  });

  it('reads lines of several files, without a truncated last line', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'stampede-lines-'));
    const files = ['a', 'b', 'bad'].map((name) => join(folder, name));
    writeFileSync(files[0]!, '[3,1100]\n[1,1000]\n[3,1250,201,"accepted","o-3"]\n[1,13');
    writeFileSync(files[1]!, '[2,1010]\n[2,1020,500,"unexpected",null,"<b>"]\n');
    writeFileSync(files[2]!, '[1,2]\n[4,3,201,"accepted","o"]\n');
    const attempt = (n: number) => ({ saleId: 7, userId: `u${n}` });
    const { history, strangeAnswers } = await readLines(files.slice(0, 2), attempt);
    const seen = history.map((one) => [one.userId, one.invokedUs, one.completedUs, one.outcome, one.orderId]);
    expect(seen).toEqual([
      ['u1', 0, null, 'unknown', null],
      ['u2', 10, 20, 'unexpected', null],
      ['u3', 100, 250, 'accepted', 'o-3'],
    ]);
    expect(strangeAnswers).toEqual([{ status: 500, body: '<b>' }]);
    await expect(readLines(files.slice(2), attempt)).rejects.toThrow('attempt 4');
    rmSync(folder, { recursive: true });
  });
});
