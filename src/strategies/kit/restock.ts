/** Changes of a sale's stock. */

import { wroteNothing } from '../../store/failures/postgres.ts';
import { relayOutbox } from '../../store/outbox-relay.ts';
import { type Effect, type IdempotencyKey, once } from '../../store/postgres/idempotency.ts';
import type { SaleMirror } from '../../store/redis/sale-mirror.ts';
import type { RedisStrategyContext, RestockResult } from '../strategy.ts';

/** One that was refused changes nothing. */
export const restocked = (value: RestockResult): Effect<RestockResult> => ({
  commit: typeof value === 'object' && value !== null,
  value,
});

/**
 * For the strategies that decide in Redis.
 *
 * Redis never offers units that Postgres does not have: it gets them last and loses them first. Once Postgres has committed,
 * the restock has happened: units that Redis does not have yet are in the outbox, and the reaper repairs a failed cut.
 */
export async function restock(
  context: RedisStrategyContext,
  mirror: SaleMirror,
  saleId: number,
  units: number,
  key: IdempotencyKey | null = null,
): Promise<RestockResult> {
  const undoCut = async () => {
    try {
      await mirror.restock(saleId, -units);
    } catch (error) {
      context.onError('restock-redis', error, { saleId, units });
    }
  };
  let isCut = false;
  let isDone = false;
  let sale: RestockResult;
  try {
    sale = await once(context.postgres, key, async (client) => {
      if (units < 0) {
        const rejection = await cut(context, mirror, saleId, -units);
        if (rejection !== 'cut') return restocked(rejection);
        isCut = true;
      }
      const effect = restocked(await context.sales.restock(saleId, units, units > 0, client));
      isDone = effect.commit;
      return effect;
    });
  } catch (error) {
    if (isCut && (!isDone || wroteNothing(error))) await undoCut(); // not done: no COMMIT was sent
    throw error;
  }
  if (isCut && !isDone) await undoCut();
  if (units > 0) {
    const onError = (error: unknown) => context.onError('publish-restock', error, { saleId });
    await relayOutbox({ postgres: context.postgres, mirror, onError }, { saleId });
  }
  return sale;
}

/** How often a sale is loaded for one stock cut. */
const CUT_TRIES = 3;

/** Takes free units in Redis, which knows the reserved ones: a sale that is not there is loaded first. */
async function cut(context: RedisStrategyContext, mirror: SaleMirror, saleId: number, units: number) {
  for (let tries = 0; tries < CUT_TRIES; tries++) {
    const taken = await mirror.restock(saleId, -units);
    if (taken !== null) return taken === 0 ? 'below-sold' : 'cut';
    const sale = await context.sales.get(saleId);
    if (sale === null) return null;
    await mirror.load(sale);
  }
  return 'busy';
}
