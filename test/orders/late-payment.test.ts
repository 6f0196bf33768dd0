/** What a payment that comes too late takes of a sale that Redis decides on. Both stores are real. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { ClaimedReservation, Reservation } from '../../src/domain/outcome.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createOrderCommitter } from '../../src/orders/order-committer.ts';
import { createOutboxRelay } from '../../src/orders/outbox-relay.ts';
import { createPayments } from '../../src/orders/payments.ts';
import { type OrderTable, orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import {
  claimEndMs,
  createSaleMirror,
  type SaleMirror,
  withFirstClaim,
} from '../../src/store/redis/sale-mirror.ts';
import { testHealth } from '../support/background.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

const onError = vi.fn();
const instruments = createInstruments();

let stores: TestStores;
let postgres: PostgresStore;
let redis: RedisStore;
let orders: OrderTable;
let mirror: SaleMirror;
beforeAll(async () => {
  stores = await openTestStores();
  postgres = openPostgres(stores.databaseUrl, () => {});
  redis = await openRedis(stores.redisUrl, () => {});
  orders = orderTable(postgres);
  mirror = createSaleMirror(redis, redisEpochs(redis, postgres), orders, 0);
});
afterAll(async () => {
  await redis?.close();
  await postgres?.close();
  await stores?.[Symbol.asyncDispose]();
});

let saleId: number;
let ann: ClaimedReservation;
beforeEach(() => onError.mockClear());

/** A sale of so many units, of which ann had one until just now; Redis has not heard that it is free. */
async function openSale(stock: number): Promise<void> {
  const sale = await saleTable(postgres).create({
    name: 'a',
    stock,
    priceCents: 250,
    startsAt: null,
    endsAt: null,
  });
  saleId = sale.id;
  await mirror.load(sale);
  ann = await reserve('ann');
  await commit(ann);
  await stores.sql.query(
    `WITH closed AS (
       UPDATE orders SET status = 'expired', closed_at = now() WHERE id = $1 RETURNING id, sale_id, user_id
     ), counted AS (UPDATE sales SET sold = sold - 1 FROM closed WHERE sales.id = sale_id)
     INSERT INTO unit_moves (order_id, sale_id, user_id, direction) SELECT id, sale_id, user_id, 'back' FROM closed`,
    [ann.orderId],
  );
}

async function reserve(userId: string): Promise<ClaimedReservation> {
  const orderId = randomUUID();
  const [word, , reservedAt] = await redis.scripts.reserve(
    mirror.keys(saleId),
    userId,
    orderId,
    await mirror.epoch(),
  );
  expect(word).toBe('reserved');
  return withFirstClaim({ saleId, userId, orderId, reservedAt: reservedAt! }, claimEndMs());
}

async function commit(reservation: ClaimedReservation): Promise<string> {
  const writer = createOrderCommitter({
    postgres,
    orders,
    mirror,
    instruments,
    paymentWindowS: 900,
    onError,
  });
  const { kind } = await writer.commit(reservation);
  if (kind === 'committed') await mirror.acknowledge([reservation]);
  return kind;
}

const moves = () => createOutboxRelay({ postgres, mirror, background: testHealth(onError), onError });

async function pay(reservation: Reservation): Promise<string | undefined> {
  const payments = createPayments({ postgres, orders, moves: moves(), confirm: 'durable', instruments });
  const given = { notificationId: randomUUID(), orderId: reservation.orderId, amountCents: 250 };
  const result = await payments.notify(given);
  return result.kind === 'done' ? result.order.status : result.kind;
}

async function expectAgreement(free: number, sold: number): Promise<void> {
  while ((await moves().tell()) > 0);
  expect(await mirror.snapshot(saleId)).toMatchObject({ remaining: free, pending: 0, buyers: sold });
  expect(await saleTable(postgres).get(saleId)).toMatchObject({ remaining: free, sold });
  expect(onError).not.toHaveBeenCalled();
}

it('takes its own unit again', async () => {
  await openSale(1);
  expect(await pay(ann)).toBe('paid');
  await expectAgreement(0, 1);
});

it('takes none that is reserved, though Postgres has it', async () => {
  await openSale(2);
  const bob = await reserve('bob');
  await moves().tell();
  const cyd = await reserve('cyd');
  expect(await pay(ann)).toBe('refund-due');
  expect([await commit(bob), await commit(cyd)]).toEqual(['committed', 'committed']);
  await expectAgreement(0, 2);
});

it('puts the unit back when its customer has bought again', async () => {
  await openSale(3);
  await moves().tell();
  const again = await reserve('ann');
  expect(await commit(again)).toBe('committed');
  expect(await pay(ann)).toBe('refund-due');
  await expectAgreement(2, 1);
});

it('gives the unit of the customer back whose other attempt is under way', async () => {
  await openSale(3);
  await moves().tell();
  const again = await reserve('ann');
  expect(await pay(ann)).toBe('paid');
  expect(await commit(again)).toBe('existing');
  await mirror.release(again, { ownerOrderId: ann.orderId });
  await expectAgreement(2, 1);
});

it('loads a sale that Redis does not have', async () => {
  await openSale(2);
  await redis.redis.flushdb();
  expect(await pay(ann)).toBe('paid');
  await expectAgreement(1, 1);
});
