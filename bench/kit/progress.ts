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
  readonly #trials: number;
  readonly #rounds: number;
  readonly #beganMs = performance.now();
  #line = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(out: Output, trials: number, rounds: number) {
    this.#out = out;
    this.#trials = trials;
    this.#rounds = rounds;
  }

  /** What a trial does now. */
  step({ number, round, cell }: Trial<CellBase>, text: string): void {
    const where = `trial ${number} of ${this.#trials}  round ${round} of ${this.#rounds}`;
    const isFirst = !this.#line.startsWith(where);
    this.#line = `${where}  ${cell.name}: ${text}  (${this.#time(number - 1)})`;
    if (this.#out.isTTY) this.#timer ??= setInterval(() => this.#redraw(), tickMs);
    else if (isFirst) this.#out.write(`${this.#line}\n`);
  }

  /** Leaves a line that stays. */
  end({ round, cell }: Trial<CellBase>, text: string): void {
    this.#out.write(`${this.#out.isTTY ? clear : ''}  round ${round}  ${cell.name.padEnd(24)} ${text}\n`);
  }

  /** Ends the changing line. */
  stop(): void {
    clearInterval(this.#timer);
    if (this.#out.isTTY) this.#out.write(clear);
  }

  #redraw(): void {
    this.#out.write(clear + this.#line.slice(0, Math.max(20, (this.#out.columns ?? 80) - 1)));
  }

  #time(done: number): string {
    const tookMs = performance.now() - this.#beganMs;
    return done === 0
      ? clock(tookMs)
      : `${clock(tookMs)}, about ${clock((tookMs / done) * (this.#trials - done))} left`;
  }
}
