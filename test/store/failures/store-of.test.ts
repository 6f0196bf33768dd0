/** The label `store` of the metric of failed operations, for errors of real servers. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { FailureError } from '../../../src/domain/failure.ts';
import { freePort } from '../../../src/local/server-process.ts';
import { storeOf } from '../../../src/store/failures/any-store.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';
import { opened } from '../../support/opened.ts';
import { openTestStores } from '../../support/stores.ts';

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
let redis: Redis;
beforeAll(async () => {
  redis = new Redis(stores.redisUrl, { enableOfflineQueue: false, lazyConnect: true });
  redis.on('error', () => {});
  await redis.connect();
});
afterAll(() => redis?.disconnect());

const errorOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => expect.unreachable(),
    (error) => error,
  );

it('names Postgres for errors of pg and Prisma, defects included', async () => {
  const errors = [
    await errorOf(postgres.pool.query('SELECT 1 / 0')),
    await errorOf(postgres.pool.query('SELECT nothing')),
    await errorOf(postgres.prisma.$queryRawUnsafe('SELECT nothing')),
    new Error('Connection terminated unexpectedly'),
  ];
  expect(errors.map((error) => storeOf(error, 'commit-orders'))).toEqual(errors.map(() => 'postgres'));
});

it('names Redis for replies and for a lost connection', async () => {
  await redis.set('text', 'x');
  const wrongType = await errorOf(redis.incr('text'));
  redis.disconnect();
  const closed = await errorOf(redis.get('text'));
  const late = new Error('Command timed out');
  expect([wrongType, closed, late].map((error) => storeOf(error, 'load-sale'))).toEqual(
    Array(3).fill('redis'),
  );
});

it('takes the store of a network error from the operation', async () => {
  const port = await freePort();
  const refused = Object.assign(new Error(`connect ECONNREFUSED 127.0.0.1:${port}`), {
    code: 'ECONNREFUSED',
  });
  expect(storeOf(refused, 'redis-connection')).toBe('redis');
  expect(storeOf(refused, 'postgres-connection')).toBe('postgres');
});

it('names the store of a cause, and none for a defect of the service', () => {
  expect(storeOf(new Error('failed', { cause: new Error('Command timed out') }))).toBe('redis');
  expect([storeOf(new TypeError('x is undefined')), storeOf('text')]).toEqual(['none', 'none']);
});

it('names the store of a failure that the service knows itself', () => {
  const lost = (store: FailureError['store']) => new FailureError(store, 'not-sent', 'lost', 'not connected');
  expect(storeOf(lost('redis'), 'load-sale')).toBe('redis');
  expect(storeOf(lost('postgres'), 'load-sale')).toBe('postgres');
});
