/** What the terminal shows while cells are measured: a line that changes in place, and one that stays for each cell. */
import type { Output } from '../report/progress.ts';

const tickMs = 500;

interface Turn {
  readonly round: number;
  readonly name: string;
}

/** Shows cell k of n, what is done now, elapsed and remaining time. */
export class TurnProgress {
  readonly #out: Output;
  readonly #turns: readonly Turn[];
  readonly #beganMs = performance.now();
  /** How long finished turns took, by name. */
  readonly #tookMs = new Map<string, number[]>();
  #current = 0;
  #currentBeganMs = 0;
  #step = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(out: Output, turns: readonly Turn[]) {
    this.#out = out;
    this.#turns = turns;
  }

  /** @param index of the turn that begins */
  begin(index: number): void {
    this.#current = index;
    this.#currentBeganMs = performance.now();
    this.#step = 'waiting';
    if (this.#out.isTTY) this.#timer ??= setInterval(() => this.#redraw(), tickMs);
  }

  step(text: string): void {
    this.#step = text;
  }

  /** Leaves a line that stays. */
  end(text: string): void {
    const { round, name } = this.#turns[this.#current] ?? { round: 0, name: '' };
    const tookMs = performance.now() - this.#currentBeganMs;
    this.#tookMs.set(name, [...(this.#tookMs.get(name) ?? []), tookMs]);
    this.#clear();
    // Without a terminal there is no changing line to say how much is left.
    const where = this.#out.isTTY ? '' : `  (${this.#where(this.#current + 1)})`;
    this.#out.write(`  round ${round}  ${name.padEnd(18)} ${text}${where}\n`);
  }

  /** Ends the changing line. */
  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#clear();
  }

  #redraw(): void {
    const turn = this.#turns[this.#current];
    if (turn === undefined) return;
    const text = `round ${turn.round}  ${turn.name}: ${this.#step}  (${this.#where(this.#current)})`;
    this.#out.write(`\r\u001b[2K${text.slice(0, Math.max(20, (this.#out.columns ?? 80) - 1))}`);
  }

  #clear(): void {
    if (this.#out.isTTY) this.#out.write('\r\u001b[2K');
  }

  /** @param done turns that are finished */
  #where(done: number): string {
    const leftMs = this.#leftMs(done);
    const left = leftMs === null ? '' : `, about ${clock(leftMs)} left`;
    return `${Math.min(done + 1, this.#turns.length)} of ${this.#turns.length}, ${clock(performance.now() - this.#beganMs)}${left}`;
  }

  /** From what turns of the same name took so far, or of any. Null: nothing to go by, or nothing is left. */
  #leftMs(done: number): number | null {
    const all = [...this.#tookMs.values()].flat();
    if (all.length === 0 || done >= this.#turns.length) return null;
    return this.#turns.slice(done).reduce((sum, { name }) => sum + mean(this.#tookMs.get(name) ?? all), 0);
  }
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** 75,300 ms → "1:15". */
export function clock(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}
