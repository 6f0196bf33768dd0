/** What a sold-out latch reads in Redis, for the strategies that decide there. */
import type { RedisStore } from '../../store/redis/connection.ts';
import type { RedisEpochs } from '../../store/redis/epochs.ts';
import type { SaleMirror } from '../../store/redis/sale-mirror.ts';
import type { SoldOutSource } from './sold-out-latch.ts';

/** Scripts publish returned units here; the message is the key of the sale's state. */
const CHANNEL = 'stampede:generations';
const NOTHING: ReadonlyMap<number, number> = new Map();
/** Customers read in one command. */
const PAGE = 1_000;

/**
 * Each script that releases a unit, or adds a customer without taking a unit, changes the generation. Postgres confirms that no other copy of
 * the sale was loaded: an old primary that still serves knows of no release.
 */
export function soldOutInRedis(
  { redis, connectionTo }: RedisStore,
  epochs: RedisEpochs,
  mirror: Pick<SaleMirror, 'keys' | 'loadedIn' | 'soldOut'>,
): SoldOutSource {
  return {
    async states(saleIds, isFinal) {
      const keys = saleIds.map((id) => mirror.keys(id).state);
      const copies = await Promise.all(keys.map((key) => epochs.current(key)));
      const replies = await mirror.soldOut(saleIds);
      // Another copy has another generation: each load gives one.
      const loadedIn = isFinal ? await mirror.loadedIn(saleIds) : NOTHING;
      return replies.map((reply, i) => {
        const { epoch } = copies[i]!;
        const isStale = !epochs.isStill(keys[i]!, copies[i]!); // of a Redis that was replaced meanwhile
        return isStale || (loadedIn.get(saleIds[i]!) ?? epoch) !== epoch ? null : reply;
      });
    },
    async *customers(saleId) {
      let cursor = '0';
      do {
        const [next, entries] = await redis.hscan(mirror.keys(saleId).buyers, cursor, 'COUNT', PAGE);
        yield entries.filter((_, i) => i % 2 === 0); // the others are their orders
        cursor = next;
      } while (cursor !== '0');
    },
    listen(returned) {
      const connection = connectionTo(CHANNEL, {
        lazyConnect: true,
        enableOfflineQueue: true,
        autoResubscribe: false,
      });
      connection.on('error', () => {});
      connection.on('message', (_channel, key: string) => returned(Number(/\{sale:(\d+)\}/.exec(key)?.[1])));
      connection.on('ready', () => void connection.subscribe(CHANNEL).catch(() => {}));
      connection.connect().catch(() => {}); // it keeps trying
      return () => connection.disconnect();
    },
  };
}
