/** Who asks for what in a schedule: customers, and an operator who changes and refunds orders. */
import type { Random } from '../kit/random.ts';

/** One request. `at`: the process that gets it. */
export type Action = { readonly at: number } /** `isTwin`: from the other sale of the limit group. */ & (
  | {
      readonly kind: 'buy';
      readonly user: string;
      readonly units: number;
      readonly code?: string;
      readonly isTwin?: true;
    }
  | { readonly kind: 'pay'; readonly user: string; readonly payment: string; readonly cents: number }
  | { readonly kind: 'cancel'; readonly user: string }
  | { readonly kind: 'refund'; readonly user: string; readonly returnUnits: boolean }
  | { readonly kind: 'restock'; readonly units: number }
  | { readonly kind: 'wait'; readonly user: string }
  | Operation
  /** One run of a pass of the process. */
  | { readonly kind: 'pass'; readonly name: string }
);

/** What extras add, see extras.ts, and the refund of a sale. */
export type Operation =
  | { readonly kind: 'refund-sale' }
  | { readonly kind: 'extend'; readonly user: string; readonly seconds: number }
  | { readonly kind: 'transfer'; readonly user: string; readonly to: string }
  /** Of the waitlist of a sale that holds. */
  | { readonly kind: 'join'; readonly user: string; readonly units: number }
  | { readonly kind: 'leave'; readonly user: string };

/** Requests of one client, one after the other: the next is sent when the one before was answered, or given up. */
export type Script = readonly Action[];

/** The terms of a sale with extras. */
export interface Extras {
  /** Seconds for which its waitlist holds a unit; undefined: it holds none. */
  readonly holdS?: number;
  /** The limit of a customer over it and its twin; undefined: it has no twin. */
  readonly perCustomer?: number;
  /** Undefined: it needs no code, and has begun. */
  readonly code?: {
    readonly uses: number;
    /** Until it opens for the group, and for all; milliseconds since it is sold. */
    readonly groupInMs: number;
    readonly allInMs: number;
  };
}

/** What is asked about one sale. */
export interface Workload {
  readonly stock: number;
  readonly maxPerOrder: number;
  readonly scripts: readonly Script[];
  readonly extras?: Extras;
}

export const PRICE_CENTS = 500;

const PASSES = ['reservation-reaper', 'expiry', 'refunds', 'mirror-outbox', 'waitlist'];

/**
 * @param sale its number: the names of its customers begin with a letter of it
 * @param isReserving whether the strategy reserves in Redis
 */
export function workloadOf(random: Random, sale: number, processes: number, isReserving: boolean): Workload {
  const below = (n: number) => Math.floor(random() * n);
  const isLucky = (probability: number) => random() < probability;
  const maxPerOrder = isLucky(0.7) ? 1 : 3;
  const stock = 1 + below(maxPerOrder + 1);
  const at = () => below(processes);
  const customers = isLucky(0.75) ? 2 : 3;
  const letter = 'abcdefghijklmnopqrstuvwxyz'[sale - 1]!;
  const scripts: Action[][] = [];
  for (let n = 1; n <= customers; n++) {
    const user = `${letter}${n}`;
    const units = 1 + below(maxPerOrder);
    const buy = (): Action => ({ kind: 'buy', user, units, at: at() });
    const cancel = (): Action => ({ kind: 'cancel', user, at: at() });
    const pay = (payment: string): Action => ({
      kind: 'pay',
      user,
      payment: `${payment}-${user}`,
      cents: PRICE_CENTS * units,
      at: at(),
    });
    const script = [buy()];
    if (isLucky(0.25)) script.push(buy());
    const after = random();
    if (after < 0.2) script.push(pay('n'));
    else if (after < 0.4) script.push(cancel());
    else if (after < 0.45) script.push(pay('n'), pay('n'));
    else if (after < 0.5) script.push(cancel(), pay('n'));
    else if (after < 0.55) script.push(pay('n'), pay('m'));
    if (isLucky(0.3)) script.push(buy());
    scripts.push(script);
    // A customer asks twice at once, from two devices; a provider repeats a notification.
    if (isLucky(0.1)) scripts.push([buy()]);
    if (isLucky(0.08)) scripts.push([cancel()]);
    if (isLucky(0.05)) scripts.push([pay('n')]);
  }
  const operator: Action[] = [];
  if (isLucky(0.12)) operator.push({ kind: 'restock', units: isLucky(0.6) ? 1 : -1, at: at() });
  if (isLucky(0.1))
    operator.push({ kind: 'refund', user: `${letter}1`, returnUnits: isLucky(0.7), at: at() });
  if (isLucky(0.05)) operator.push({ kind: 'refund-sale', at: at() });
  if (isLucky(0.08)) operator.push({ kind: 'wait', user: `${letter}${customers}`, at: at() });
  if (operator.length > 0) scripts.push(operator);
  for (const name of isReserving ? PASSES : PASSES.filter((one) => !OF_REDIS.has(one)))
    if (isLucky(name === 'reservation-reaper' ? 0.5 : 0.2)) scripts.push([{ kind: 'pass', name, at: at() }]);
  return { stock, maxPerOrder, scripts };
}

const OF_REDIS: ReadonlySet<string> = new Set(['reservation-reaper', 'mirror-outbox']);

/** What a request asks for, as a person reads it. */
export function describe(action: Action): string {
  switch (action.kind) {
    case 'buy':
      return `${action.units === 1 ? 'buy' : `buy ${action.units}`}${action.code ? ' with a code' : ''}${action.isTwin ? ' of the twin' : ''}`;
    case 'pay':
      return `pay ${action.cents} cents, ${action.payment}`;
    case 'restock':
      return `change the stock by ${action.units}`;
    case 'pass':
      return `run ${action.name}`;
    case 'wait':
      return 'join the waitlist';
    case 'join':
      return `join the waitlist for ${action.units}`;
    case 'leave':
      return 'leave the waitlist';
    case 'extend':
      return `extend by ${action.seconds} s`;
    case 'transfer':
      return `transfer to ${action.to}`;
    case 'refund':
      return `refund the order of ${action.user}`;
    default:
      return action.kind;
  }
}
