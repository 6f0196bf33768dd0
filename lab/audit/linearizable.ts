/**
 * Whether a history of a sale is linearizable: whether one order of its steps, each somewhere between its request and its
 * answer, explains all answers. The object is a sale: free units, and at most one active order for each customer, whole or not at all. The
 * weak check lets "sold out" count reserved units as taken, and lets a read miss orders that are not committed yet.
 *
 * The search is that of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory of visited sets
 * ("Testing for Linearizability", 2017): a set of steps determines the state, since each order is taken once. A step that
 * only reads is placed as soon as it can be, and of customers who did nothing but buy, the one whose answer came first goes
 * first, among those with the same number of units: neither rule loses a solution.
 */

interface Interval {
  /** On one clock, in any unit. */
  readonly invoked: number;
  /** Infinity: there was no answer, so the step may take effect at any later time. */
  readonly completed: number;
  /** The step may never have taken effect. */
  readonly optional?: boolean;
}

export type Step = Interval &
  /** `units`: by default one. */
  (
    | { readonly kind: 'take'; readonly user: string; readonly order: string; readonly units?: number }
    /** The answer names the customer's order. */
    | { readonly kind: 'holds'; readonly user: string; readonly order: string }
    /** `reserved`: units that attempts without success may have held meanwhile; 0 for the strict check. */
    | { readonly kind: 'sold-out'; readonly user: string; readonly reserved: number }
    /** As many units are left, fewer than were asked for. */
    | {
        readonly kind: 'not-enough-units';
        readonly user: string;
        readonly remaining: number;
        readonly reserved: number;
      }
    /** The answer says how many units are free. `pending`: taken units that it may still count as free; 0: strict check. */
    | { readonly kind: 'read'; readonly free: number; readonly pending: number }
    /** The order is paid: it can no longer be returned. */
    | { readonly kind: 'pay'; readonly order: string }
    /** The order is cancelled or has expired. */
    | { readonly kind: 'return'; readonly order: string }
    | { readonly kind: 'restock'; readonly units: number }
  );

/** `undecided`: the search was given up. */
export type Linearization =
  | { readonly verdict: 'linearizable' }
  | { readonly verdict: 'undecided' }
  /** `step` is the first that cannot be placed in the longest order that was found. */
  | { readonly verdict: 'not-linearizable'; readonly step: Step };

/** Limit of visited sets of placed steps. */
const MAX_SETS = 300_000;
const RETURNED = Symbol('returned');

interface Holding {
  readonly user: string;
  readonly units: number;
}

class Sale {
  free: number;
  readonly #orderOf = new Map<string, string>();
  readonly #ownerOf = new Map<string, Holding | typeof RETURNED>();
  readonly #paid = new Set<string>();

  constructor(stock: number) {
    this.free = stock;
  }

  /** @returns the undo of the step; null: it cannot happen now */
  apply(step: Step): (() => void) | null {
    if (step.kind === 'take') return this.#take(step.order, { user: step.user, units: step.units ?? 1 });
    if (step.kind === 'return') return this.#return(step.order);
    if (step.kind === 'pay') return this.#pay(step.order);
    if (step.kind === 'read') {
      const isTrue = step.free - step.pending <= this.free && this.free <= step.free;
      return isTrue ? () => {} : null;
    }
    if (step.kind === 'restock') {
      if (this.free + step.units < 0) return null;
      this.free += step.units;
      return () => {
        this.free -= step.units;
      };
    }
    const held = this.#orderOf.get(step.user);
    const { free } = this;
    const isTrue = () => {
      if (step.kind === 'holds') return held === step.order;
      if (held !== undefined) return false;
      if (step.kind === 'sold-out') return free <= step.reserved;
      return free - step.reserved <= step.remaining && step.remaining <= free;
    };
    return isTrue() ? () => {} : null;
  }

  #take(order: string, holding: Holding): (() => void) | null {
    const { user, units } = holding;
    if (this.free < units || this.#orderOf.has(user) || this.#ownerOf.has(order)) return null;
    this.free -= units;
    this.#orderOf.set(user, order);
    this.#ownerOf.set(order, holding);
    return () => {
      this.free += units;
      this.#orderOf.delete(user);
      this.#ownerOf.delete(order);
    };
  }

  #pay(order: string): (() => void) | null {
    const owner = this.#ownerOf.get(order);
    if (owner === undefined || owner === RETURNED) return null;
    if (this.#paid.has(order)) return () => {};
    this.#paid.add(order);
    return () => void this.#paid.delete(order);
  }

  #return(order: string): (() => void) | null {
    const owner = this.#ownerOf.get(order);
    if (owner === undefined || this.#paid.has(order)) return null;
    if (owner === RETURNED) return () => {};
    this.free += owner.units;
    this.#orderOf.delete(owner.user);
    this.#ownerOf.set(order, RETURNED);
    return () => {
      this.free -= owner.units;
      this.#orderOf.set(owner.user, order);
      this.#ownerOf.set(order, owner);
    };
  }
}

