/** What the terminal shows while trials run: one line that changes in place, or plain lines where that is not possible. */
import { number } from '../audit/check.ts';
import { label, type TrialPlan } from '../plan.ts';
import type { TrialResult } from '../result.ts';
import { milliseconds } from './table.ts';

/** What is used of a terminal or a file. */
export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

const tickMs = 200;
const second = 1_000;

/** Shows trial k of n, round, strategy, step, elapsed and remaining time. */
export class Progress {
  readonly #out: Output;
  readonly #total: number;
  readonly #rounds: number;
  readonly #begin = performance.now();
  /** How long finished trials took, ms, by strategy. */
  readonly #durations = new Map<string, number[]>();
  #planned: readonly TrialPlan[] = [];
  #current: TrialPlan | undefined;
  #step = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(out: Output, trials: readonly TrialPlan[], rounds: number) {
    this.#out = out;
    this.#planned = trials;
    this.#total = trials.length;
    this.#rounds = rounds;
  }

  begin(trial: TrialPlan): void {
    this.#current = trial;
    this.#step = 'starting';
    if (this.#out.isTTY) this.#timer ??= setInterval(() => this.#redraw(), tickMs);
    else this.#out.write(`${this.#line()}\n`);
  }

  step(text: string): void {
    this.#step = text;
  }

  /** Leaves a line that stays. */
  end(trial: TrialPlan, loads: readonly TrialResult[]): void {
    const name = label(trial);
    const tookMs = loads[0]?.durationMs ?? 0;
    this.#durations.set(name, [...(this.#durations.get(name) ?? []), tookMs]);
    this.#clear();
    this.#out.write(`  round ${trial.round}  ${name.padEnd(24)} ${loads.map(loadText).join('; ')}\n`);
    this.#planned = this.#planned.slice(1);
  }

  /** Ends the changing line. */
  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#clear();
  }

  #redraw(): void {
    const width = Math.max(20, (this.#out.columns ?? 80) - 1);
    this.#out.write(`\r\u001b[2K${this.#line().slice(0, width)}`);
  }

  #clear(): void {
    if (this.#out.isTTY) this.#out.write('\r\u001b[2K');
  }

  #line(): string {
    const trial = this.#current;
    if (trial === undefined) return '';
    const remaining = this.#remainingMs();
    const left = remaining === null ? '' : `, about ${duration(remaining)} left`;
    return (
      `trial ${trial.number} of ${this.#total}  round ${trial.round} of ${this.#rounds}  ${label(trial)}: ` +
      `${this.#step}  (${duration(performance.now() - this.#begin)}${left})`
    );
  }

  /** From what trials took so far: the latest of the same strategy where there is one, else all. Null: nothing to go by. */
  #remainingMs(): number | null {
    const all = [...this.#durations.values()].flat();
    if (all.length === 0) return null;
    const guess = (trial: TrialPlan): number => this.#durations.get(label(trial))?.at(-1) ?? mean(all);
    return this.#planned.reduce((sum, trial) => sum + guess(trial), 0);
  }
}

/** "1,234 accepted/s  pass", "rush p99 12 ms  pass". */
function loadText({ rush, load, acceptedPerSecond, acceptedLatencyMs, audit, invalid }: TrialResult): string {
  const verdict = invalid.length > 0 ? `${audit.verdict}, not counted` : audit.verdict;
  const why = audit.findings[0] === undefined ? '' : ` – ${audit.findings[0]}`;
  const rate = number(Math.round(acceptedPerSecond)).padStart(load === 'closed' ? 7 : 0);
  if (rush === null) return `${rate} accepted/s  ${verdict}${why}`;
  const p99 = acceptedLatencyMs === null ? '–' : milliseconds(acceptedLatencyMs.p99);
  return `at ${number(Math.round(rush.perSecond))}/s p99 ${p99} ms  ${verdict}${why}`;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** 75,300 ms → "1:15". */
function duration(ms: number): string {
  const seconds = Math.round(ms / second);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}
