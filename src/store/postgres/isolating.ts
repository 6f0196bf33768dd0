/** One row that Postgres rejects does not stop the work on the others. */
import { isRowError } from '../failures/postgres.ts';

/**
 * Works on many rows at once. When Postgres rejects the work because of a row (see `isRowError`), it splits the rows in halves,
 * down to the rejected ones, in random order: rows before it that fail again and again do not keep the others from their turn.
 * @param rejected called for each rejected row
 * @param atMost stops after this many of them
 * @returns the results of the others, and whether all rows were tried
 * @throws what the connection throws, or a Postgres that is busy
 */
export async function isolating<T, R>(
  rows: readonly T[],
  work: (some: readonly T[]) => Promise<readonly R[]>,
  rejected: (row: T, error: unknown) => void,
  atMost: number,
): Promise<{ readonly results: readonly R[]; readonly complete: boolean }> {
  const results: R[] = [];
  const waiting = [rows];
  let rejections = 0;
  for (let some = waiting.pop(); some !== undefined; some = waiting.pop()) {
    if (some.length === 0) continue;
    if (rejections >= atMost) return { results, complete: false };
    try {
      results.push(...(await work(some)));
    } catch (error) {
      if (!isRowError(error)) throw error;
      const middle = some.length >> 1;
      if (some.length === 1) {
        rejections++;
        rejected(some[0]!, error);
      } else {
        const mixed = some === rows ? shuffled(rows) : some;
        waiting.push(mixed.slice(middle), mixed.slice(0, middle));
      }
    }
  }
  return { results, complete: true };
}

function shuffled<T>(rows: readonly T[]): readonly T[] {
  const keyed = rows.map((row) => [Math.random(), row] as const);
  return keyed.sort(([a], [b]) => a - b).map(([, row]) => row);
}
