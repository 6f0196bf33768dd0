/** Who asks for what in a schedule: customers, and an operator who changes and refunds orders. */
import type { Random } from '../kit/random.ts';

/** One request. `at`: the process that gets it. */
export type Action =
  | { readonly kind: 'buy'; readonly user: string; readonly units: number; readonly at: number }
  | {
      readonly kind: 'pay';
      readonly user: string;
      readonly payment: string;
      readonly cents: number;
      readonly at: number;
    }
  | { readonly kind: 'cancel'; readonly user: string; readonly at: number }
  | { readonly kind: 'refund'; readonly user: string; readonly returnUnits: boolean; readonly at: number }
  | { readonly kind: 'refund-sale'; readonly at: number }
  | { readonly kind: 'restock'; readonly units: number; readonly at: number }
  | { readonly kind: 'wait'; readonly user: string; readonly at: number }
  /** One run of a pass of the process. */
  | { readonly kind: 'pass'; readonly name: string; readonly at: number };

/** Requests of one client, one after the other: the next is sent when the one before was answered, or given up. */
export type Script = readonly Action[];

export interface Workload {
  readonly stock: number;
  readonly maxPerOrder: number;
  readonly processes: number;
  readonly scripts: readonly Script[];
}

export const PRICE_CENTS = 500;

const PASSES = ['reservation-reaper', 'expiry', 'refunds', 'mirror-outbox', 'waitlist'];

/** @param isReserving whether the strategy reserves in Redis */
export function workloadOf(random: Random, isReserving: boolean): Workload {
  const below = (n: number) => Math.floor(random() * n);
  const isLucky = (probability: number) => random() < probability;
  const processes = isLucky(0.8) ? 2 : 3;
  const maxPerOrder = isLucky(0.6) ? 1 : 3;
  const stock = 1 + below(maxPerOrder + 1);
  const at = () => below(processes);
  const customers = 2 + below(3);
  const scripts: Action[][] = [];
  for (let n = 1; n <= customers; n++) {
    const user = `u${n}`;
    const units = 1 + below(maxPerOrder);
    const script: Action[] = [{ kind: 'buy', user, units, at: at() }];
    if (isLucky(0.35)) script.push({ kind: 'buy', user, units, at: at() });
    const after = random();
    const pay = (payment: string, cents = PRICE_CENTS * units): Action => ({
      kind: 'pay',
      user,
      payment,
      cents,
      at: at(),
    });
    if (after < 0.3) script.push(pay(`n-${user}`));
    else if (after < 0.5) script.push({ kind: 'cancel', user, at: at() });
    else if (after < 0.6) script.push(pay(`n-${user}`), pay(`n-${user}`));
    else if (after < 0.7) script.push({ kind: 'cancel', user, at: at() }, pay(`n-${user}`));
    else if (after < 0.75) script.push(pay(`n-${user}`), pay(`m-${user}`));
    if (isLucky(0.3)) script.push({ kind: 'buy', user, units, at: at() });
    scripts.push(script);
    // A customer asks twice at once, from two devices; a provider repeats a notification.
    if (isLucky(0.15)) scripts.push([{ kind: 'buy', user, units, at: at() }]);
    if (isLucky(0.12)) scripts.push([{ kind: 'cancel', user, at: at() }]);
    if (isLucky(0.08)) scripts.push([pay(`n-${user}`)]);
  }
  const operator: Action[] = [];
  if (isLucky(0.2)) operator.push({ kind: 'restock', units: isLucky(0.6) ? 1 : -1, at: at() });
  if (isLucky(0.2)) operator.push({ kind: 'refund', user: 'u1', returnUnits: isLucky(0.7), at: at() });
  if (isLucky(0.08)) operator.push({ kind: 'refund-sale', at: at() });
  if (isLucky(0.15)) operator.push({ kind: 'wait', user: `u${customers}`, at: at() });
  if (operator.length > 0) scripts.push(operator);
  const passes = PASSES.slice(isReserving ? 0 : 1).filter((name) => isReserving || name !== 'mirror-outbox');
  for (const name of passes) {
    const runs = below(name === 'reservation-reaper' ? 3 : 2);
    if (runs > 0)
      scripts.push(Array.from({ length: runs }, () => ({ kind: 'pass', name, at: at() }) as const));
  }
  return { stock, maxPerOrder, processes, scripts };
}
