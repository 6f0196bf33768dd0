/**
 * Background work on many rows, such as due orders: a page at a time, and one row that Postgres rejects does not stop the others.
 *
 *   find a page ──▶ work on all of it ──Postgres rejects it──▶ work on its halves ──▶ … ──▶ the rejected rows back off
 *        ▲                  │
 *        │                  ├──some rows are done──▶ the next page: it lacks what is done, and what backs off
 *        └──────────────────┴──none is──▶ the group backs off, and its next page begins behind this one
 *
 * A group are rows that one other row can hold up, as the row of a sale holds up its orders. Failures are reported by the health of
 * the loop (metrics/loop-health.ts), which also says which rows and groups a page leaves out.
 */
import type { LoopHealth } from '../../concurrency/loop-health.ts';
import { isAnswer, isHeldUp, isRowError } from '../failures/postgres.ts';

export interface DrainOptions {
  readonly health: LoopHealth;
  /** Names a row in reports, such as `order`. */
  readonly kind: string;
  /** Rejected rows of one page; the rows that were not tried by then wait for a later page. */
  readonly maxRejections?: number;
}

interface WithId {
  readonly id: string;
}

/** Works on those of a page's rows that it can, by one statement. @returns those that are done */
type Work<D extends WithId> = (ids: readonly string[]) => Promise<readonly D[]>;

const MAX_REJECTIONS = 32;

/**
 * Works on a page of rows that form no group. Rows are done or rejected one by one, and reported so.
 * @returns the rows that are done
 * @throws what the connection throws, or a Postgres that is busy
 */
export async function drain<D extends WithId>(
  { health, kind, maxRejections = MAX_REJECTIONS }: DrainOptions,
  ids: readonly string[],
  work: Work<D>,
): Promise<readonly D[]> {
  const { done, rejected } = await isolateRejected(ids, work, maxRejections);
  for (const [id, error] of rejected) health.failed(`${kind} ${id}`, error);
  for (const { id } of done) health.succeeded(`${kind} ${id}`);
  return done;
}

/** Works on groups of rows. @template Place where a row is in the order of the pages */
export class GroupDrain<Place> {
  /** The last row of each group's last page, if none of that page was done. */
  readonly places = new Map<string, Place>();
  readonly #options: DrainOptions;

  constructor(options: DrainOptions) {
    this.#options = options;
  }

  /**
   * Works on a page of one group. When a lock holds the group up, it backs off.
   * @param group its kind and id, such as `sale 7`
   * @param last the last row of the page
   * @returns the rows that are done, and whether others failed
   * @throws what an unavailable Postgres throws
   */
  async page<D extends WithId>(
    group: string,
    ids: readonly string[],
    last: Place,
    work: Work<D>,
  ): Promise<{ readonly done: readonly D[]; readonly hasFailed: boolean }> {
    const { health, kind, maxRejections = MAX_REJECTIONS } = this.#options;
    const page = await isolateRejected(ids, work, maxRejections).catch((error) => {
      if (!isHeldUp(error) && !isAnswer(error)) throw error;
      health.failed(group, error);
      return null;
    });
    if (page === null) return { done: [], hasFailed: true };
    const { done, rejected } = page;
    // A single row is rejected by its own fault, unless it follows a page that was rejected.
    if (done.length === 0 && rejected.size > (this.places.has(group) ? 0 : 1)) {
      this.places.set(group, last);
      health.failed(group, [...rejected.values()][0]);
    } else {
      for (const [id, error] of rejected) health.failed(`${kind} ${id}`, error);
      if (done.length > 0 || rejected.size === 0) health.succeeded(group);
    }
    for (const { id } of done) health.succeeded(`${kind} ${id}`);
    return { done, hasFailed: rejected.size > 0 };
  }
}

/**
 * Works on many rows at once. When Postgres rejects the work because of a row (see `isRowError`), it splits the rows in halves,
 * down to the rejected ones, in random order: rows before it that fail again and again do not keep the others from their turn.
 */
async function isolateRejected<D>(
  ids: readonly string[],
  work: (some: readonly string[]) => Promise<readonly D[]>,
  maxRejections: number,
): Promise<{ readonly done: readonly D[]; readonly rejected: ReadonlyMap<string, unknown> }> {
  const done: D[] = [];
  const rejected = new Map<string, unknown>();
  const waiting = [ids];
  for (let some = waiting.pop(); some !== undefined && rejected.size < maxRejections; some = waiting.pop()) {
    if (some.length === 0) continue;
    try {
      done.push(...(await work(some)));
    } catch (error) {
      if (!isRowError(error)) throw error;
      const middle = some.length >> 1;
      if (some.length === 1) {
        rejected.set(some[0]!, error);
      } else {
        const mixed = some === ids ? shuffled(ids) : some;
        waiting.push(mixed.slice(middle), mixed.slice(0, middle));
      }
    }
  }
  return { done, rejected };
}

function shuffled<T>(rows: readonly T[]): readonly T[] {
  const keyed = rows.map((row) => [Math.random(), row] as const);
  return keyed.sort(([a], [b]) => a - b).map(([, row]) => row);
}
