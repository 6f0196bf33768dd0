/**
 * How the next event of a schedule is chosen.
 *
 * Uniformly; or by priorities with a few change points, which finds a mistake that needs d ordered events with a known probability (Burckhardt,
 * Kothari, Musuvathi, Nagarakatte: "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010); or in the order in which
 * they became possible, except for given deviations, which replays a schedule, shrinks it, and enumerates small ones.
 */
import type { Random } from '../kit/random.ts';

/** Something that can happen next. */
export interface Event {
  /** What happens, as a person reads it; the same in every replay. */
  readonly text: string;
  /** Whose turn it is: a link, a client, a timer's owner. */
  readonly task: string;
  /** Lower: it became possible earlier. Timers and requests of clients come after what is in progress. */
  readonly age: number;
  /** How often it is chosen, compared with others. */
  readonly weight: number;
  /** When a timer is due; 0: it is none. */
  readonly dueMs: number;
  run(): Promise<void>;
}

/** @param events at least one, in a fixed order @param step see `Schedule.step` */
export type Choose = (events: readonly Event[], step: number) => Event;

/** How the events of each sale are chosen. */
export type ChooseOf = (sale: number) => Choose;

export const oldest: Choose = (events) =>
  events.reduce((first, event) => (event.age < first.age ? event : first));

export const uniformly =
  (random: Random): Choose =>
  (events) => {
    let left = random() * events.reduce((sum, { weight }) => sum + weight, 0);
    for (const event of events) {
      left -= event.weight;
      if (left < 0) return event;
    }
    return events.at(-1)!;
  };

/** @param changes change points, within the first `steps` events */
export function byPriorities(random: Random, changes: number, steps: number): Choose {
  const priorities = new Map<string, number>();
  const points = new Set(Array.from({ length: changes }, () => Math.floor(random() * steps)));
  let lowest = 0;
  const priorityOf = (event: Event) => {
    const known = priorities.get(event.task);
    if (known !== undefined) return known;
    // Few timers come before what is in progress, or nothing else would ever happen.
    const priority = event.weight < 1 ? random() * event.weight : random();
    priorities.set(event.task, priority);
    return priority;
  };
  const first = (events: readonly Event[]) =>
    events.reduce((best, event) => (priorityOf(event) > priorityOf(best) ? event : best));
  let step = 0;
  return (events) => {
    if (points.has(step++)) priorities.set(first(events).task, --lowest);
    return first(events);
  };
}

/** What changes a store, and its answers. */
const WRITES =
  /[→←].*(commit|COMMIT|place|insert|close|sell|take|reserve|deduct|release|acknowledge|apply|load|claim|UPDATE)/;

/** Events before a fault within which a link begins to be held. */
const BEFORE_FAULT = 5;

/**
 * One or two links are held for a while: nothing arrives on them, in either direction, while everything else goes on and time passes. It finds
 * what needs one request to be late; most of these need a fault meanwhile.
 * @param steps within which they begin to be held
 * @param faults the steps of the faults
 */
export function byHolding(random: Random, steps: number, faults: readonly number[]): Choose {
  const below = (n: number) => Math.floor(random() * n);
  let holds = Array.from({ length: 1 + below(2) }, () => ({
    from:
      faults.length > 0 && random() < 0.5
        ? faults[below(faults.length)]! - below(BEFORE_FAULT)
        : below(steps),
    lasts: 10 + below(150),
    // The first one that changes something from then on, or any.
    what: random() < 0.7 ? WRITES : /→|←/,
  }));
  const others = random() < 0.5 ? oldest : uniformly(random);
  const until = new Map<string, number>();
  let now = 0;
  return (events, step) => {
    now++;
    holds = holds.filter(({ from, lasts, what }) => {
      const chosen = from <= now ? events.filter(({ text }) => what.test(text)) : [];
      if (chosen.length > 0) until.set(chosen[below(chosen.length)]!.task, now + lasts);
      return chosen.length === 0;
    });
    const free = events.filter(({ task }) => !((until.get(task) ?? 0) > now));
    // Timers that are far off come when nothing else happens.
    const soon = free.filter(({ weight }) => weight > 0.1);
    if (soon.length === 0) now += 9; // then a hold is over sooner
    return others(soon.length > 0 ? soon : free.length > 0 ? free : events, step);
  };
}

/** The events that were not the oldest, by step. */
export type Deviations = ReadonlyMap<number, string>;

/** A deviation that is not possible at its step is left out. */
export const deviating =
  (deviations: Deviations): Choose =>
  (events, step) =>
    events.find(({ text }) => text === deviations.get(step)) ?? oldest(events, step);
