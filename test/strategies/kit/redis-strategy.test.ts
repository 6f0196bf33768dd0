/**
 * Attempts around a change of the Redis that decides them, and cuts: one takes unreserved units only, even from a sale that Redis must load
 * first. Both stores are real.
 */
import { expect, it } from 'vitest';
import { type LinkMode, TcpProxy } from '../../../lab/proxy.ts';
import { createRedisLock } from '../../../src/locks/redis.ts';
import { storeFailure } from '../../../src/store/failures/any-store.ts';
import { orderTable } from '../../../src/store/postgres/orders.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';
import { type SaleTable, saleTable } from '../../../src/store/postgres/sales.ts';
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

/** A sale of 10 units, of which 4 are reserved and not committed. */
async function openSale(sales: SaleTable = saleTable(postgres), ofStrategy = postgres) {
  const context = contextOf(redisEpochs(redis, postgres));
  const strategy = createLua({ ...context, postgres: ofStrategy, sales, confirm: 'accepted' });
  const sale = await sales.create({ name: 'm', stock: 10, priceCents: 1, startsAt: null, endsAt: null });
  await strategy.load?.(sale);
  const reserve = async (userId: string) =>
    (await strategy.decide({ saleId: sale.id, userId, orderId: crypto.randomUUID(), quantity: 1 })).kind;
  for (const user of ['ann', 'bob', 'cyd', 'dan']) expect(await reserve(user)).toBe('reserved');
  return { strategy, saleId: sale.id, reserve };
}

it.each(['was opened in another epoch', 'is being opened in another epoch'])(
  'cuts a sale that %s',
  async (which) => {
    const { strategy, saleId } = await openSale();
    const state = `stampede:{sale:${saleId}}:state`;
    if (which === 'was opened in another epoch') await redis.redis.hset(state, 'epoch', 7);
    await stores.sql.query('UPDATE sales SET mirror_epoch = 7 WHERE id = $1', [saleId]);
    expect(await strategy.restock(saleId, -7)).toBe('below-sold');
    expect((await strategy.mirror.snapshot(saleId))?.remaining).toBe(6);
    expect(await strategy.restock(saleId, -6)).toMatchObject({ stock: 4, remaining: 4 }); // all of them reserved
    expect((await strategy.mirror.snapshot(saleId))?.remaining).toBe(0);
    const loadedIn = (await orderTable(postgres).loadedIn([saleId])).get(saleId);
    expect(await redis.redis.hget(state, 'epoch')).toBe(String(loadedIn));
  },
);

it('is cut in Postgres before a load that begins meanwhile reads it', async () => {
  const sales = saleTable(postgres);
  let loading: Promise<unknown> | undefined;
  const load = () => strategy.mirror.load({ id: saleId });
  const waits = async () => {
    const { rowCount } = await stores.sql.query(
      `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE sales SET mirror_epoch%'`,
    );
    return rowCount !== 0 || (await strategy.mirror.snapshot(saleId)) !== null;
  };
  const restock: SaleTable['restock'] = async (...given) => {
    await redis.redis.del(`stampede:{sale:${saleId}}:state`); // Redis fails over between the two halves
    loading = load();
    await expect.poll(waits).toBe(true);
    return sales.restock(...given);
  };
  const { strategy, saleId } = await openSale({ ...sales, restock });
  await stores.sql.query('UPDATE sales SET mirror_epoch = NULL WHERE id = $1', [saleId]);
  expect(await strategy.restock(saleId, -5)).toMatchObject({ stock: 5 });
  await loading!.catch(load); // it waited for longer than a lock may take
  expect((await strategy.mirror.snapshot(saleId))?.remaining).toBe(1);
});

it.each<[string, LinkMode, 'begin' | 'statement' | 'commit', string, number]>([
  ['cannot be reached', 'refuse', 'begin', 'not-sent', 6],
  ['does not answer the change', 'lose-replies', 'statement', 'unknown', 6],
  ['does not answer the commit', 'lose-replies', 'commit', 'unknown', 1],
])('gives back what it cut when Postgres %s, if nothing was written', async (_, how, from, kind, left) => {
  await using link = await TcpProxy.open({ port: Number(new URL(stores.databaseUrl).port) });
  const behind = openPostgres(link.through(stores.databaseUrl), () => {});
  try {
    const sales = saleTable(behind);
    const restock: SaleTable['restock'] = async (...given) => {
      if (from === 'statement') link.set(how);
      const sale = await sales.restock(...given);
      link.set(how);
      return sale;
    };
    const { strategy, saleId } = await openSale({ ...saleTable(postgres), restock }, behind);
    if (from === 'begin') link.set(how);
    const failed = await strategy.restock(saleId, -5).then(
      () => null,
      (error) => storeFailure(error),
    );
    expect(failed?.kind).toBe(kind);
    link.set('pass');
    expect((await strategy.mirror.snapshot(saleId))?.remaining).toBe(left);
  } finally {
    link.set('pass');
    await behind.close();
  }
});
