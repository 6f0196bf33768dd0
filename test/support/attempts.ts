/** Attempts, and reservations that they make in Redis, without a service. */
import { expect } from 'vitest';
import type { Attempt } from '../../src/domain/order.ts';
import type { ClaimedReservation } from '../../src/domain/outcome.ts';
import type { RedisStore } from '../../src/store/redis/connection.ts';
import type { SaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { claimEndMs, withFirstClaim } from '../../src/store/redis/sale-records.ts';

export function attemptOf(saleId: number, userId: string, quantity = 1): Attempt {
  return { saleId, userId, orderId: crypto.randomUUID(), quantity };
}

/** Reserves in Redis, as the strategy `lua` does. */
export async function reserveFor(
  { scripts }: RedisStore,
  mirror: SaleMirror,
  attempt: Attempt,
): Promise<ClaimedReservation> {
  const { saleId } = attempt;
  const reply = await scripts.reserve(mirror.keys(saleId), attempt, await mirror.epoch(saleId));
  if ('kind' in reply) throw new Error(reply.reason);
  const [word, held, reservedAt] = reply;
  expect([word, held]).toEqual(['reserved', attempt.orderId]);
  return withFirstClaim({ ...attempt, reservedAt: reservedAt! }, claimEndMs());
}
