/**
 * Admission control: how many attempts are worked on at a time, and who is told `busy` at once instead of waiting for
 * something that comes too late.
 *
 *   attempt ──room──▶ under way ──▶ done, and the next in line goes in
 *      ├──no room──▶ in line ──its turn──▶ under way
 *      │                └──waited too long──▶ turned down
 *      └──the line is full──▶ turned down
 *
 * Each who is let in is to be answered within a time. A part of it is for the stores: the room is what they get done in
 * that part (Little's law: as many are under way as come out in the time that each takes). It is measured only while
 * somebody waits: at other times the rate tells of the customers, not of the stores. The rest of the time is for the line,
 * which keeps the order in which they came. A rush that comes out of nowhere finds a long line; once somebody waited in
 * vain, it is no longer than what is served in time.
 */
import { limits } from '../config/limits.ts';

export interface LoadShedder {
  /**
   * Asks to go in. Whoever was let in must call `leave` when done.
   * @returns true: at once; false: turned down; a promise of either: in line
   */
  enter(): boolean | Promise<boolean>;
  leave(): void;
  /** For metrics: attempts under way, in line, and how many may be under way. */
  readonly state: { readonly underWay: number; readonly waiting: number; readonly room: number };
}

interface Waiting {
  readonly sinceMs: number;
  resolve(admitted: boolean): void;
}

type Bounds = { readonly [Bound in keyof typeof limits.admission]: number };

/**
 * @param withinMs in which who is let in is to be answered, milliseconds
 * @param maxBatch how many the strategy decides at a time: with less room it would only do the same work for fewer
 */
export function createLoadShedder(
  withinMs: number,
  maxBatch: number,
  bounds: Bounds = limits.admission,
): LoadShedder {
  const roomLeast = Math.max(bounds.roomLeast, maxBatch / 2);
  const roomMs = bounds.roomPart * withinMs;
  const lineMs = withinMs - roomMs;
  let room = Math.max(bounds.roomAtStart, roomLeast);
  let underWay = 0;
  let line: Waiting[] = [];
  /** Before it, the line has been served. */
  let head = 0;
  let timer: NodeJS.Timeout | null = null;
  let windowMs = performance.now();
  let left = 0;
  let crowded = false;
  let inVainMs = Number.NEGATIVE_INFINITY;

  const waiting = () => line.length - head;

  /** Once in a window; most calls end at the first line. */
  function adjust(nowMs: number): void {
    const elapsedMs = nowMs - windowMs;
    if (elapsedMs < bounds.windowMs) return;
    // A longer time than a window had nobody in it for a while.
    if (crowded && elapsedMs < 2 * bounds.windowMs) {
      const sustained = (left / elapsedMs) * roomMs;
      room = Math.min(bounds.roomMost, Math.max(roomLeast, Math.round((room + sustained) / 2)));
    }
    windowMs = nowMs;
    left = 0;
    crowded = waiting() > 0;
  }

  function next(): Waiting | undefined {
    const first = line[head];
    if (first === undefined) return undefined;
    head += 1;
    if (head > 1_000 && head * 2 > line.length) {
      line = line.slice(head);
      head = 0;
    }
    return first;
  }

  function admit(): void {
    while (underWay < room) {
      const first = next();
      if (first === undefined) return;
      underWay += 1;
      first.resolve(true);
    }
  }

  /** Turns down who waited too long, as long as anybody waits. */
  function watch(): void {
    const nowMs = performance.now();
    adjust(nowMs);
    admit();
    while (waiting() > 0 && nowMs - line[head]!.sinceMs > lineMs) {
      inVainMs = nowMs;
      next()!.resolve(false);
    }
    if (waiting() === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  }

  return {
    enter() {
      if (underWay < room && waiting() === 0) {
        underWay += 1;
        return true;
      }
      crowded = true;
      const nowMs = performance.now();
      const lineMost = nowMs - inVainMs < bounds.rememberMs ? (room * lineMs) / roomMs : bounds.lineMost;
      if (waiting() >= lineMost) return false;
      timer ??= setInterval(watch, bounds.lookMs).unref();
      return new Promise((resolve) => line.push({ sinceMs: nowMs, resolve }));
    },
    leave() {
      underWay -= 1;
      left += 1;
      adjust(performance.now());
      admit();
    },
    get state() {
      return { underWay, waiting: waiting(), room };
    },
  };
}
