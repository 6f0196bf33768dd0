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

/** How often a sale is loaded for one stock cut. */
const CUT_TRIES = 3;

/**
 * For the strategies that decide in Redis.
 *
 * Redis does not offer units that Postgres does not have: it gets them last and loses them first. Once Postgres has committed,
 * the restock has happened: units that Redis does not have yet are in the outbox, and the reaper repairs a failed cut.
 */
export async function restock(
  context: RedisStrategyContext,
  mirror: SaleMirror,
  saleId: number,
  units: number,
  key: IdempotencyKey | null = null,
): Promise<RestockResult> {
  if (units < 0) {
    for (let tries = 0; tries < CUT_TRIES; tries++) {
      const sale = await cut(context, mirror, saleId, units, key);
      if (sale !== 'not-loaded') return sale;
      await mirror.load({ id: saleId });
    }
    return 'busy';
  }
  const sale = await once(context.postgres, key, async (client) =>
    restocked(await context.sales.restock(saleId, units, true, client)),
  );
  const onError = (error: unknown) => context.onError('publish-restock', error, { saleId });
  await relayOutbox({ postgres: context.postgres, mirror, onError }, { saleId });
  return sale;
}

/**
 * Takes free units in Redis, which knows the reserved ones, and then in Postgres. The sale's row is locked meanwhile, so that a load in
 * another epoch, or into an empty Redis, waits (see `markLoaded`). If one has marked the sale before, the cut loads it first.
 */
async function cut(
  context: RedisStrategyContext,
  mirror: SaleMirror,
  saleId: number,
  units: number,
  key: IdempotencyKey | null,
): Promise<RestockResult | 'not-loaded'> {
  const copy = await mirror.findCopy(saleId); // before the transaction, which would wait for a second connection
  const { epoch } = copy;
  let isCut = false;
  let isDone = false;
  const undo = async () => {
    isCut = false;
    try {
      await mirror.restock(saleId, -units, '', epoch);
    } catch (error) {
      context.onError('restock-redis', error, { saleId, units });
    }
  };
  try {
    return await once<RestockResult | 'not-loaded'>(context.postgres, key, async (client) => {
      const { rows } = await client.query<{ loadedIn: number | null }>(
        'SELECT mirror_epoch AS "loadedIn" FROM sales WHERE id = $1 FOR NO KEY UPDATE',
        [saleId],
      );
      if (rows[0] === undefined) return restocked(null);
      const isCurrent = (rows[0].loadedIn ?? epoch) === epoch;
      const taken = isCurrent ? await mirror.restock(saleId, units, '', epoch) : null;
      const isElsewhere = taken !== null && !mirror.isStill(saleId, copy);
      if (isElsewhere && taken !== 0) await undo();
      if (taken === null || isElsewhere) return { commit: false, value: 'not-loaded' };
      if (taken === 0) return restocked('below-sold');
      isCut = true;
      const effect = restocked(await context.sales.restock(saleId, units, false, client));
      isDone = effect.commit;
      if (!isDone) await undo();
      return effect;
    });
  } catch (error) {
    if (isCut && (!isDone || wroteNothing(error))) await undo(); // not done: no COMMIT was sent
    throw error;
  }
}
