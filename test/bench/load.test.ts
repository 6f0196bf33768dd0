import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readAnswer } from '../../bench/load/answer.ts';
import { attemptList, buyerName, poisson } from '../../bench/load/attempts.ts';
import { Recorder, readLines } from '../../bench/load/recorder.ts';

describe('the list of attempts', () => {
  it('has every buyer in order, and repeats for the rest', () => {
    const share = fc.double({ min: 0, max: 1, noNaN: true });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 400 }), share, fc.nat(), (attempts, share, seed) => {
        const buyers = Math.max(1, Math.round(attempts * share));
        const list = attemptList({ attempts, buyers, seed });
        expect(list).toHaveLength(attempts);
        expect([...new Set(list)]).toEqual(Array.from({ length: buyers }, (_, n) => buyerName(n)));
      }),
    );
  });
});

describe('a schedule', () => {
  it('has as many arrivals as the rate says', () => {
    const schedule = poisson({ ratePerSecond: 5_000, durationMs: 20_000, seed: 7 });
    // Independent arrivals differ more once in 15,000 times.
    const isNear = (count: number, expected: number) => Math.abs(count - expected) < 4 * Math.sqrt(expected);
    expect(isNear(schedule.length, 100_000)).toBe(true);
  });

  it('is ascending, ends in time, and depends on the seed alone', () => {
    const rate = fc.double({ min: 1, max: 5_000, noNaN: true });
    const time = fc.double({ min: 0, max: 500, noNaN: true });
    fc.assert(
      fc.property(rate, time, fc.nat(), (ratePerSecond, durationMs, seed) => {
        const schedule = poisson({ ratePerSecond, durationMs, seed });
        for (const [n, us] of schedule.entries()) expect(us).toBeGreaterThan(schedule[n - 1] ?? 0);
        expect(schedule.at(-1) ?? 0).toBeLessThanOrEqual(durationMs * 1_000);
        expect(poisson({ ratePerSecond, durationMs, seed })).toEqual(schedule);
      }),
    );
  });
});

describe('an answer', () => {
  const order = '{"orderId":"0190-a","saleId":1,"userId":"u","status":"pending","replayed":false}';
  const problem = (slug: string): string => `{"type":"https://x/problems/${slug}","title":"t","status":1}`;

  it.each([
    [201, order, 'accepted', '0190-a'],
    [200, order, 'replayed', '0190-a'],
    [409, problem('sold-out'), 'sold-out', null],
    [409, problem('sale-not-open'), 'not-open', null],
    [503, problem('busy'), 'busy', null],
    [503, problem('unknown-outcome'), 'unknown', null],
    [500, problem('busy'), 'unexpected', null],
    [503, problem('toString'), 'unexpected', null],
    [503, 'upstream gone', 'unexpected', null],
    [201, '{"orderId":"cut', 'unexpected', null],
  ] as const)('%i %s: %s', (status, body, outcome, orderId) => {
    expect(readAnswer(status, body)).toEqual({ outcome, orderId });
  });
});

describe('the recorder', () => {
  it('omits attempts that were not sent, and keeps unanswered ones', () => {
    const recorder = new Recorder();
    recorder.sent(1, { saleId: 9, userId: 'b' }, 7);
    recorder.sent(0, { saleId: 9, userId: 'a' }, 5);
    const answer = (id: number) => recorder.answered(id, 8, 201, { outcome: 'accepted', orderId: 'o' }, '');
    answer(0);
    const nothing = { completedUs: null, result: 'info', outcome: 'unknown', orderId: null, status: null };
    const known = { completedUs: 8, result: 'ok', outcome: 'accepted', orderId: 'o', status: 201 };
    expect(recorder.history()).toEqual([
      { id: 0, op: 'purchase', saleId: 9, userId: 'a', invokedUs: 5, ...known },
      { id: 1, op: 'purchase', saleId: 9, userId: 'b', invokedUs: 7, ...nothing },
    ]);
    for (const id of [0, 2]) expect(() => answer(id)).toThrow(`attempt ${id}`);
    expect(recorder.answers).toBe(1);
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
