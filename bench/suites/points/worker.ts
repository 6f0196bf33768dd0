/** One process of clients that award points, each award after the answer to its last one. */

import { nowNs, untilNs } from '../../../lab/kit/monotonic.ts';
import { locks } from '../../../src/locks/registry.ts';
import { type Award, type Ledger, ledger } from '../../../src/points/ledger.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';
import { openRedis } from '../../../src/store/redis/connection.ts';
import type { FromWorker, Go, Open, Phase, ToWorker } from './protocol.ts';

const raceNs = 3e6;
const lockTimes = { lockTtlMs: 10_000, lockWaitMs: 10_000 };
/** No waiter is notified of a lost lock: a client that waits longer would miss the next awards. */
const raceWaitMs = 5;

let clients: readonly number[] = [];
let points: Ledger | undefined;
let racing: Ledger | undefined;
/** How many awards each client has added, by its number. */
const added = new Map<number, number>();

async function open({ databaseUrl, redisUrl, lock, ...order }: Open): Promise<void> {
  const postgres = openPostgres(databaseUrl, () => {});
  const redis = await openRedis(redisUrl, () => {});
  const none = { redlockUrls: [], zookeeperUrl: null, redisWait: 0, onError: () => {} };
  const guard = lock && (await locks.get(lock)!.create({ redis, postgres, ...lockTimes, ...none }));
  points = ledger(postgres, guard ? { lock: guard, ...lockTimes } : null);
  racing = ledger(postgres, guard ? { lock: guard, ...lockTimes, lockWaitMs: raceWaitMs } : null);
  clients = order.clients;
}

const awardOf = (client: number, phase: Phase, n: number): Award => ({
  userId: phase === 'race' ? 'racer' : `user-${client}`,
  sourceType: 'bench',
  sourceId: phase === 'race' ? String(Math.floor(nowNs() / raceNs)) : String(n),
  points: 1,
});

async function run({ phase, startNs, endNs }: Go): Promise<FromWorker> {
  const counts = { added: 0, repeated: 0, refused: 0 };
  await untilNs(startNs);
  const work = async (client: number) => {
    const known = added.get(client) ?? 1;
    let n = 0;
    for (; nowNs() < endNs; n++) {
      const award = awardOf(client, phase, phase === 'repeat' ? n % known : n);
      const { kind } = await (phase === 'race' ? racing! : points!).award(award);
      if (kind === 'added' || kind === 'repeated') counts[kind]++;
      else counts.refused++;
    }
    if (phase === 'award') added.set(client, n);
  };
  await Promise.all(clients.map(work));
  return { kind: 'done', ...counts };
}

const send = (message: FromWorker) => process.send?.(message);

// A rejection ends the process; the bench shows its last lines.
process.on('message', async (message: ToWorker) => {
  if (message.kind === 'go') return send(await run(message));
  await open(message);
  send({ kind: 'ready' });
});
// The bench is gone.
process.on('disconnect', () => process.exit(1));