/** The purchases of customers who have no other step: any two of as many units may change places. */
function alikeOf(steps: readonly Step[]): ReadonlySet<Step> {
  const mentions = new Map<string, number>();
  const mention = (name: string) => mentions.set(name, (mentions.get(name) ?? 0) + 1);
  for (const step of steps) {
    if ('user' in step) mention(`user ${step.user}`);
    if ('order' in step) mention(`order ${step.order}`);
  }
  const isAlone = (name: string) => mentions.get(name) === 1;
  return new Set(
    steps.filter(
      (step) =>
        step.kind === 'take' &&
        !step.optional &&
        isAlone(`user ${step.user}`) &&
        isAlone(`order ${step.order}`),
    ),
  );
}

const READS: ReadonlySet<Step['kind']> = new Set(['holds', 'sold-out', 'not-enough-units', 'read']);
const isRead = ({ kind }: Step) => READS.has(kind);
const unitsOf = (step: Step) => (step.kind === 'take' ? (step.units ?? 1) : 0);

/** The steps that are not placed. */
class Rest {
  readonly #steps: readonly Step[];
  readonly #placed: boolean[];
  #first = 0;
  #due: number;

  constructor(steps: readonly Step[]) {
    this.#steps = [...steps].sort((a, b) => a.invoked - b.invoked);
    this.#placed = steps.map(() => false);
    this.#due = steps.filter(({ optional }) => !optional).length;
  }

  /** Whether only optional steps are left. */
  get isExplained(): boolean {
    return this.#due === 0;
  }

  get due(): number {
    return this.#due;
  }

  step(n: number): Step {
    return this.#steps[n]!;
  }

  /** The set of placed steps, as text. */
  get key(): string {
    const later: number[] = [];
    for (let n = this.#first; n < this.#steps.length; n++) if (this.#placed[n]) later.push(n);
    return `${this.#first} ${later.join()}`;
  }

  place(n: number, isPlaced: boolean): void {
    this.#placed[n] = isPlaced;
    if (!this.#steps[n]!.optional) this.#due += isPlaced ? -1 : 1;
    this.#first = Math.min(this.#first, n);
    while (this.#placed[this.#first]) this.#first++;
  }

  /** The steps that may come next: no other step was answered before they were invoked. First answer first. */
  next(): number[] {
    let least = Number.POSITIVE_INFINITY;
    const open: number[] = [];
    for (let n = this.#first; n < this.#steps.length && this.#steps[n]!.invoked <= least; n++) {
      if (this.#placed[n]) continue;
      open.push(n);
      least = Math.min(least, this.#steps[n]!.completed);
    }
    return open
      .filter((n) => this.#steps[n]!.invoked <= least)
      .sort((a, b) => this.#steps[a]!.completed - this.#steps[b]!.completed);
  }
}

/** Pure. @param stock units before the first step */
export function linearize(stock: number, steps: readonly Step[]): Linearization {
  const sale = new Sale(stock);
  const rest = new Rest(steps);
  const alike = alikeOf(steps);
  const seen = new Set<string>();
  let fewest = Number.POSITIVE_INFINITY;
  let stuck: Step | undefined;
  /** The placed steps, each with its undo and the steps that could come in its place. */
  const path: { readonly n: number; readonly undo: () => void; readonly others: number[] }[] = [];

  const place = (n: number, others: number[]): boolean => {
    const undo = sale.apply(rest.step(n));
    if (undo === null) return false;
    rest.place(n, true);
    path.push({ n, undo, others });
    return true;
  };
  const placeOneOf = (candidates: number[]): boolean => {
    while (candidates.length > 0) if (place(candidates.shift()!, candidates)) return true;
    return false;
  };
  const goBack = (): boolean => {
    for (let last = path.pop(); last !== undefined; last = path.pop()) {
      last.undo();
      rest.place(last.n, false);
      if (placeOneOf(last.others)) return true;
    }
    return false;
  };

  while (!rest.isExplained) {
    const next = rest.next();
    if (rest.due < fewest) [fewest, stuck] = [rest.due, rest.step(next[0]!)];
    if (next.some((n) => isRead(rest.step(n)) && place(n, []))) continue;
    const key = rest.key;
    const isNew = !seen.has(key);
    seen.add(key);
    if (seen.size > MAX_SETS) return { verdict: 'undecided' };
    const seenUnits = new Set<number>();
    const writes = next.filter((n) => {
      const step = rest.step(n);
      if (isRead(step)) return false;
      return !alike.has(step) || seenUnits.size < seenUnits.add(unitsOf(step)).size;
    });
    const goesOn = isNew && placeOneOf(writes);
    if (!goesOn && !goBack()) return { verdict: 'not-linearizable', step: stuck! };
  }
  return { verdict: 'linearizable' };
}
