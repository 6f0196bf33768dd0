/**
 * The fate of a reservation, from the result of its commit: the answer to its customer, and what happens to it in Redis. Settlement,
 * repeats and the reaper share it. Only the process with the claim may act on it (domain/outcome.ts).
 *
 *   accepted                          nothing: the committer acknowledges it
 *   replayed, with the other order    released; the customer keeps that order
 *   too few units, or no such sale    released without those units that Postgres does not have
 *   the customer's limit is reached   released
 *   retry: decided again              released
 *   busy                              released
 *   unknown                           nothing: the reaper commits it, or finds it committed
 *
 * A reservation that an earlier claim may have committed, or whose customer may have a 202, is not released when Postgres is busy: its
 * claim ends, the next claim commits it, and the answer is unknown.
 */
import type { ClaimedReservation, Result } from '../domain/outcome.ts';
import type { ReleaseOptions, SaleMirror } from '../store/redis/sale-mirror.ts';

export interface Fate {
  readonly answer: Result;
  readonly inRedis: 'nothing' | 'unclaim' | ReleaseOptions;
}

/**
 * @param isPromised whether customers get a 202 before the commit (CONFIRM=accepted). A failover to a replica that missed a release
 *   restores the reservation, which is then committed (see lua/sale/load.lua): no answer may say that it was not
 */
export function fateOf(reservation: ClaimedReservation, result: Result, isPromised: boolean): Fate {
  const { orderId, isFirst } = reservation;
  const unknown = (reason: string) => ({ kind: 'unknown', orderId, reason }) as const;
  switch (result.kind) {
    case 'accepted':
    case 'unknown':
      return { answer: result, inRedis: 'nothing' };
    case 'replayed':
      return { answer: result, inRedis: { owner: result.order } };
    case 'retry':
    case 'busy':
      if (!isFirst || isPromised) return { answer: unknown(result.reason), inRedis: 'unclaim' };
      return { answer: result, inRedis: {} };
    case 'customer-limit':
      return { answer: isPromised ? unknown(NOT_RELEASED) : result, inRedis: {} };
    default: {
      // What Postgres still has, and more, is reserved or free in Redis: only the rest is too many.
      const remaining = result.kind === 'not-enough-units' ? result.remaining : 0;
      const answer = isPromised ? unknown(NOT_RELEASED) : result;
      return { answer, inRedis: { discardedUnits: reservation.quantity - remaining } };
    }
  }
}

/** The reason of `unknown` when the reservation may still be committed. */
const NOT_RELEASED = 'reservation-not-released';

/**
 * Does in Redis what the fate says.
 * @returns the answer; `unknown` when the release is not certain, also where this process has reached another server since: the one that has
 *   the reservation may come back with it. A reservation that is gone while its claim is this process's was dropped, in another epoch: only
 *   this process could have committed it
 * @throws what Redis throws
 */
export async function carryOut(
  mirror: SaleMirror,
  reservation: ClaimedReservation,
  { answer, inRedis }: Fate,
): Promise<Result> {
  if (inRedis === 'nothing') return answer;
  if (inRedis === 'unclaim') {
    await mirror.unclaim(reservation);
    return answer;
  }
  const reply = await mirror.release(reservation, inRedis);
  const isReleased =
    reply === 'released' ||
    (reply === 'gone' && performance.now() < reservation.untilMs) ||
    (reply === 'elsewhere' && answer.kind === 'retry'); // Postgres commits it no more
  return isReleased ? answer : uncertain(reservation, { answer, inRedis });
}

/** The answer when Redis may not have done what the fate says. A claim that was not ended ends by itself: its answer stays. */
export function uncertain({ orderId }: ClaimedReservation, { answer, inRedis }: Fate): Result {
  return typeof inRedis === 'string' ? answer : { kind: 'unknown', orderId, reason: NOT_RELEASED };
}
