/** How evenly, and in which order, waiters were served. Pure. */
import type { Cycle, Waiting } from './protocol.ts';

export interface Fairness {
  /**
   * Kendall's tau of each grant and all other waiters: a pair agrees when the granted one had asked first.
   * 1: first come, first served; 0: a draw; -1: last come, first served. 1 when no other waiter was ever there.
   */
  readonly order: number;
  /** Share of grants that went to the waiter that had waited longest; 1 is first come, first served. */
  readonly oldestFirst: number;
  /** Jain's index of grants per waiter: 1 when all got as many, 1/n when one of n got everything. */
  readonly jain: number;
  /** Most grants of one waiter ÷ mean of all; 1 when all got as many. */
  readonly mostOverMean: number;
}

/** (Σx)² ÷ (n Σx²) */
export function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return squares === 0 ? 1 : (sum * sum) / (counts.length * squares);
}

/**
 * @param cycles in the order of their grants, all of the run
 * @param isMeasured which of them count
 * @returns null when none counts
 */
export function fairness(
  cycles: readonly Cycle[],
  waiting: readonly Waiting[],
  waiters: number,
  isMeasured: (cycle: Cycle) => boolean,
): Fairness | null {
  const counts = new Map<number, number>();
  const requests = requestsOf(cycles, waiting);
  let measured = 0;
  let oldest = 0;
  const pairs = { agree: 0, disagree: 0 };
  for (const cycle of cycles) {
    if (isMeasured(cycle)) {
      measured++;
      counts.set(cycle.waiter, (counts.get(cycle.waiter) ?? 0) + 1);
      const { longer, shorter } = othersWaiting(requests, cycle);
      if (longer === 0) oldest++;
      pairs.agree += shorter;
      pairs.disagree += longer;
    }
    requests.get(cycle.waiter)?.shift();
  }
  if (measured === 0) return null;
  const compared = pairs.agree + pairs.disagree;
  const perWaiter = [...counts.values(), ...Array<number>(waiters - counts.size).fill(0)];
  return {
    order: compared === 0 ? 1 : (pairs.agree - pairs.disagree) / compared,
    oldestFirst: oldest / measured,
    jain: jainIndex(perWaiter),
    mostOverMean: Math.max(...perWaiter) / (measured / waiters),
  };
}

/** Reads from the front without moving what is behind. */
class Queue {
  readonly #times: number[] = [];
  #next = 0;

  push(time: number): void {
    this.#times.push(time);
  }

  get first(): number | undefined {
    return this.#times[this.#next];
  }

  shift(): void {
    this.#next++;
  }
}

/** When each waiter asked, in the order in which it did; what was never granted comes last. */
function requestsOf(cycles: readonly Cycle[], waiting: readonly Waiting[]): Map<number, Queue> {
  const requests = new Map<number, Queue>();
  for (const { waiter, askedNs } of [...cycles, ...waiting]) {
    let queue = requests.get(waiter);
    if (queue === undefined) {
      queue = new Queue();
      requests.set(waiter, queue);
    }
    queue.push(askedNs);
  }
  return requests;
}

/** The other waiters at the moment of a grant: how many had waited longer, and how many shorter. */
function othersWaiting(
  requests: ReadonlyMap<number, Queue>,
  { askedNs, grantedNs }: Cycle,
): { readonly longer: number; readonly shorter: number } {
  let longer = 0;
  let shorter = 0;
  for (const { first } of requests.values()) {
    if (first === undefined || first > grantedNs) continue; // asks for nothing yet
    if (first < askedNs) longer++;
    else if (first > askedNs) shorter++;
  }
  return { longer, shorter };
}
