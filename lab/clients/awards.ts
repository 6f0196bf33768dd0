/** Clients that award points, each client one award at a time. */
import { locks } from '../../src/locks/registry.ts';
import { type Award, ledger } from '../../src/points/ledger.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { nowNs, untilNs } from '../kit/monotonic.ts';
import type { AwardCounts, Awarding, Guard } from './protocol.ts';

/** How long all clients of a race send the same award. */
const raceNs = 3e6;
const lockTimes = { lockTtlMs: 10_000, lockWaitMs: 10_000 };
/** No waiter is notified of a lost lock: a client that waits longer would miss the next awards. */
const raceWaitMs = 5;

export interface Awards {
  award(awarding: Awarding): Promise<AwardCounts>;
}

export async function openAwards({ databaseUrl, redisUrl, lock }: Guard): Promise<Awards> {
  const postgres = openPostgres(databaseUrl, () => {});
  const redis = await openRedis(redisUrl, () => {});
  const none = { openRedlock: async () => [], zookeeperUrl: null, redisWait: 1, onError: () => {} };
  const stores = { redis: redis.locks, postgres };
  const guard = lock && (await locks.get(lock)!.create({ ...stores, ...lockTimes, ...none }));
  const points = ledger(postgres, guard ? { lock: guard, ...lockTimes } : null);
  const racing = ledger(postgres, guard ? { lock: guard, ...lockTimes, lockWaitMs: raceWaitMs } : null);
  /** How many awards each client has added, by its number. */
  const added = new Map<number, number>();
  return {
    async award({ phase, startNs, endNs, clients }) {
      const counts = { added: 0, repeated: 0, refused: 0 };
      await untilNs(startNs);
      const work = async (client: number) => {
        const known = added.get(client) ?? 1;
        let n = 0;
        for (; nowNs() < endNs; n++) {
          const award = awardOf(client, phase, phase === 'repeat' ? n % known : n);
          const { kind } = await (phase === 'race' ? racing : points).award(award);
          if (kind === 'added' || kind === 'repeated') counts[kind]++;
          else counts.refused++;
        }
        if (phase === 'award') added.set(client, n);
      };
      await Promise.all(clients.map(work));
      return counts;
    },
  };
}

const awardOf = (client: number, phase: Awarding['phase'], n: number): Award => ({
  userId: phase === 'race' ? 'racer' : `user-${client}`,
  sourceType: 'bench',
  sourceId: phase === 'race' ? String(Math.floor(nowNs() / raceNs)) : String(n),
  points: 1,
});
