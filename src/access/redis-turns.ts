/** The turns of the waiting room in Redis: one hash for each sale, which expires. */
import type { RedisStore } from '../store/redis/connection.ts';
import { defineScript } from '../store/redis/load-script.ts';
import { keysOf } from '../store/redis/sale-keys.ts';
import type { TurnStore } from './waiting-room.ts';

export function redisTurns({ redis }: Pick<RedisStore, 'redis'>): TurnStore {
  const takeTurn = defineScript<string>(redis, 'sale/take-turn', 1);
  return {
    async take({ saleId, customer, nowMs, drawnMs, startMs, spreadMs, perSecond, validMs, keepMs }) {
      const { turns } = keysOf(saleId, 0);
      const times = [nowMs, drawnMs ?? '', startMs, spreadMs, perSecond, validMs, keepMs];
      return Number(await takeTurn(turns, customer, ...times));
    },
  };
}
