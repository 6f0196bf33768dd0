/** The checker against histories that are known to be right or wrong, and against a search without shortcuts. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { linearize, type Step } from '../../lab/audit/linearizable.ts';

const at = (invoked: number, completed: number) => ({ invoked, completed });
const take = (user: string, invoked: number, completed: number, order = `of-${user}`): Step => ({
  ...at(invoked, completed),
  kind: 'take',
  user,
  order,
});
const takeSome = (user: string, units: number, invoked: number, completed: number): Step => ({
  ...at(invoked, completed),
  kind: 'take',
  user,
  order: `of-${user}`,
  units,
});
const notEnough = (user: string, remaining: number, invoked: number, completed: number): Step => ({
  ...at(invoked, completed),
  kind: 'not-enough',
  user,
  remaining,
  reserved: 0,
});
const holds = (user: string, invoked: number, completed: number): Step => ({
  ...at(invoked, completed),
  kind: 'holds',
  user,
  order: `of-${user}`,
});
const soldOut = (user: string, invoked: number, completed: number, reserved = 0): Step => ({
  ...at(invoked, completed),
  kind: 'sold-out',
  user,
  reserved,
});
const back = (user: string, invoked: number, completed: number): Step => ({
  ...at(invoked, completed),
  kind: 'return',
  order: `of-${user}`,
});
const restock = (units: number, invoked: number, completed: number): Step => ({
  ...at(invoked, completed),
  kind: 'restock',
  units,
});
const pay = (user: string, invoked: number, completed: number): Step => ({
  ...at(invoked, completed),
  kind: 'pay',
  order: `of-${user}`,
});
const read = (free: number, invoked: number, completed: number): Step => ({
  ...at(invoked, completed),
  kind: 'read',
  free,
  pending: 0,
});
const never = Number.POSITIVE_INFINITY;

describe('one unit', () => {
  it.each<[string, Step[]]>([
    ['nothing happens', []],
    ['one buys, another is refused', [take('a', 0, 1), soldOut('b', 2, 3)]],
    ['the refusal overlaps the sale', [soldOut('b', 0, 5), take('a', 4, 9)]],
    ['a repeat finds the order', [take('a', 0, 1), holds('a', 2, 3)]],
    ['the answer is lost, and a repeat finds the order', [take('a', 0, never), holds('a', 5, 6)]],
    ['a cancelled unit is sold again', [take('a', 0, 1), back('a', 2, 3), take('b', 4, 5)]],
    ['it is sold while the cancel is in progress', [take('a', 0, 1), back('a', 2, 9), take('b', 3, 4)]],
    ['a cancel is repeated', [take('a', 0, 1), back('a', 2, 3), take('b', 4, 5), back('a', 6, 7)]],
    ['a customer buys again', [take('a', 0, 1), back('a', 2, 3), take('a', 4, 5, 'second')]],
    ['a paid order is read', [take('a', 0, 1), pay('a', 2, 3), pay('a', 4, 5), read(0, 6, 7)]],
    ['a read overlaps the sale', [read(0, 0, 5), take('a', 4, 9)]],
    ['an added unit is sold', [take('a', 0, 1), restock(1, 2, 3), take('b', 4, 5)]],
    [
      'a cut that was not answered explains the refusal',
      [{ ...restock(-1, 0, never), optional: true }, soldOut('a', 5, 6)],
    ],
    ['the same cut never happened', [{ ...restock(-1, 0, never), optional: true }, take('a', 5, 6)]],
    ['a reservation that was given up explains the refusal', [soldOut('b', 0, 1, 1), take('a', 2, 3)]],
  ])('explains: %s', (_, steps) => {
    expect(linearize(1, steps)).toEqual({ verdict: 'linearizable' });
  });

  it.each<[string, Step[], number]>([
    ['it is sold twice', [take('a', 0, 1), take('b', 2, 3)], 1],
    ['a refusal before it was sold', [soldOut('b', 0, 1), take('a', 2, 3)], 0],
    ['a refusal after it was returned', [take('a', 0, 1), back('a', 2, 3), soldOut('b', 4, 5)], 2],
    ['a repeat finds an order that was cancelled', [take('a', 0, 1), back('a', 2, 3), holds('a', 4, 5)], 2],
    ['a customer with the unit is refused', [take('a', 0, 1), soldOut('a', 2, 3)], 1],
    ['a customer has two orders', [restock(1, 0, 1), take('a', 2, 3), take('a', 4, 5, 'second')], 2],
    ['a repeat finds what was never placed', [holds('a', 0, 1)], 0],
    ['a cancel without an order', [back('a', 0, 1)], 0],
    ['a payment without an order', [pay('a', 0, 1)], 0],
    ['a paid order is cancelled', [take('a', 0, 1), pay('a', 2, 3), back('a', 4, 5)], 2],
    ['a cancelled order is paid', [take('a', 0, 1), back('a', 2, 3), pay('a', 4, 5)], 2],
    ['a sold unit is read as free', [take('a', 0, 1), read(1, 2, 3)], 1],
    ['more is cut than is free', [take('a', 0, 1), restock(-1, 2, 3)], 1],
  ])('refutes: %s', (_, steps, wrong) => {
    expect(linearize(1, steps)).toEqual({ verdict: 'not-linearizable', step: steps[wrong] });
  });
});

it('agrees with a search through all orders', () => {
  const users = fc.constantFrom('a', 'b', 'c');
  const interval = fc.tuple(fc.nat(12), fc.nat(6), fc.boolean());
  const one = fc.tuple(fc.nat(8), users, interval).map(([kind, user, [from, length, isLost]]): Step => {
    const until = isLost && length > 4 ? never : from + length;
    const build = [take, holds, soldOut, back, pay][kind];
    const others = [
      () => read(from % 3, from, until),
      () => restock(from % 2 === 0 ? 1 : -1, from, until),
      () => notEnough(user, 1 + (from % 2), from, until),
      () => takeSome(user, 2, from, until),
    ];
    const step = build?.(user, from, until) ?? others[kind - 5]!();
    return until === never ? { ...step, optional: true } : step;
  });
  const verdicts = new Set<boolean>();
  fc.assert(
    fc.property(fc.nat(3), fc.array(one, { maxLength: 6 }), (stock, steps) => {
      const expected = anyOrder(stock, steps);
      verdicts.add(expected);
      expect(linearize(stock, steps).verdict).toBe(expected ? 'linearizable' : 'not-linearizable');
    }),
    { numRuns: 3_000 },
  );
  expect(verdicts.size).toBe(2);
});

/** Tries every order that the intervals allow, with a state that is computed anew each time. */
function anyOrder(stock: number, rest: readonly Step[], placed: readonly Step[] = []): boolean {
  if (!isPossible(stock, placed)) return false;
  if (rest.every(({ optional }) => optional)) return true;
  return rest.some(
    (step, n) =>
      rest.every((other) => other.completed >= step.invoked) &&
      anyOrder(
        stock,
        rest.filter((_, m) => m !== n),
        [...placed, step],
      ),
  );
}

