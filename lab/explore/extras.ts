/**
 * What few sales have, and one world of three explores: tasks, extended and transferred orders, a waitlist that holds, a limit for a customer
 * over two sales, and codes. They are drawn from a stream of their own: a world without extras is the same as before there were any.
 */
import type { Random } from '../kit/random.ts';
import { seededRandom } from '../kit/random.ts';
import type { Fault } from './faults.ts';
import { type Action, type Extras, PRICE_CENTS, type Script, type Workload } from './workload.ts';

/** Bounds that are short enough to be reached, seconds. */
export const HOLD_S = 3;
export const MAX_HOLD_S = 20;
export const CODE = 'early';
/** The sale of the same limit group. */
export const twinOf = (sale: number): number => 20 + sale;
export const TWIN_STOCK = 2;

/** Drawn first, so that it says by the seed alone whether a world has extras. */
const STREAM = 544;
const SHARE = 1 / 3;

/** @returns null: a world without */
export function extrasRandom(seed: number): Random | null {
  const random = seededRandom(Math.imul(seed + STREAM, 0x9e3779b1));
  return random() < SHARE ? random : null;
}

type Kind = 'tasks' | 'extend' | 'transfer' | 'hold' | 'limit' | 'code';

export interface Where {
  readonly seed: number;
  readonly processes: number;
  readonly isReserving: boolean;
  readonly confirm: 'durable' | 'accepted';
  /** Steps within which faults begin. */
  readonly steps: number;
}

/** What one kind adds to a sale. */
interface Addition {
  readonly scripts: readonly Script[];
  readonly extras?: Extras;
  readonly stock?: number;
}

/** Adds one kind to a sale, each in its turn, and sometimes others. */
export function withExtras(
  random: Random,
  {
    workload,
    faults,
    n,
  }: { readonly workload: Workload; readonly faults: readonly Fault[]; readonly n: number },
  where: Where,
): { readonly n: number; readonly workload: Workload; readonly faults: readonly Fault[] } {
  const below = (max: number) => Math.floor(random() * max);
  const isAhead = where.confirm === 'accepted';
  const isMissing: Partial<Record<Kind, boolean>> = {
    hold: where.isReserving,
    transfer: isAhead,
    limit: isAhead,
  };
  const kinds = (Object.keys(ADD) as Kind[]).filter((kind) => !isMissing[kind]);
  const first = kinds[(n + where.seed) % kinds.length]!;
  const chosen = kinds.filter((kind) => random() < 0.15 || kind === first);
  const customers = [...new Set(workload.scripts.flat().flatMap((one) => ('user' in one ? one.user : [])))];
  const draw: Draw = {
    ...{ below, isLucky: (probability) => random() < probability, at: () => below(where.processes) },
    ...{ customers, fresh: `${customers[0]![0]}9`, workload },
  };
  const added = chosen.map((kind) => ADD[kind](draw));
  const scripts = [...workload.scripts, ...added.flatMap((one) => one.scripts)];
  const time: Fault[] = Array.from({ length: 1 + below(2) }, () => ({
    ...{ kind: 'time passes', step: 15 + below(where.steps), which: random(), lasts: 1 },
  }));
  const extras: Extras = Object.assign({}, ...added.map((one) => one.extras));
  return {
    n,
    workload: {
      ...workload,
      stock: added.find(({ stock }) => stock !== undefined)?.stock ?? workload.stock,
      scripts: scripts.map((script) => script.map((one) => adapted(draw, extras, one))),
      extras,
    },
    faults: [...faults, ...time].sort((a, b) => a.step - b.step),
  };
}

interface Draw {
  below(max: number): number;
  isLucky(probability: number): boolean;
  /** A process. */
  at(): number;
  /** Those of the sale; `fresh` is another one. */
  readonly customers: readonly string[];
  readonly fresh: string;
  readonly workload: Workload;
}

/** A request as the terms of the sale have it. */
function adapted({ isLucky }: Draw, { code, holdS }: Extras, action: Action): Action {
  if (action.kind === 'wait' && holdS !== undefined) return { ...action, kind: 'join', units: 1 };
  if (action.kind !== 'buy' || action.isTwin || code === undefined) return action;
  return isLucky(0.6) ? { ...action, code: CODE } : action;
}

const pass = ({ at }: Draw, name: string): Action => ({ kind: 'pass', name, at: at() });

