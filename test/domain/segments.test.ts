import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { homeSegment, lenderOf } from '../../src/domain/segments.ts';

describe('segments', () => {
  it('maps every user to one home, always the same, within bounds', () => {
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 1, max: 1000 }), (user, segments) => {
        const home = homeSegment(user, segments);
        expect(home).toBe(homeSegment(user, segments));
        expect(home).toBeGreaterThanOrEqual(0);
        expect(home).toBeLessThan(segments);
      }),
    );
  });

  it('spreads users evenly', () => {
    const counts = new Array(100).fill(0);
    for (let i = 0; i < 100_000; i++) counts[homeSegment(`user-${i}`, 100)]++;
    expect(Math.min(...counts)).toBeGreaterThan(800);
    expect(Math.max(...counts)).toBeLessThan(1200);
  });

  it('finds a lender exactly when some segment has a unit', () => {
    const units = fc.array(fc.integer({ min: -2, max: 3 }), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(units, fc.nat(), (segments, seed) => {
        const lender = lenderOf(seed % segments.length, segments);
        if (lender === null) expect(segments.every((n) => n <= 0)).toBe(true);
        else expect(segments[lender]).toBeGreaterThan(0);
      }),
    );
  });
});
