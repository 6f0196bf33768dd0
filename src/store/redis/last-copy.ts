/**
 * Whether the copy of a sale that this process uses is the last one: the sale is loaded in its epoch, according to Postgres (epochs.ts).
 *
 *   connected ──▶ not confirmed ──Postgres names this epoch──▶ confirmed, until the connection is lost or Postgres names another
 *                       └──Postgres names another epoch──▶ left: the copy serves nothing, and the process looks again which server has the sale
 *
 * An address that has led to another server meanwhile leads back to a copy that was left, with the epoch that it had. So with
 * CONFIRM=accepted an order is reserved, and answered with 202, in a confirmed copy only.
 */
import type { Redis } from 'ioredis';
import { coalesce, shared } from '../../concurrency/coalesce.ts';
import type { OrderTable } from '../postgres/orders.ts';
import type { RedisEpochs } from './epochs.ts';
import type { SaleKeys } from './sale-records.ts';

/** @param keys the keys of a sale */
export function lastCopies(
  redis: Redis,
  epochs: RedisEpochs,
  orders: Pick<OrderTable, 'loadedIn'>,
  keys: (saleId: number) => SaleKeys,
) {
  async function loadedIn(saleIds: readonly number[]): Promise<ReadonlyMap<number, number>> {
    const found = saleIds.map((id) => epochs.foundOf(keys(id).state)); // before Postgres is read
    const now = await orders.loadedIn(saleIds);
    for (const [i, id] of saleIds.entries()) {
      if (now.get(id) === found[i]?.epoch) found[i]?.confirmed.add(id);
      else found[i]?.confirmed.delete(id);
    }
    return now;
  }
  const loadedInOne = coalesce(async (saleId: number) => (await loadedIn([saleId])).get(saleId));

  async function invalidate(saleId: number, epoch: number): Promise<void> {
    const { state } = keys(saleId);
    if ((await redis.hget(state, 'epoch')) === String(epoch)) await redis.hset(state, 'epoch', -epoch);
  }

  async function supersede(saleId: number, epoch: number): Promise<boolean> {
    const { state } = keys(saleId);
    if (epochs.foundOf(state)?.epoch !== epoch) return false;
    await invalidate(saleId, epoch).catch(() => {}); // it does not answer, or is a replica by now
    return epochs.supersede(state, epoch);
  }

  return {
    /** Has the sale loaded again, if this is still the copy of that epoch: none has a number below zero. */
    invalidate,
    /**
     * Postgres says that the sale was loaded in another epoch than this one: see epochs.ts.
     * @returns whether this process took it for the current one
     * @throws when the server is not connected
     */
    supersede,
    /**
     * In which epoch each sale is loaded, according to Postgres now; one that never was is left out. Those that are loaded in the epoch
     * of their server are confirmed. @throws what Postgres throws
     */
    loadedIn,
    /**
     * Whether the sale is still loaded in this epoch, according to Postgres now; callers share the reads.
     * @throws what Postgres throws
     */
    isCurrent: async (saleId: number, epoch: number) => ((await loadedInOne(saleId)) ?? epoch) === epoch,
    /** Whether Postgres has said, since the server was connected, that the sale is loaded in this epoch, and nothing else since. */
    isConfirmed(saleId: number, epoch: number) {
      const found = epochs.foundOf(keys(saleId).state);
      return found?.epoch === epoch && found.confirmed.has(saleId);
    },
    /**
     * Confirms the copy of a sale that this process uses, or leaves it as `supersede` does; callers share the reads.
     * @returns false when it was left; true also when it had served nothing, so that the sale is loaded
     * @throws what the stores throw
     */
    confirm: shared(async (saleId: number) => {
      const { state } = keys(saleId);
      const { epoch } = await epochs.current(state);
      const now = await loadedInOne(saleId);
      if (now === undefined || now === epoch || (await redis.hget(state, 'epoch')) !== String(epoch))
        return true;
      await supersede(saleId, epoch);
      return false;
    }),
  };
}
