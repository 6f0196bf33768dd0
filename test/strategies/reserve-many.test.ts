/** lua/sale/reserve-many.lua decides what lua/sale/reserve.lua decides, however attempts are batched: both run in a real Redis. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { isUnanswered } from '../../src/store/late-requests.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import type { ReserveReply, SaleAttempts } from '../../src/store/redis/sale-scripts.ts';
import { opened } from '../support/opened.ts';
import { saleKeys } from '../support/sale-keys.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const redis = opened(() => openRedis(stores.redisUrl, () => {}));

const EPOCH = 3;
/** States of a sale in Redis: open, of another epoch, before and after its window, paused, absent. */
const sales = ['open', 'open', 'old', 'early', 'late', 'paused', 'absent'] as const;
/** Units of an order, at most. */
const MOST = 4;

const keysOf = (world: string, sale: number) => saleKeys(`${world}:${sale}`);

async function prepare(world: string, stock: number): Promise<void> {
  const now = Date.now();
  for (const [sale, kind] of sales.entries()) {
    if (kind === 'absent') continue;
    await redis.redis.hset(keysOf(world, sale).state, {
      remaining: stock,
      maxPerOrder: MOST,
      paused: kind === 'paused' ? '1' : '',
      epoch: kind === 'old' ? EPOCH - 1 : EPOCH,
      startsMs: kind === 'early' ? now + 60_000 : sale === 1 ? now - 60_000 : '',
      ...(sale === 1 && { offer: '@500/60' }), // the others were loaded by an earlier version
      endsMs: kind === 'late' ? now - 1 : sale === 1 ? now + 60_000 : '',
    });
    await redis.redis.hset(keysOf(world, sale).buyers, 'user-0', 'order-before 7');
  }
}

/** What must agree between two replies: everything but the time of the reservation. */
const comparable = ([word, second]: ReserveReply) => [word, second || undefined];

/** The ids of orders have the length of a UUID: see lua/sale/reserve-many.lua. */
const attemptOf = ({ sale, user, order, quantity }: Given) => ({
  ...{ saleId: sale, userId: `user-${user}`, quantity },
  orderId: `01900000-0000-7000-8000-${String(order).padStart(12, '0')}`,
});

async function stateOf(world: string, sale: number) {
  const keys = keysOf(world, sale);
  const entries = await redis.redis.zrange(keys.reservations, '0', '-1', 'WITHSCORES');
  const buyers = await redis.redis.hgetall(keys.buyers);
  const written = Object.entries(buyers)
    .filter(([, value]) => value !== 'order-before 7')
    .flatMap(([user, value]) => [`${user} ${value}`, String(Number.parseInt(value.split(' ')[1]!, 10))]);
  expect(new Set(entries)).toEqual(new Set(written));
  return {
    remaining: await redis.redis.hget(keys.state, 'remaining'),
    extra: await redis.redis.hget(keys.state, 'extraUnits'),
    terms: entries
      .filter((_, i) => i % 2 === 0)
      .map((entry) => entry.split(' ')[2]!.replace(/^\d+/, ''))
      .sort(),
    buyers: Object.fromEntries(Object.entries(buyers).map(([user, value]) => [user, value.split(' ')[0]])),
  };
}

const attempts = fc.array(
  fc.record({
    sale: fc.nat(sales.length - 1),
    user: fc.nat(6),
    order: fc.nat(12),
    quantity: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: MOST + 1 })),
    cut: fc.boolean(),
  }),
  { minLength: 1, maxLength: 40 },
);

type Given = Omit<(typeof attempts extends fc.Arbitrary<infer A> ? A : never)[number], 'cut'>;

it('decides the same for the same attempts in the same order', async () => {
  let world = 0;
  await fc.assert(
    fc.asyncProperty(fc.nat(6), attempts, async (stock, given) => {
      world += 1;
      const [singly, together] = [`${world}-a`, `${world}-b`];
      await prepare(singly, stock);
      await prepare(together, stock);
      let batch: typeof given = [];
      const flush = async () => {
        const groups = new Map<number, typeof given>();
        for (const one of batch) groups.set(one.sale, [...(groups.get(one.sale) ?? []), one]);
        batch = [];
        const inOrder = [...groups.values()].flat();
        const asked: SaleAttempts[] = [...groups].map(([sale, members]) => ({
          keys: keysOf(together, sale),
          members: members.map(attemptOf),
        }));
        const replies = await redis.scripts.reserveMany(asked, EPOCH);
        if (isUnanswered(replies)) throw new Error(replies.reason);
        for (const [i, one] of inOrder.entries()) {
          const alone = await redis.scripts.reserve(keysOf(singly, one.sale), attemptOf(one), EPOCH);
          if (isUnanswered(alone)) throw new Error(alone.reason);
          expect(comparable(replies[i]!)).toEqual(comparable(alone));
        }
      };
      for (const one of given) {
        batch.push(one);
        if (one.cut) await flush();
      }
      if (batch.length > 0) await flush();
      for (const sale of sales.keys())
        expect(await stateOf(together, sale)).toEqual(await stateOf(singly, sale));
    }),
    { numRuns: 200 },
  );
});
