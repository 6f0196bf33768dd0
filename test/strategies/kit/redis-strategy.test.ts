/** Attempts around a change of the Redis that decides them. Both stores are real. */
import { expect, it } from 'vitest';
import { createRedisLock } from '../../../src/locks/redis.ts';
import { orderTable } from '../../../src/store/postgres/orders.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';
import { saleTable } from '../../../src/store/postgres/sales.ts';
import { openRedis } from '../../../src/store/redis/connection.ts';
import { type RedisEpochs, redisEpochs } from '../../../src/store/redis/epochs.ts';
import { redisStrategy } from '../../../src/strategies/kit/redis-strategy.ts';
import { create as createLua } from '../../../src/strategies/redis/lua.ts';
import { description } from '../../../src/strategies/redis/segmented-lock.ts';
import type { RedisStrategyContext } from '../../../src/strategies/strategy.ts';
import { attemptOf } from '../../support/attempts.ts';
import { opened } from '../../support/opened.ts';
import { openTestStores } from '../../support/stores.ts';

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

const createSale = (stock: number) =>
  saleTable(postgres).create({ name: 's', stock, priceCents: 1, startsAt: null, endsAt: null });

it('takes no refusal from a Redis that was replaced meanwhile', async () => {
  const context = contextOf(redisEpochs(redis, postgres));
  const decided: number[] = [];
  const strategy = redisStrategy(context, description, 2, async (_, { keys, epoch }) => {
    // As if the connection were lost between two commands, and the next one reached a Redis with an old snapshot.
    if (decided.push(epoch) === 1) redis.serverOf(keys.state).lost();
    return decided.length === 1 ? { kind: 'sold-out' } : { kind: 'not-open', reason: 'ended' };
  });
  const sale = await createSale(1);
  const attempt = attemptOf(sale.id, 'u');
  expect(await strategy.decide(attempt)).toEqual({ kind: 'not-open', reason: 'ended' });
  expect(decided).toHaveLength(2);
});

it.each(['current', 'over'])('what a retry finds in another epoch, which is %s', async (state) => {
  const epochs = redisEpochs(redis, postgres);
  const context = contextOf(epochs);
  const sale = await createSale(1);
  const decided: number[] = [];
  const strategy = redisStrategy(context, description, 2, async (_, { keys, epoch }) => {
    if (decided.push(epoch) > 1) return { kind: 'sold-out' };
    const next = await epochs.renew(keys.state, epoch); // as if another Redis answered from now on
    const loadedIn = state === 'current' ? next : epoch;
    await stores.sql.query('UPDATE sales SET mirror_epoch = $2 WHERE id = $1', [sale.id, loadedIn]);
    return { kind: 'unanswered', reason: 'no-reply', lateUntilMs: 0 };
  });
  const attempt = attemptOf(sale.id, 'u');
  const unknown = { kind: 'unknown', reason: 'no-reply, then redis-was-replaced' };
  expect(await strategy.decide(attempt)).toMatchObject(state === 'over' ? unknown : { kind: 'sold-out' });
  expect(decided[1]).not.toBe(decided[0]);
});

it('an attempt of a batch is decided in the epoch under which it is committed', async () => {
  const epochs = redisEpochs(redis, postgres);
  const sale = await createSale(9);
  let isKnown = false;
  const known: RedisEpochs['known'] = (key) => (isKnown ? epochs.known(key) : 7);
  const strategy = createLua(contextOf({ ...epochs, known }));
  await strategy.load?.(sale);
  const decide = (userId: string) => strategy.decide(attemptOf(sale.id, userId));
  const before = decide('before'); // in the same batch, before the process knows the epoch of the sale
  isKnown = true;
  const after = decide('after');
  const epoch = await strategy.mirror.epoch(sale.id);
  for (const decision of [await before, await after])
    expect(decision).toMatchObject({ kind: 'reserved', reservation: { epoch } });
  strategy.knownSoldOut?.close();
});
