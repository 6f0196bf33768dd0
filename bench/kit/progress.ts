/** What the terminal shows while trials run: one line that changes in place, or plain lines where that is not possible. */
import type { CellBase, Trial } from './suite.ts';
import { clock } from './text.ts';

/** What is used of a terminal or a file. */
export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

const tickMs = 200;
const clear = '\r\u001b[2K';

export class Progress {
  readonly #out: Output;
  readonly #trials: readonly Trial<CellBase>[];
  readonly #rounds: number;
  readonly #beganMs = performance.now();
  /** How long finished trials took, by cell. */
  readonly #tookMs = new Map<string, number>();
  #current: Trial<CellBase> | undefined;
  #currentMs = 0;
  #step = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(out: Output, trials: readonly Trial<CellBase>[], rounds: number) {
    this.#out = out;
    this.#trials = trials;
    this.#rounds = rounds;
  }

  begin(trial: Trial<CellBase>): void {
    this.#current = trial;
    this.#currentMs = performance.now();
    this.#step = 'starting';
    if (this.#out.isTTY) this.#timer ??= setInterval(() => this.#redraw(), tickMs);
    else this.#out.write(`${this.#line()}\n`);
  }

  step(text: string): void {
    this.#step = text;
  }

  /** Leaves a line that stays. */
  end({ round, cell }: Trial<CellBase>, text: string): void {
    this.#tookMs.set(cell.name, performance.now() - this.#currentMs);
    if (this.#out.isTTY) this.#out.write(clear);
    this.#out.write(`  round ${round}  ${cell.name.padEnd(24)} ${text}\n`);
  }

  /** Ends the changing line. */
  stop(): void {
    clearInterval(this.#timer);
    if (this.#out.isTTY) this.#out.write(clear);
  }

  #redraw(): void {
    const width = Math.max(20, (this.#out.columns ?? 80) - 1);
    this.#out.write(`${clear}${this.#line().slice(0, width)}`);
  }

  #line(): string {
    const trial = this.#current;
    if (trial === undefined) return '';
    const left = this.#leftMs(trial.number);
    const time = `${clock(performance.now() - this.#beganMs)}${left === null ? '' : `, about ${clock(left)} left`}`;
    const where = `trial ${trial.number} of ${this.#trials.length}  round ${trial.round} of ${this.#rounds}`;
    return `${where}  ${trial.cell.name}: ${this.#step}  (${time})`;
  }

  /** From how long trials took so far: of the same cell where there is one, else of all. */
  #leftMs(from: number): number | null {
    const all = [...this.#tookMs.values()];
    if (all.length === 0) return null;
    const mean = all.reduce((sum, ms) => sum + ms, 0) / all.length;
    return this.#trials
      .slice(from - 1)
      .reduce((sum, { cell }) => sum + (this.#tookMs.get(cell.name) ?? mean), 0);
  }
}
