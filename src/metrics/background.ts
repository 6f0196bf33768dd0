/**
 * The health of background work. A loop (expiry, tasks, …) looks after many items (a sale, an order, a task); one that
 * fails is counted, logged once, and left alone for a while, so that the others go on.
 *
 *   healthy ──failed──▶ failing, at rest for 1 s ──failed again──▶ at rest for twice as long, 60 s at most
 *      ▲                    └──succeeded, which is logged──┘
 *      └──────────────────────────┘  (or it is not tried again: it is gone)
 *
 * An item is named by its kind and its number, `sale 7`; a step of the loop as a whole by what it does, `dispatch tasks`.
 */
import { Counter, Gauge, type Registry } from 'prom-client';

/** Something that fails now, for /readyz. */
export interface Degradation {
  readonly what: string;
  readonly detail: string;
}

/** One loop. */
export interface LoopHealth {
  failed(item: string, error: unknown): void;
  succeeded(item: string): void;
  /** Does the work and notes how it ended. @returns null when it threw */
  step<T>(item: string, work: () => Promise<T>): Promise<T | null>;
  /** Whether the item failed a short while ago, and is left alone now. */
  isResting(item: string): boolean;
  /** The same of all items of a kind: the numbers of those that are left alone now. */
  resting(kind: string): string[];
  /** Items of a kind that nothing has to be done for any more do not fail any more. */
  retain(kind: string, isStill: (number: string) => boolean): void;
}

export interface BackgroundHealth {
  loop(name: string): LoopHealth;
  /** The loops that have something failing now. */
  degraded(): readonly Degradation[];
}

/** Reports each error of an item once, and its recovery. */
export interface BackgroundReports {
  failing(what: string, error: unknown, details: object): void;
  recovered(what: string, details: object): void;
}

const REST_MS = { first: 1_000, most: 60_000 } as const;
/** An item that is not tried again for this long after its rest is gone: closed, cancelled, or done by another process. */
const GONE_MS = 30_000;
/** Failing items that a loop remembers. One more makes it forget the one that failed first. */
const REMEMBERED = 5_000;
/** Failing items of a loop that are logged one by one; the log says nothing of further ones, the metric and /readyz do. */
const LOGGED = 10;
/** Different errors of one item that are logged. */
const ERRORS_LOGGED = 5;

interface Failing {
  readonly logged: Set<string>;
  readonly isLogged: boolean;
  readonly sinceMs: number;
  failures: number;
  restUntilMs: number;
  error: string;
}

/** @param nowMs a clock that never goes back */
export function backgroundHealth(
  registry: Registry,
  reports: BackgroundReports,
  nowMs: () => number = () => performance.now(),
): BackgroundHealth {
  const loops = new Map<string, Loop>();
  const failures = new Counter({
    name: 'stampede_background_failures_total',
    help: 'Steps of background work that failed, by loop',
    labelNames: ['loop'],
    registers: [registry],
  });
  new Gauge({
    name: 'stampede_background_failing',
    help: 'Sales, orders, tasks and whole steps of background work that fail now, by loop',
    labelNames: ['loop'],
    aggregator: 'max', // each process may meet the same ones
    registers: [registry],
    collect() {
      for (const [loop, { size }] of loops) this.set({ loop }, size);
    },
  });
  return {
    loop(name) {
      let loop = loops.get(name);
      if (loop === undefined) {
        loop = new Loop(name, reports, nowMs, () => failures.inc({ loop: name }));
        loops.set(name, loop);
        failures.inc({ loop: name }, 0);
      }
      return loop;
    },
    degraded: () =>
      [...loops].flatMap(([what, loop]) => {
        const detail = loop.detail();
        return detail === null ? [] : [{ what, detail }];
      }),
  };
}

class Loop implements LoopHealth {
  readonly #name: string;
  readonly #reports: BackgroundReports;
  readonly #nowMs: () => number;
  readonly #count: () => void;
  /** The one that failed last is the last one. */
  readonly #failing = new Map<string, Failing>();

  constructor(name: string, reports: BackgroundReports, nowMs: () => number, count: () => void) {
    this.#name = name;
    this.#reports = reports;
    this.#nowMs = nowMs;
    this.#count = count;
  }

  get size(): number {
    this.#forgetGone();
    return this.#failing.size;
  }

  detail(): string | null {
    const { size } = this;
    if (size === 0) return null;
    const [item, { error }] = [...this.#failing].at(-1)!;
    return `${size} failing; ${item}: ${error}`;
  }

  failed(item: string, error: unknown): void {
    this.#count();
    const nowMs = this.#nowMs();
    const before = this.#failing.get(item);
    this.#failing.delete(item);
    if (before === undefined && this.#failing.size >= REMEMBERED) {
      this.#failing.delete(this.#failing.keys().next().value!);
    }
    const failing = before ?? {
      logged: new Set<string>(),
      isLogged: this.#failing.size < LOGGED,
      sinceMs: nowMs,
      failures: 0,
      restUntilMs: 0,
      error: '',
    };
    // Several at the same time are one failure.
    if (nowMs >= failing.restUntilMs) {
      failing.failures++;
      const restMs = REST_MS.first * 2 ** Math.min(failing.failures - 1, 10);
      failing.restUntilMs = nowMs + Math.min(restMs, REST_MS.most);
    }
    failing.error = messageOf(error);
    this.#failing.set(item, failing);
    const isNew = !failing.logged.has(failing.error) && failing.logged.size < ERRORS_LOGGED;
    if (!failing.isLogged || !isNew) return;
    failing.logged.add(failing.error);
    this.#reports.failing(item, error, { loop: this.#name, item });
  }

  succeeded(item: string): void {
    const failing = this.#failing.get(item);
    if (failing === undefined) return;
    this.#failing.delete(item);
    if (!failing.isLogged) return;
    const { failures, sinceMs } = failing;
    const forMs = Math.round(this.#nowMs() - sinceMs);
    this.#reports.recovered(item, { loop: this.#name, item, failures, forMs });
  }

  async step<T>(item: string, work: () => Promise<T>): Promise<T | null> {
    try {
      const value = await work();
      this.succeeded(item);
      return value;
    } catch (error) {
      this.failed(item, error);
      return null;
    }
  }

  isResting(item: string): boolean {
    return (this.#failing.get(item)?.restUntilMs ?? 0) > this.#nowMs();
  }

  resting(kind: string): string[] {
    if (this.#failing.size === 0) return [];
    this.#forgetGone();
    const nowMs = this.#nowMs();
    const prefix = `${kind} `;
    return [...this.#failing]
      .filter(([item, { restUntilMs }]) => item.startsWith(prefix) && restUntilMs > nowMs)
      .map(([item]) => item.slice(prefix.length));
  }

  retain(kind: string, isStill: (number: string) => boolean): void {
    const prefix = `${kind} `;
    for (const item of this.#failing.keys())
      if (item.startsWith(prefix) && !isStill(item.slice(prefix.length))) this.succeeded(item);
  }

  #forgetGone(): void {
    const sinceMs = this.#nowMs() - GONE_MS;
    for (const [item, { restUntilMs }] of this.#failing) if (restUntilMs < sinceMs) this.succeeded(item);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}
