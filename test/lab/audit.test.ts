import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AuditReport, audit, checkNames } from '../../lab/audit/audit.ts';
import type { RedisSnapshot, StoresSnapshot } from '../../lab/audit/check.ts';
import { bySize } from '../support/tier.ts';
import { goodSale, record, saleAfter, type World, worlds } from './model-sale.ts';
import { faults } from './sale-faults.ts';

/** The stores of a model as the audit reads them. */
function storesOf(world: World): StoresSnapshot & { readonly redis: RedisSnapshot } {
  const { history: _, remaining, held, unsettled, ...postgres } = world;
  return { postgres, redis: { remaining, held, unsettled, settling: false } };
}

const judge = (world: World): AuditReport => audit(world.history, storesOf(world));

describe('the good sale', () => {
  it('cannot be judged without Postgres, nor passed without Redis, which hides no other fault', () => {
    const { postgres, redis } = storesOf(goodSale());
    const { history } = goodSale();
    const gone = { unreadable: 'connect ECONNREFUSED 127.0.0.1:5432' };
    const blind = audit(history, { postgres: gone, redis });
    expect([blind.verdict, ...checkNames.map((name) => blind[name])]).toEqual([
      'unknown',
      ...checkNames.map(() => null),
    ]);
    expect(blind.findings).toEqual([`Postgres could not be read: ${gone.unreadable}`]);
    const alone = { verdict: 'unknown', oversold: 0, drift: null, returnsMismatch: null, tasksMismatch: 0 };
    expect(audit(history, { postgres, redis: gone })).toMatchObject({
      ...alone,
      findings: [`Redis could not be read: ${gone.unreadable}`],
    });
    const wrong = goodSale();
    faults['a unit beyond the stock']!.plant(wrong);
    const stores = { ...storesOf(wrong), redis: gone };
    expect(audit(wrong.history, stores)).toMatchObject({ ...alone, verdict: 'fail', oversold: 1 });
  });

  it.each([
    ['unsettled', 4, '4 reservations were still being settled when the audit stopped waiting'],
    ['unpublished', 1, '1 change still being published to Redis when the audit stopped waiting'],
  ] as const)('cannot be passed while it is %s', (what, count, finding) => {
    const world = { ...goodSale(), [what]: count };
    const { postgres, redis } = storesOf(world);
    expect(audit(world.history, { postgres, redis: { ...redis, settling: true } })).toMatchObject({
      ...{ verdict: 'unknown', drift: null, returnsMismatch: null, findings: [finding] },
    });
  });

  it('and others are judged as one: numbers add up, and an unseen sale hides none that is wrong', () => {
    const [bad, good] = [goodSale(), goodSale()];
    faults['a unit beyond the stock']!.plant(bad);
    const twice = audit(bad.history, storesOf(bad), storesOf(bad));
    expect(twice).toMatchObject({ verdict: 'fail', oversold: 2, lost: 0, findings: judge(bad).findings });
    const unseen = { ...storesOf(good), postgres: { unreadable: 'gone' } };
    expect(audit(bad.history, storesOf(bad), unseen)).toMatchObject({ verdict: 'fail', oversold: null });
    expect(audit(good.history, storesOf(good), unseen)).toMatchObject({ verdict: 'unknown', drift: null });
  });
});

it.each([
  ['of four who were refused while one unit was free, one', ['attempt', 0, 'fine'], 4],
  ['of two units that are free, one of which came back, one', ['cancelled', 0], 1],
] as const)('%s is wronged', (_name, last, refused) => {
  const world = saleAfter(3, true, [['attempt', 0, 'fine'], ['attempt', 2, 'fine'], last]);
  for (let n = 0; n < refused; n++) record(world, `refused-${n}`, 'sold-out', null);
  expect(judge(world).undersold).toBe(1);
});

describe('a model sale', () => {
  it('passes under any sequence of events', () => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(worlds, (world) => {
        for (const { status } of world.orders) seen.add(status);
        for (const { result } of world.payments) seen.add(result);
        expect(judge(world)).toMatchObject({ verdict: 'pass', findings: [] });
      }),
      { numRuns: 300 },
    );
    const states = ['pending', 'paid', 'cancelled', 'expired', 'refund-due'];
    expect(seen).toEqual(new Set([...states, 'revived', 'surplus']));
  });

  it('has a fault for every check', () => {
    expect(new Set(Object.values(faults).map(({ seenBy }) => seenBy))).toEqual(new Set(checkNames));
  });

  it.each(Object.entries(faults))('fails with %s', (_name, { seenBy, plant }) => {
    fc.assert(
      fc.property(worlds, (world) => {
        fc.pre(plant(world) !== false);
        const report = judge(world);
        expect(report).toMatchObject({ verdict: 'fail', findings: [expect.any(String)] });
        expect(checkNames.filter((name) => report[name] !== 0)).toEqual([seenBy]);
      }),
      { numRuns: bySize({ core: 20, full: 20, nightly: 200 }) },
    );
  });
});
