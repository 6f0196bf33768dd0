/**
 * CONFIRM=accepted: orders that were answered with 202 and that Postgres did not take. They wait in Redis for the reaper, and must not pile up
 * without bound.
 *
 *   answered with 202 ──▶ not committed now ──▶ left here ──▶ a pass of the reaper that began later sees fewer reservations
 */
export interface Backlog {
  /** At most so many wait. */
  readonly size: number;
  /** One more is left to the reaper. */
  left(): void;
  /**
   * A pass of the reaper begins.
   * @returns takes how many reservations it saw in Redis: of those left before the pass, no more wait
   */
  beginPass(): (pending: number) => void;
}

export function createBacklog(): Backlog {
  let size = 0;
  return {
    get size() {
      return size;
    },
    left() {
      size++;
    },
    beginPass() {
      const before = size;
      return (pending) => {
        size -= Math.max(0, before - pending);
      };
    },
  };
}
