/** Changes of a sale's stock, for the strategies that decide in Redis. */

import { wroteNothing } from '../../store/failures/postgres.ts';
import { relayOutbox } from '../../store/outbox-relay.ts';
import type { SaleMirror } from '../../store/redis/sale-mirror.ts';
import type { RedisStrategyContext, RestockResult } from '../strategy.ts';

/**
 * Redis never offers units that Postgres does not have: it gets them last and loses them first. Once Postgres has committed,
 * the restock has happened: units that Redis does not have yet are in the outbox, and the reaper repairs a failed cut.
 */
export async function restock(
  context: RedisStrategyContext,
  mirror: SaleMirror,
  saleId: number,
  units: number,
): Promise<RestockResult> {
  const undoCut = async () => {
    try {
      await mirror.restock(saleId, -units);
    } catch (error) {
      context.onError('restock-redis', error, { saleId, units });
    }
  };
  if (units < 0) {
    const rejection = await cut(context, mirror, saleId, -units);
    if (rejection !== 'cut') return rejection;
  }
  let sale: RestockResult;
  try {
    sale = await context.sales.restock(saleId, units, units > 0);
  } catch (error) {
    if (units < 0 && wroteNothing(error)) await undoCut();
    throw error;
  }
  if (units > 0) {
    const onError = (error: unknown) => context.onError('publish-restock', error, { saleId });
    await relayOutbox({ postgres: context.postgres, mirror, onError }, { saleId });
  } else if (sale === null || sale === 'below-sold') await undoCut();
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