function isPossible(stock: number, placed: readonly Step[]): boolean {
  let free = stock;
  const active = new Map<string, { readonly order: string; readonly units: number }>();
  const all = new Set<string>();
  const paid = new Set<string>();
  return placed.every((step) => {
    if (step.kind === 'restock') free += step.units;
    else if (step.kind === 'holds') return active.get(step.user)?.order === step.order;
    else if (step.kind === 'sold-out') return !active.has(step.user) && free <= step.reserved;
    else if (step.kind === 'not-enough') return !active.has(step.user) && free === step.remaining;
    else if (step.kind === 'read') return free === step.free;
    else if (step.kind === 'pay') {
      if (![...active.values()].some(({ order }) => order === step.order)) return false;
      paid.add(step.order);
    } else if (step.kind === 'take') {
      if (active.has(step.user) || all.has(step.order)) return false;
      const { order, units = 1 } = step;
      active.set(step.user, { order, units });
      all.add(order);
      free -= units;
    } else {
      if (!all.has(step.order) || paid.has(step.order)) return false;
      const [owner, held] = [...active].find(([, { order }]) => order === step.order) ?? [];
      if (owner !== undefined && active.delete(owner)) free += held!.units;
    }
    return free >= 0;
  });
}

it('decides a rush of 2,000 customers, and finds one false refusal in it', () => {
  const steps: Step[] = Array.from({ length: 2_000 }, (_, n) =>
    n < 1_000 ? take(`u${n}`, n, n + 40) : soldOut(`u${n}`, n, n + 40),
  );
  expect(linearize(1_000, steps)).toEqual({ verdict: 'linearizable' });
  const mixed = Array.from(
    { length: 600 },
    (_, n): Step => (n < 334 ? takeSome(`u${n}`, 1 + (n % 5), n, n + 40) : notEnough(`u${n}`, 1, n, n + 40)),
  );
  expect(linearize(1_001, mixed)).toEqual({ verdict: 'linearizable' });
  const early = soldOut('early', 500, 540);
  expect(linearize(1_000, [...steps, early])).toEqual({ verdict: 'not-linearizable', step: early });
});
