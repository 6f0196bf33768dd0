/** Late payments for orders of a sale that Redis decides on. Both stores are real. */
import { randomUUID } from 'node:crypto';
import { beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { ClaimedReservation, Reservation } from '../../src/domain/outcome.ts';
import { createInstruments } from '../../src/metrics/instruments.ts';
import { createOrderCommitter } from '../../src/orders/order-committer.ts';
import { createPayments } from '../../src/orders/payments.ts';
import { uncommittedOrders } from '../../src/orders/uncommitted-orders.ts';
import { createOutboxRelay } from '../../src/store/outbox-relay.ts';
import { type OrderTable, orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror, type SaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { attemptOf, reserveFor } from '../support/attempts.ts';
import { testHealth } from '../support/background.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const onError = vi.fn();
const instruments = createInstruments();

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
const redis = opened(() => openRedis(stores.redisUrl, () => {}));
let orders: OrderTable;
let mirror: SaleMirror;
beforeAll(() => {
  orders = orderTable(postgres);
  mirror = createSaleMirror(redis, redisEpochs(redis, postgres), orders, 0);
});

let saleId: number;
let ann: ClaimedReservation;
beforeEach(() => onError.mockClear());

/** A sale in which ann's order has just expired; the release is in the outbox. */
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
     INSERT INTO mirror_outbox (order_id, sale_id, user_id, change) SELECT id, sale_id, user_id, 'release' FROM closed`,
    [ann.orderId],
  );
}

const reserve = (userId: string) => reserveFor(redis, mirror, attemptOf(saleId, userId));

async function commit(reservation: ClaimedReservation): Promise<string> {
  const committer = createOrderCommitter({
    postgres,
    orders,
    mirror,
    instruments,
    paymentWindowS: 900,
    onError,
  });
  const { kind } = await committer.commit(reservation);
  if (kind === 'committed') await mirror.acknowledge([reservation]);
  return kind;
}

const outbox = () => createOutboxRelay(postgres, mirror, testHealth(onError).loop('mirror-outbox'));

/** @param through what the payment uses instead of the shared connections */
async function pay(
  { orderId }: Reservation,
  notificationId: string = randomUUID(),
  through: PostgresStore = postgres,
): Promise<string | undefined> {
  const sales = saleTable(postgres);
  const payments = createPayments({
    postgres: through,
    orders,
    sales,
    uncommitted: uncommittedOrders(mirror, orders),
    strategy: { locksFirst: 'customer' },
    outbox: outbox(),
    confirm: 'durable',
    instruments,
    onError,
    warn: () => {},
  });
  const result = await payments.notify({ notificationId, orderId, amountCents: 250 });
  return result.kind === 'done' ? result.order.status : result.kind;
}

async function expectAgreement(free: number, sold: number): Promise<void> {
  while ((await outbox().publish()) > 0);
  expect(await mirror.snapshot(saleId)).toMatchObject({ remaining: free, pending: 0, held: sold });
  expect(await saleTable(postgres).get(saleId)).toMatchObject({ remaining: free, sold });
  expect(onError).not.toHaveBeenCalled();
}

it.each([false, true])(
  'revives an order with the unit that it released (published: %s)',
  async (isPublished) => {
    await openSale(2);
    if (isPublished) {
      const { rows } = await stores.sql.query('SELECT * FROM mirror_outbox WHERE sale_id = $1', [saleId]);
      expect(await mirror.applyChange({ ...rows[0], change: 'release', ...ann })).toBe('applied'); // and again later
    }
    expect(await pay(ann)).toBe('paid');
    await expectAgreement(1, 1);
  },
);

it('takes no reserved unit, even if Postgres counts it as free', async () => {
  await openSale(2);
  const bob = await reserve('bob');
  await outbox().publish();
  const cyd = await reserve('cyd');
  expect(await pay(ann)).toBe('refund-due');
  expect([await commit(bob), await commit(cyd)]).toEqual(['committed', 'committed']);
  await expectAgreement(0, 2);
});

it.each(['committed', 'reserved'])('takes nothing when the customer has %s again', async (state) => {
  await openSale(3);
  await outbox().publish();
  const again = await reserve('ann');
  // A reservation may have been answered with 202.
  if (state === 'committed') expect(await commit(again)).toBe('committed');
  expect(await pay(ann)).toBe('refund-due');
  if (state === 'reserved') expect(await commit(again)).toBe('committed');
  await expectAgreement(2, 1);
});

it('keeps the units of a revived order that an earlier try of the payment took', async () => {
  await openSale(2);
  await stores.sql.query(
    `ALTER TABLE payment_notifications ADD CONSTRAINT rejected CHECK (id <> 'of ann') NOT VALID`,
  );
  let second: string | undefined;
  /** Between the end of the first try and the release of what it took. */
  const meanwhile = async () => {
    if (second !== undefined) return;
    await stores.sql.query('ALTER TABLE payment_notifications DROP CONSTRAINT rejected');
    second = await pay(ann, 'of ann');
  };
  const pool = Object.create(postgres.pool, {
    query: {
      async value(text: string, values: unknown[]) {
        if (/INSERT INTO mirror_outbox/.test(text)) await meanwhile();
        return postgres.pool.query(text, values);
      },
    },
    connect: { value: () => postgres.pool.connect() },
  });
  expect(await pay(ann, 'of ann', Object.create(postgres, { pool: { value: pool } }))).toBe('paid');
  expect(second).toBe('paid');
  await expectAgreement(1, 1);
});

it('releases the units of a try that failed', async () => {
  await openSale(2);
  const before = `ALTER TABLE payment_notifications ADD CONSTRAINT rejected CHECK (id <> 'twice') NOT VALID`;
  await stores.sql.query(before);
  await expect(pay(ann, 'twice')).rejects.toThrow('rejected');
  await expectAgreement(2, 0);
  await stores.sql.query('ALTER TABLE payment_notifications DROP CONSTRAINT rejected');
  expect(await pay(ann, 'twice')).toBe('paid');
  await expectAgreement(1, 1);
});
