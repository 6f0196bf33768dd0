/** Holds callbacks back, first in, first out. None is early. One timer of whole milliseconds serves them all. */
export class DelayLine {
  /** Delay of callbacks that enter from now on; they overtake none that entered before. */
  delayMs = 0;
  readonly #waiting: { readonly dueMs: number; readonly leave: () => void }[] = [];

  enter(leave: () => void): void {
    const isEmpty = this.#waiting.length === 0;
    if (this.delayMs === 0 && isEmpty) {
      leave();
      return;
    }
    this.#waiting.push({ dueMs: performance.now() + this.delayMs, leave });
    if (isEmpty) setTimeout(this.#release, Math.ceil(this.delayMs));
  }

  readonly #release = (): void => {
    const nowMs = performance.now();
    const later = this.#waiting.findIndex(({ dueMs }) => dueMs > nowMs);
    const due = later === -1 ? this.#waiting.length : later;
    for (const { leave } of this.#waiting.slice(0, due)) leave();
    this.#waiting.splice(0, due); // after the loop: a callback that enters meanwhile sets no second timer
    const [first] = this.#waiting;
    if (first !== undefined) setTimeout(this.#release, Math.ceil(first.dueMs - performance.now()));
  };
}
