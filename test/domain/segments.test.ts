import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { homeSegment, partsOf } from '../../src/domain/segments.ts';

describe('segments', () => {
  it('spreads users evenly', () => {
    const counts = new Array(100).fill(0);
    for (let i = 0; i < 100_000; i++) counts[homeSegment(`user-${i}`, 100)]++;
    expect(Math.min(...counts)).toBeGreaterThan(800);
    expect(Math.max(...counts)).toBeLessThan(1200);
  });

  it('finds the parts of an order exactly when all segments together have enough, the home first', () => {
    const units = fc.array(fc.integer({ min: -2, max: 3 }), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(units, fc.nat(), fc.integer({ min: 1, max: 9 }), (segments, seed, quantity) => {
        const home = seed % segments.length;
        const parts = partsOf(home, segments, quantity);
        const free = segments.reduce((sum, n) => sum + Math.max(0, n), 0);
        expect(parts === null).toBe(free < quantity);
        if (parts === null) return;
        expect(parts[0]!.segment).toBe(home);
        expect(new Set(parts.map(({ segment }) => segment)).size).toBe(parts.length);
        expect(parts.reduce((sum, part) => sum + part.units, 0)).toBe(quantity);
        for (const part of parts)
          expect(part.units).toBeLessThanOrEqual(Math.max(0, segments[part.segment]!));
        for (const part of parts.slice(1)) expect(part.units).toBeGreaterThan(0);
      }),
    );
  });
});
