/**
 * The loop of a batch of orders, for the order committer and `group-commit`:
 *
 *   place ──▶ inserted: answered
 *     │  └─ the others ──▶ a read explains each: answered, or a unit is free by now ──▶ placed again
 *     └─ failed ──▶ placed again, or every member has its answer
 */
import { limits } from '../../config/limits.ts';
import type { Placed } from './insert-orders.ts';

export interface Rounds<M> {
  /** Sends one statement. @returns what it inserted; `again`: nothing yet; `over`: it has answered every member */
  place(left: readonly M[]): Promise<Placed | 'again' | 'over'>;
  orderIdOf(member: M): string;
  inserted(member: M): void;
  /** Answers members that were not inserted. @returns those to place again: whatever stopped them is gone */
  explain(others: readonly M[]): Promise<readonly M[]>;
}

/**
 * @param untilMs no round starts later, on `performance.now()`'s clock
 * @returns the members without an answer after `limits.commitRetries` rounds
 * @throws what `place` and `explain` throw
 */
export async function placeInRounds<M>(
  members: readonly M[],
  { place, orderIdOf, inserted, explain }: Rounds<M>,
  untilMs = Number.POSITIVE_INFINITY,
): Promise<readonly M[]> {
  let left = members;
  for (let round = 0; round < limits.commitRetries && performance.now() < untilMs; round++) {
    const placed = await place(left);
    if (placed === 'over') return [];
    if (placed === 'again') continue;
    const others: M[] = [];
    for (const member of left) {
      if (placed.has(orderIdOf(member))) inserted(member);
      else others.push(member);
    }
    left = others.length === 0 ? [] : await explain(others);
    if (left.length === 0) return [];
  }
  return left;
}
