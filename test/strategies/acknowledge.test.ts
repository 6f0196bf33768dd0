/** lua/sale/acknowledge.lua and lua/sale/restore-committed.lua acknowledge reservations of several sales at once. Redis is real. */
import { beforeEach, expect, it } from 'vitest';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror, type SaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const redis = opened(() => openRedis(stores.redisUrl, () => {}));

let mirror: SaleMirror;
/** Of the server, and so of every sale. */
let epoch: number;
beforeEach(async () => {
  await redis.redis.flushdb();
  mirror = createSaleMirror(redis, redisEpochs(redis, postgres), orderTable(postgres), 0);
  epoch = await mirror.epoch(1);
});

const keysOf = (sale: number) => mirror.keys(sale);

async function open(sale: number, loadedMs: number): Promise<void> {
  const state = { remaining: 9, startsMs: '', endsMs: '', epoch, loadedMs, generation: 0 };
  await redis.redis.hset(keysOf(sale).state, state);
}

/** Reserves for ann and bob in each sale. @returns what to acknowledge, in this order */
async function reserve(sales: readonly number[]) {
  const attempts = sales.map((saleId) => ({
    keys: keysOf(saleId),
    members: ['ann', 'bob'].map((userId) => {
      return { saleId, userId, orderId: `order-of-${userId}-${saleId}`, quantity: 1 };
    }),
  }));
  const replies = await redis.scripts.reserveMany(attempts, epoch);
  if ('kind' in replies) throw new Error(replies.reason);
  const members = attempts.flatMap((attempt) => attempt.members);
  return members.map((member, i) => {
    const [word, orderId, reservedAt] = replies[i]!;
    expect([word, orderId]).toEqual(['reserved', member.orderId]);
    return { ...member, reservedAt: reservedAt! };
  });
}

const pending = (sale: number) => redis.redis.zcard(keysOf(sale).reservations);
const buyers = (sale: number) => redis.redis.hgetall(keysOf(sale).buyers);

it('removes those of all sales, and keeps others, and those of a sale that is not loaded: its next load counts them', async () => {
  for (const sale of [1, 2, 3, 4, 5]) await open(sale, 0);
  const committed = await reserve([1, 2, 3, 4, 5]);
  await redis.redis.del(keysOf(4).state);
  await redis.redis.hset(keysOf(5).state, 'epoch', epoch + 1);
  const isSettled = ({ saleId, userId }: { saleId: number; userId: string }) =>
    saleId !== 2 && (saleId !== 3 || userId === 'bob');
  await mirror.acknowledge(committed.filter(isSettled));
  expect(await Promise.all([1, 2, 3, 4, 5].map(pending))).toEqual([0, 2, 1, 2, 2]);
  const left = await redis.redis.zrange(keysOf(3).reservations, '0', '-1');
  expect(left.map((entry) => entry.split(' ')[0])).toEqual(['ann']);
  expect(Object.keys(await buyers(1)).sort()).toEqual(['ann', 'bob']);
});

it('restores what a sale that was loaded since, or is not loaded, lacks of committed reservations', async () => {
  for (const sale of [1, 2, 3]) await open(sale, 0);
  const committed = await reserve([1, 2, 3]);
  for (const sale of [2, 3]) await redis.redis.del(...Object.values(keysOf(sale)));
  await open(2, Date.now() + 60_000);
  await mirror.acknowledge(committed);
  expect(await pending(1)).toBe(0);
  expect(await buyers(2)).toEqual({ ann: 'order-of-ann-2 0', bob: 'order-of-bob-2 0' });
  expect(await redis.redis.hmget(keysOf(2).state, 'remaining', 'generation')).toEqual(['7', '2']);
  // The next load counts them; the reaper removes them.
  expect([await buyers(3), await pending(3)]).toEqual([{}, 2]);
});

it('restores no order whose units are not free: it may have been closed before the load, and its release would return them', async () => {
  await open(1, 0);
  const committed = await reserve([1]);
  await redis.redis.del(...Object.values(keysOf(1)));
  await open(1, Date.now() + 60_000);
  await redis.redis.hset(keysOf(1).state, 'remaining', 1);
  expect(await mirror.acknowledge(committed)).toEqual(['order-of-bob-1']);
  expect(await buyers(1)).toEqual({ ann: 'order-of-ann-1 0' });
  expect(await redis.redis.hget(keysOf(1).state, 'remaining')).toBe('0');
});