/** Units that a customer asks for in each purchase. */
const unitsOf = ({ workload }: Draw, user: string): number =>
  workload.scripts.flat().flatMap((one) => (one.kind === 'buy' && one.user === user ? one.units : []))[0] ??
  1;

const ADD: Readonly<Record<Kind, (draw: Draw) => Addition>> = {
  tasks(draw) {
    const { customers, isLucky, at } = draw;
    const user = customers[0]!;
    const cents = PRICE_CENTS * unitsOf(draw, user);
    const pay = (): Action => ({ kind: 'pay', user, payment: `n-${user}`, cents, at: at() });
    const scripts: Action[][] = [[pay(), pass(draw, 'tasks'), pass(draw, 'tasks'), pass(draw, 'tasks')]];
    // A refund of what is paid: the provider repeats the notification before.
    if (isLucky(0.8))
      scripts.push([
        pay(),
        { kind: 'refund', user, returnUnits: isLucky(0.7), at: at() },
        pass(draw, 'tasks'),
      ]);
    return { scripts };
  },
  extend(draw) {
    const { customers, below, isLucky, at } = draw;
    const user = customers[0]!;
    const extend = (): Action => ({
      ...{ kind: 'extend', user, seconds: [1, 4, 12, MAX_HOLD_S + 5][below(4)]!, at: at() },
    });
    // Repeats take a while: the order is due when the last of these requests are sent.
    const repeat = (): Action => ({ kind: 'buy', user, units: 1, at: at() });
    const [first, second] = [pass(draw, 'expiry'), pass(draw, 'expiry')];
    const scripts = [
      [...(isLucky(0.5) ? [extend()] : [repeat()]), repeat(), repeat(), first, second],
      [repeat(), ...(isLucky(0.5) ? [extend()] : []), repeat(), repeat(), extend(), extend()],
    ];
    return { scripts };
  },
  transfer({ customers, fresh, isLucky, at }) {
    const [user, other = fresh] = customers as [string, string?];
    const transfer = (to: string): Action => ({ kind: 'transfer', user, to, at: at() });
    const scripts: Action[][] = [[transfer(isLucky(0.5) ? fresh : other)]];
    if (isLucky(0.5)) scripts.push([transfer(isLucky(0.5) ? fresh : other)]);
    if (isLucky(0.5)) scripts.push([{ kind: 'buy', user: fresh, units: 1, at: at() }]);
    return { scripts };
  },
  hold(draw) {
    const { customers, fresh, isLucky, at, below } = draw;
    const { maxPerOrder, stock } = draw.workload;
    const [first, ...others] = customers as [string, ...string[]];
    const buy = (user: string): Action => ({ kind: 'buy', user, units: 1, at: at() });
    // Customers wait once the sale is sold out.
    const waiting = (user: string): Action[] => [
      ...[buy(user), { kind: 'join', user, units: 1 + below(maxPerOrder), at: at() } as const],
      ...(isLucky(0.3) ? [{ kind: 'leave', user, at: at() } as const] : []),
      ...(isLucky(0.3) ? [buy(user)] : []),
    ];
    const scripts: Action[][] = others.map(waiting);
    const passes = [
      pass(draw, 'expiry'),
      buy(fresh),
      pass(draw, 'waitlist'),
      buy(fresh),
      pass(draw, 'expiry'),
    ];
    scripts.push([...waiting(fresh), ...passes]);
    if (isLucky(0.7)) scripts.push([buy(first), { kind: 'cancel', user: first, at: at() }]);
    if (isLucky(0.3)) scripts.push(waiting(first));
    return { scripts, extras: { holdS: HOLD_S }, stock: isLucky(0.7) ? 1 : stock };
  },
  limit({ customers, isLucky, below, at, workload }) {
    const scripts = customers
      .filter((_, n) => n === 0 || isLucky(0.4))
      .flatMap((user) => {
        const twin = (): Action => ({ kind: 'buy', user, units: 1, isTwin: true, at: at() });
        return isLucky(0.3) ? [[twin()], [twin()]] : [[twin()]];
      });
    return { scripts, extras: { perCustomer: 1 + below(workload.maxPerOrder) } };
  },
  code({ isLucky, workload }) {
    const groupInMs = isLucky(0.5) ? 5 : 0;
    const code = { uses: isLucky(0.7) ? 1 : 2, groupInMs, allInMs: isLucky(0.3) ? 10 : 3_000 };
    return { scripts: [], extras: { code }, stock: Math.max(2, workload.stock) };
  },
};
