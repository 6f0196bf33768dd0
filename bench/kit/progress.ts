/** Progress while trials run: one line that changes in place, or plain lines where that is not possible. */

import { clock } from '../../lab/kit/text.ts';
import type { Trial } from './suite.ts';

/** The used part of a terminal or file. */
export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

export class Progress {
  readonly #out: Output;
  readonly #of: { readonly trials: number; readonly rounds: number };
  readonly #clear: string;
  readonly #beganMs = performance.now();
  #trial = 0;

  constructor(out: Output, of: { readonly trials: number; readonly rounds: number }) {
    this.#out = out;
    this.#of = of;
    this.#clear = out.isTTY ? '\r\u001b[2K' : '';
  }

  /** Shows the step of a trial; without a terminal, only the first one. */
  step({ number, round, cell }: Trial, text: string): void {
    const { trials, rounds } = this.#of;
    const tookMs = performance.now() - this.#beganMs;
    const left = number === 1 ? '' : `, about ${clock((tookMs / (number - 1)) * (trials - number + 1))} left`;
    const where = `trial ${number} of ${trials}  round ${round} of ${rounds}  ${cell.name}`;
    const line = `${where}: ${text}  (${clock(tookMs)}${left})`;
    if (this.#out.isTTY) this.#out.write(this.#clear + line.slice(0, (this.#out.columns ?? 80) - 1));
    else if (this.#trial !== number) this.#out.write(`${line}\n`);
    this.#trial = number;
  }

  /** Prints a line that stays. */
  end({ round, cell }: Trial, text: string): void {
    this.#out.write(`${this.#clear}  round ${round}  ${cell.name.padEnd(24)} ${text}\n`);
  }

  /** Ends the changing line. */
  stop(): void {
    this.#out.write(this.#clear);
  }
}
