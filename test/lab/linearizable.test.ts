/** The checker against histories that are known to be right or wrong, and against a search without shortcuts. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { linearize, type Step } from '../../lab/audit/linearizable.ts';

type Kind<K extends Step['kind']> = Omit<Extract<Step, { kind: K }>, 'kind' | 'invoked' | 'completed'>;
const step = <K extends Step['kind']>(kind: K, what: Kind<K>, invoked: number, completed: number) =>
  ({ kind, ...what, invoked, completed }) as unknown as Step;

const take = (user: string, from: number, until: number, order = `of-${user}`, units = 1) =>
  step('take', { user, order, units }, from, until);
const holds = (user: string, from: number, until: number) =>
  step('holds', { user, order: `of-${user}` }, from, until);
const soldOut = (user: string, from: number, until: number, reserved = 0) =>
  step('sold-out', { user, reserved }, from, until);
const notEnough = (user: string, remaining: number, from: number, until: number) =>
  step('not-enough-units', { user, remaining, reserved: 0 }, from, until);
const back = (user: string, from: number, until: number) =>
  step('return', { order: `of-${user}` }, from, until);
const pay = (user: string, from: number, until: number) => step('pay', { order: `of-${user}` }, from, until);
const restock = (units: number, from: number, until: number) => step('restock', { units }, from, until);
const read = (free: number, from: number, until: number) => step('read', { free, pending: 0 }, from, until);
const never = Number.POSITIVE_INFINITY;

it('agrees with a search through all orders', () => {
  const users = fc.constantFrom('a', 'b', 'c');
  const interval = fc.tuple(fc.nat(12), fc.nat(6), fc.boolean());
  const one = fc.tuple(fc.nat(10), users, interval).map(([kind, user, [from, length, isLost]]): Step => {
    const until = isLost && length > 4 ? never : from + length;
    const build = [take, holds, soldOut, back, pay][kind];
    const others = [
      () => read(from % 3, from, until),
      () => restock(from % 2 === 0 ? 1 : -1, from, until),
      () => notEnough(user, 1 + (from % 2), from, until),
      () => take(user, from, until, undefined, 2),
      () => take(user, from, until, 'second'),
      () => soldOut(user, from, until, 1),
    ];
    const built = build?.(user, from, until) ?? others[kind - 5]!();
    return until === never ? { ...built, optional: true } : built;
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
    else if (step.kind === 'not-enough-units') return !active.has(step.user) && free === step.remaining;
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
    (_, n): Step =>
      n < 334 ? take(`u${n}`, n, n + 40, undefined, 1 + (n % 5)) : notEnough(`u${n}`, 1, n, n + 40),
  );
  expect(linearize(1_001, mixed)).toEqual({ verdict: 'linearizable' });
  const early = soldOut('early', 500, 540);
  expect(linearize(1_000, [...steps, early])).toEqual({ verdict: 'not-linearizable', step: early });
});
