/** A lease that is held while Sentinel fails over. */
import { Redis } from 'ioredis';
import { afterAll, expect, it } from 'vitest';
import { openSentinels } from '../../lab/servers/sentinels.ts';
import type { Lock } from '../../src/locks/lock.ts';
import * as redis from '../../src/locks/redis.ts';
import { held, PATIENCE_MS, watchLoss } from '../contract/lock-steps.ts';
import { asTheService, byIoredis, byNodeRedis, type Connect, reached } from '../support/caller-clients.ts';
import { eventually } from '../support/client.ts';
import { waitingFor } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

const sentinels = opened(() => openSentinels({ failoverTimeoutMs: 15_000 }));
const clients: Awaited<ReturnType<Connect>>[] = [];
afterAll(() => Promise.all(clients.map(({ close }) => close())));

/** The locks of two processes. */
async function twoOf(
  create: typeof redis.create | ReturnType<typeof waitingFor>,
  connect: Connect,
): Promise<[Lock, Lock]> {
  const open = async () => {
    const client = await connect(sentinels.url);
    clients.push(client);
    return reached(() => create({ redis: client.redis, onError: () => {} }));
  };
  return [await open(), await open()];
}

it.each([
  ['ioredis', byIoredis],
  ['node-redis', byNodeRedis],
  ['the service', asTheService],
] as const)(
  'redis-wait with a client of %s keeps it, and grants none that a failover would lose',
  async (_, connect) => {
    const [a, b] = await twoOf(waitingFor(1), connect);
    const ttlMs = 60_000; // longer than a failover on a slow machine
    const lease = await held(a, 'kept', { ttlMs });
    const old = await sentinels.primary();
    await old.kill();
    await sentinels.untilPromoted(old);
    const promotedMs = performance.now();
    const promoted = new Redis((await sentinels.primary()).port);
    await sentinels.restart(old); // the next renewal needs a replica
    await eventually(
      async () => {
        expect(lease.signal.aborted).toBe(false);
        expect((await b.acquire('kept', { ttlMs, waitMs: 0 })).kind).not.toBe('held');
        return promoted.pttl('stampede:{kept}:lock');
      },
      (leftMs) => leftMs > ttlMs - (performance.now() - promotedMs) + 1_000, // renewed since
    );
    promoted.disconnect();
    await lease.release();
    await (await held(b, 'kept', { waitMs: PATIENCE_MS / 2 })).release(); // less than the TTL
    await Promise.all([a.close(), b.close()]);
  },
);

it('redis loses one that the replica lacks, and signals the loss before the lease ends', async () => {
  const [a, b] = await twoOf(redis.create, asTheService);
  await sentinels.cutReplication();
  const lease = await held(a, 'lost', { ttlMs: 24_000 });
  const loss = watchLoss(lease);
  const { deadlineMs } = lease;
  const old = await sentinels.primary();
  await old.kill();
  await expect.poll(() => b.acquire('lost', { ttlMs: 60_000, waitMs: 0 })).toMatchObject({ kind: 'held' });
  await expect.poll(() => loss.lostMs).toBeLessThan(Number.POSITIVE_INFINITY);
  expect(lease.deadlineMs).toBeLessThanOrEqual(deadlineMs);
  await Promise.all([a.close(), b.close()]);
});
