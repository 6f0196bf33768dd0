/**
 * Segment borrowing against a model, on a real Redis: whatever users buy, whatever is released, added or cut,
 * the segments together sell exactly what one counter would.
 */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type ClaimedReservation, shortage } from '../../src/domain/outcome.ts';
import { createRedisLock } from '../../src/locks/redis.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { type RedisEpochs, redisEpochs } from '../../src/store/redis/epochs.ts';
import { redisStrategy } from '../../src/strategies/kit/redis-strategy.ts';
import { create as createLua } from '../../src/strategies/redis/lua.ts';
import { create, description } from '../../src/strategies/redis/segmented-lock.ts';
import type { RedisStrategyContext } from '../../src/strategies/strategy.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const redis = opened(() => openRedis(stores.redisUrl, () => {}));
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));

const contextOf = (epochs: RedisEpochs): RedisStrategyContext => ({
  postgres,
  redis,
  epochs,
  sales: saleTable(postgres),
  orders: orderTable(postgres),
  lock: createRedisLock({ redis: redis.locks }),
  segments: 2,
  lockTtlMs: 5_000,
  lockWaitMs: 2_000,
  confirm: 'durable',
  paymentWindowS: 900,
  onBatch: () => {},
  onError: () => {},
});

/** Units of an order, at most. */
const MOST = 5;

const action = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('buy' as const),
      user: fc.nat(30),
      quantity: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: MOST + 1 })),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('giveBack' as const), which: fc.nat() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('restock' as const), units: fc.integer({ min: -6, max: 6 }) }),
  },
);

it('sells with segments what a single counter would sell', async () => {
  const epochs = redisEpochs(redis, postgres);
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 12 }),
      fc.integer({ min: 1, max: 7 }),
      fc.array(action, { maxLength: 40 }),
      async (stock, segments, actions) => {
        const sales = saleTable(postgres);
        const strategy = create({ ...contextOf(epochs), segments });
        const sale = await sales.create({
          ...{ name: 'm', stock, priceCents: 1, startsAt: null, endsAt: null },
          maxPerOrder: MOST,
        });
        await strategy.load?.(sale);
        // The model: free units, and who holds one.
        let free = stock;
        const held = new Map<string, ClaimedReservation>();
        for (const step of actions) {
          if (step.kind === 'buy') {
            const userId = `u${step.user}`;
            const { quantity } = step;
            const attempt = { saleId: sale.id, userId, orderId: crypto.randomUUID(), quantity };
            const outcome = await strategy.decide(attempt);
            if (held.has(userId)) expect(outcome.kind).toBe('held');
            else if (quantity > MOST) expect(outcome).toEqual({ kind: 'over-limit', maxPerOrder: MOST });
            else if (free < quantity) expect(outcome).toEqual(shortage(free, quantity));
            else expect(outcome).toMatchObject({ kind: 'reserved', reservation: { quantity } });
            if (outcome.kind === 'reserved') {
              held.set(userId, outcome.reservation);
              free -= quantity;
            }
          } else if (step.kind === 'giveBack') {
            const [userId, reservation] = [...held][step.which % Math.max(held.size, 1)] ?? [];
            if (userId === undefined || reservation === undefined) continue;
            await strategy.mirror.release(reservation);
            await strategy.mirror.release(reservation); // the second time does nothing
            held.delete(userId);
            free += reservation.quantity;
          } else if (step.units !== 0) {
            const result = await strategy.restock(sale.id, step.units);
            const possible = free + step.units >= 0;
            expect(result === 'below-sold').toBe(!possible);
            if (possible) free += step.units;
          }
          const units = [...held.values()].reduce((sum, { quantity }) => sum + quantity, 0);
          const seen = { remaining: free, pending: units, held: units };
          expect(await strategy.mirror.snapshot(sale.id)).toMatchObject(seen);
        }
        // Nothing is stranded: strangers take every unit that is left, and not one more.
        for (let i = 0; i <= free; i++) {
          const outcome = await strategy.decide({
            saleId: sale.id,
            userId: `last${i}`,
            orderId: crypto.randomUUID(),
            quantity: 1,
          });
          expect(outcome.kind).toBe(i < free ? 'reserved' : 'sold-out');
        }
      },
    ),
    { numRuns: 60 },
  );
});

it('takes no refusal from a Redis that was replaced meanwhile', async () => {
  const context = contextOf(redisEpochs(redis, postgres));
  const decided: number[] = [];
  const strategy = redisStrategy(context, description, 2, async (_, { keys, epoch }) => {
    // As if the connection were lost between two commands, and the next one reached a Redis with an old snapshot.
    if (decided.push(epoch) === 1) redis.serverOf(keys.state).lost();
    return decided.length === 1 ? { kind: 'sold-out' } : { kind: 'not-open', reason: 'ended' };
  });
  const sale = await context.sales.create({
    name: 's',
    stock: 1,
    priceCents: 1,
    startsAt: null,
    endsAt: null,
  });
  const attempt = { saleId: sale.id, userId: 'u', orderId: crypto.randomUUID(), quantity: 1 };
  expect(await strategy.decide(attempt)).toEqual({ kind: 'not-open', reason: 'ended' });
  expect(decided).toHaveLength(2);
});

it.each(['current', 'over'])('what a retry finds in another epoch, which is %s', async (state) => {
  const epochs = redisEpochs(redis, postgres);
  const context = contextOf(epochs);
  const sale = await context.sales.create({
    ...{ name: 's', stock: 1, priceCents: 1, startsAt: null, endsAt: null },
  });
  const decided: number[] = [];
  const strategy = redisStrategy(context, description, 2, async (_, { keys, epoch }) => {
    if (decided.push(epoch) > 1) return { kind: 'sold-out' };
    const next = await epochs.renew(keys.state, epoch); // as if another Redis answered from now on
    const loadedIn = state === 'current' ? next : epoch;
    await stores.sql.query('UPDATE sales SET mirror_epoch = $2 WHERE id = $1', [sale.id, loadedIn]);
    return { kind: 'unanswered', reason: 'no-reply', lateUntilMs: 0 };
  });
  const attempt = { saleId: sale.id, userId: 'u', orderId: crypto.randomUUID(), quantity: 1 };
  const unknown = { kind: 'unknown', reason: 'no-reply, then redis-was-replaced' };
  expect(await strategy.decide(attempt)).toMatchObject(state === 'over' ? unknown : { kind: 'sold-out' });
  expect(decided[1]).not.toBe(decided[0]);
});

it('an attempt of a batch is decided in the epoch under which it is committed', async () => {
  const epochs = redisEpochs(redis, postgres);
  const context = contextOf(epochs);
  const sale = await context.sales.create({
    name: 's',
    stock: 9,
    priceCents: 1,
    startsAt: null,
    endsAt: null,
  });
  let isKnown = false;
  const known: RedisEpochs['known'] = (key) => (isKnown ? epochs.known(key) : 7);
  const strategy = createLua(contextOf({ ...epochs, known }));
  await strategy.load?.(sale);
  const decide = (userId: string) =>
    strategy.decide({ saleId: sale.id, userId, orderId: crypto.randomUUID(), quantity: 1 });
  const before = decide('before'); // in the same batch, before the process knows the epoch of the sale
  isKnown = true;
  const after = decide('after');
  const epoch = await strategy.mirror.epoch(sale.id);
  for (const decision of [await before, await after])
    expect(decision).toMatchObject({ kind: 'reserved', reservation: { epoch } });
  strategy.knownSoldOut?.close();
});
