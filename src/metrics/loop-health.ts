/**
 * The health of background work. A loop (expiry, tasks, …) processes many items (a sale, an order, a task). An item that fails
 * is counted, logged once and skipped until its backoff ends, so that the loop continues with the others.
 *
 *   healthy ──failed──▶ failing, backs off for 1 s ──failed again──▶ backs off twice as long, up to 60 s
 *      ▲                    └──succeeded, which is logged──┘
 *      └──────────────────────────┘  (or it is not retried: the item is gone)
 *
 * An item is named by its kind and id, such as `sale 7`; a step of the whole loop by its purpose, such as `claim tasks`.
 */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { LoopHealth } from '../concurrency/loop-health.ts';

/** A loop with failing items, for /readyz. */
export interface Degradation {
  readonly what: string;
  readonly detail: string;
}

export interface BackgroundHealth {
  loop(name: string): LoopHealth;
  /** The loops with failing items. */
  degraded(): readonly Degradation[];
}

/** Receives each error of an item once, and its recovery. */
export interface BackgroundReports {
  failing(what: string, error: unknown, details: object): void;
  recovered(what: string, details: object): void;
}

const BACKOFF_MS = { first: 1_000, max: 60_000 } as const;
/** An item not retried for this long after its backoff is gone: closed, cancelled, or processed by another process. */
const GONE_MS = 30_000;
/** Failing items that a loop remembers. One more replaces the oldest. */
const MAX_REMEMBERED = 5_000;
/** Failing items of a loop that are logged individually. Further ones appear only in the metric and in /readyz. */
const MAX_LOGGED = 10;
/** Different errors logged for one item. */
const MAX_ERRORS_LOGGED = 5;

interface Failing {
  readonly logged: Set<string>;
  readonly isLogged: boolean;
  readonly sinceMs: number;
  failures: number;
  backoffUntilMs: number;
  error: string;
}

/** @param nowMs a monotonic clock */
export function backgroundHealth(
  registry: Registry,
  reports: BackgroundReports,
  nowMs: () => number = () => performance.now(),
): BackgroundHealth {
  const loops = new Map<string, Loop>();
  const failures = new Counter({
    name: 'stampede_background_failures_total',
    help: 'Failed steps of background work, by loop',
    labelNames: ['loop'],
    registers: [registry],
  });
  new Gauge({
    name: 'stampede_background_failing',
    help: 'Items of background work (sales, orders, tasks, whole steps) whose last attempt failed, by loop',
    labelNames: ['loop'],
    aggregator: 'max', // processes meet the same items
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
  /** Ordered by the latest failure. */
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
    const known = this.#failing.get(item);
    this.#failing.delete(item);
    if (known === undefined && this.#failing.size >= MAX_REMEMBERED) {
      this.#failing.delete(this.#failing.keys().next().value!);
    }
    const failing = known ?? {
      logged: new Set<string>(),
      isLogged: this.#failing.size < MAX_LOGGED,
      sinceMs: nowMs,
      failures: 0,
      backoffUntilMs: 0,
      error: '',
    };
    // Concurrent failures count as one.
    if (nowMs >= failing.backoffUntilMs) {
      failing.failures++;
      const backoffMs = BACKOFF_MS.first * 2 ** Math.min(failing.failures - 1, 10);
      failing.backoffUntilMs = nowMs + Math.min(backoffMs, BACKOFF_MS.max);
    }
    failing.error = messageOf(error);
    this.#failing.set(item, failing);
    const isNew = !failing.logged.has(failing.error) && failing.logged.size < MAX_ERRORS_LOGGED;
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

  isBackingOff(item: string): boolean {
    return (this.#failing.get(item)?.backoffUntilMs ?? 0) > this.#nowMs();
  }

  backingOff(kind: string): string[] {
    if (this.#failing.size === 0) return [];
    this.#forgetGone();
    const nowMs = this.#nowMs();
    const prefix = `${kind} `;
    return [...this.#failing]
      .filter(([item, { backoffUntilMs }]) => item.startsWith(prefix) && backoffUntilMs > nowMs)
      .map(([item]) => item.slice(prefix.length));
  }

  retain(kind: string, isPending: (id: string) => boolean): void {
    const prefix = `${kind} `;
    for (const item of this.#failing.keys())
      if (item.startsWith(prefix) && !isPending(item.slice(prefix.length))) this.succeeded(item);
  }

  #forgetGone(): void {
    const sinceMs = this.#nowMs() - GONE_MS;
    for (const [item, { backoffUntilMs }] of this.#failing)
      if (backoffUntilMs < sinceMs) this.succeeded(item);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}
