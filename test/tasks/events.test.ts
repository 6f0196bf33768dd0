/** Events: a receiver verifies their signatures with `@stampede/client`, and gets those of an order in their order, whatever fails meanwhile. */

import type { RequestListener } from 'node:http';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type StampedeEvent, verifyWebhook } from '../../src/client/index.ts';
import { limits } from '../../src/config/limits.ts';
import { eventTypes } from '../../src/domain/task.ts';
import { buy, call, cancel, createSale, patch, pay, post, users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { openReceiver } from '../support/receiver.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores, published } from '../support/stores.ts';

/** With members of the data that only some types have. */
type Event = StampedeEvent & { readonly data: { readonly [member: string]: unknown } };

const secret = `whsec_${Buffer.from('a secret of twenty-four b').toString('base64')}`;
/** Those that were received, repeats included. */
let received: Event[] = [];
/** What the receiver answers to an event. */
let answerTo: (event: Event) => number = () => 204;
const receive: RequestListener = async (req, res) => {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk);
  const verified = await verifyWebhook<Event>(secret, req.headers, Buffer.concat(chunks));
  if (verified.kind === 'refused') throw new Error(verified.reason);
  const { id, body: event } = verified;
  expect(id).toBe(event.id);
  received.push(event);
  res.writeHead(answerTo(event)).end();
};

const stores = opened(openTestStores);
const receiver = opened(() => openReceiver(receive));
const env = () => ({
  ...envOf(stores),
  EVENTS: 'all',
  EVENT_WEBHOOK_URL: `${receiver.url}/events`,
  EVENT_WEBHOOK_SECRET: secret,
});
const start = (more: Record<string, string> = {}) => startService({ ...env(), ...more });
const service = opened(start);
let url: string;
beforeAll(() => {
  url = service.url;
});
beforeEach(() => {
  answerTo = () => 204;
  received = [];
});

const ofSale = (saleId: number) => received.filter(({ data }) => data.saleId === saleId);
const typesOf = (events: readonly Event[]) => events.map(({ type }) => type);
const expire = (orderId: unknown) =>
  stores.sql.query('UPDATE orders SET expires_at = clock_timestamp() WHERE id = $1', [orderId]);
/** Waits until nothing is left to send. */
const allSent = () =>
  expect
    .poll(() => stores.sql.query(`SELECT FROM tasks WHERE kind = 'event' AND state <> 'done'`))
    .toMatchObject({ rowCount: 0 });

it('reports each change of an order and of its sale, once, in order', async () => {
  const { id } = await createSale(url, 2, { maxPerOrder: 2 });
  const { orderId } = (await buy(url, id, 'ann', 2)).body;
  const { expiresAt } = (await post(`${url}/orders/${orderId}/extend`, { seconds: 1_200 })).body;
  await expire(orderId);
  await expect.poll(() => typesOf(ofSale(id))).toContain('order.expired');
  expect((await pay(url, orderId, undefined, 1_000)).body.status).toBe('paid');
  expect((await post(`${url}/orders/${orderId}/refund`, {})).body.status).toBe('refund-due');
  await published(stores);
  const other = (await buy(url, id, 'bob')).body.orderId;
  expect((await post(`${url}/orders/${other}/transfer`, { toUserId: 'cyd' })).status).toBe(200);
  await published(stores);
  expect((await cancel(url, other)).status).toBe(200);
  await allSent();
  const order = { orderId, saleId: id, userId: 'ann', quantity: 2, amountCents: 1_000 };
  const ofAnn = received.filter(({ data }) => data.orderId === orderId);
  expect(ofAnn.map(({ type, data }) => ({ type, data }))).toEqual([
    { type: 'order.placed', data: { ...order, status: 'pending' } },
    { type: 'order.extended', data: { ...order, status: 'pending', expiresAt } },
    { type: 'order.expired', data: { ...order, status: 'expired' } },
    { type: 'order.paid', data: { ...order, status: 'paid' } },
    { type: 'order.refund-due', data: { ...order, status: 'refund-due' } },
  ]);
  expect(typesOf(received.filter(({ data }) => data.orderId === other))).toEqual([
    'order.placed',
    'order.transferred',
    'order.cancelled',
  ]);
  const sale = { saleId: id, stock: 2, paused: false };
  const free = { ...sale, waitlist: [] };
  expect(ofSale(id).filter(({ type }) => type.startsWith('sale.'))).toMatchObject([
    { type: 'sale.sold-out', data: { ...sale, sold: 2, remaining: 0 } },
    { type: 'sale.units-returned', data: { ...free, sold: 0, remaining: 2, units: 2 } },
    { type: 'sale.sold-out', data: { ...sale, sold: 2, remaining: 0 } },
    { type: 'sale.units-returned', data: { ...free, sold: 0, remaining: 2, units: 2 } },
    { type: 'sale.units-returned', data: { ...free, sold: 0, remaining: 2, units: 1 } },
  ]);
  expect(new Set(received.map((event) => event.id)).size).toBe(received.length);
  for (const { timestamp } of received) expect(new Date(timestamp).toISOString()).toBe(timestamp);
});

it('keeps the order of one order when the receiver fails, and holds up no other order', async () => {
  const { id } = await createSale(url, 10);
  answerTo = ({ type, data }) => (type === 'order.placed' && data.userId === 'ann' ? 500 : 204);
  const [ann, bob] = await Promise.all(
    ['ann', 'bob'].map(async (user) => (await buy(url, id, user)).body.orderId),
  );
  for (const one of [ann, bob]) await cancel(url, one);
  const of = (orderId: unknown) => received.filter(({ data }) => data.orderId === orderId);
  await expect.poll(() => of(ann).length).toBeGreaterThanOrEqual(2);
  await expect.poll(() => typesOf(of(bob))).toEqual(['order.placed', 'order.cancelled']);
  expect(new Set(typesOf(of(ann)))).toEqual(new Set(['order.placed']));
  expect(new Set(of(ann).map((event) => event.id)).size).toBe(1);
  answerTo = () => 204;
  await allSent();
  expect(typesOf(of(ann)).slice(-2)).toEqual(['order.placed', 'order.cancelled']);
});

it('a dead event holds up the later ones of its order until it is discarded', async () => {
  const { id } = await createSale(url, 10);
  answerTo = ({ data }) => (data.userId === 'ann' ? 500 : 204);
  const { orderId } = (await buy(url, id, 'ann')).body;
  const placed = `kind = 'event' AND payload->>'type' = 'order.placed' AND payload->'data'->>'orderId' = $1`;
  const stateOf = async () =>
    (await stores.sql.query(`SELECT id::int, state FROM tasks WHERE ${placed}`, [orderId])).rows[0];
  const last = `UPDATE tasks SET attempts = $2, run_at = now() WHERE state = 'retry' AND ${placed}`;
  await expect
    .poll(() => stores.sql.query(last, [orderId, limits.tasks.attempts - 1]))
    .toMatchObject({ rowCount: 1 });
  await expect.poll(stateOf).toMatchObject({ state: 'dead' });
  const { id: dead } = await stateOf();
  received = [];
  answerTo = () => 204;
  await cancel(url, orderId);
  const discard = () => post(`${url}/tasks/${dead}/discard`, {});
  const error = expect.stringMatching(/^discarded by admin:loopback; attempt \d+: the webhook answered 500$/);
  expect(await discard()).toMatchObject({ status: 200, body: { id: dead, state: 'done', lastError: error } });
  await allSent();
  expect(typesOf(received.filter(({ data }) => data.orderId === orderId))).toEqual(['order.cancelled']);
  expect(await discard()).toMatchObject({ status: 409, problem: 'invalid-transition' });
  const acts = `SELECT actor, details::json AS details FROM audit_log WHERE action = 'task.discarded' AND subject = $1`;
  const audited = async () => (await stores.sql.query(acts, [`task ${dead}`])).rows;
  await expect.poll(audited).toMatchObject([{ actor: 'admin:loopback', details: { kind: 'event' } }]);
});

it.each([
  ['order.paid', ['order.paid']],
  ['', []],
])('reports only what EVENTS chooses: %j', async (EVENTS, expected) => {
  await using other = await start({ EVENTS });
  const { id } = await createSale(other.url, 1);
  const { orderId } = (await buy(other.url, id, 'ann')).body;
  await pay(other.url, orderId);
  const { rows } = await stores.sql.query(
    `SELECT payload->>'type' AS type FROM tasks WHERE kind = 'event' AND (payload->'data'->>'saleId')::int = $1`,
    [id],
  );
  expect(rows.map(({ type }) => type)).toEqual(expected);
});

it.each(['group-commit', 'for-update-prisma', 'skip-locked'])(
  '%s reports what it sells and what returns',
  async (STRATEGY) => {
    await using other = await start({ STRATEGY });
    const { id } = await createSale(other.url, 1);
    await cancel(other.url, (await buy(other.url, id, 'ann')).body.orderId);
    await allSent();
    const expected = ['order.cancelled', 'order.placed', 'sale.sold-out', 'sale.units-returned'];
    expect(typesOf(ofSale(id)).sort()).toEqual(expected);
  },
);

describe('the waitlist', () => {
  const join = (saleId: number, userId: string, quantity = 1) =>
    post(`${url}/sales/${saleId}/waitlist`, { userId, quantity });
  const namedOf = (saleId: number) =>
    ofSale(saleId).flatMap(({ type, data }) => (type === 'sale.units-returned' ? [data.waitlist] : []));

  it('names as many customers as units become free, the first ones first, each once', async () => {
    const { id } = await createSale(url, 3);
    const orders = await Promise.all(users(3).map((user) => buy(url, id, user)));
    for (const user of ['w1', 'w2', 'w3', 'w4']) expect((await join(id, user)).status).toBe(201);
    expect((await join(id, 'w1')).status).toBe(200);
    await cancel(url, orders[0]!.body.orderId);
    await post(`${url}/sales/${id}/restock`, { units: 2 });
    await allSent();
    expect(namedOf(id)).toEqual([['w1'], ['w2', 'w3']]);
    // They may buy, as may anyone else; who was named and was too late may join again, at the end.
    await Promise.all(users(3, 'fast').map((user) => buy(url, id, user)));
    expect((await join(id, 'w1')).status).toBe(201);
    await cancel(url, orders[1]!.body.orderId);
    await cancel(url, orders[2]!.body.orderId);
    await allSent();
    expect(namedOf(id)).toEqual([['w1'], ['w2', 'w3'], ['w4'], ['w1']]);
  });

  it('names the next when those who were named have not bought within their time, as many as units are free', async () => {
    await using _other = await start(); // which names them, too
    const { id } = await createSale(url, 3);
    const orders = await Promise.all(users(3).map((user) => buy(url, id, user)));
    for (const user of ['w1', 'w2', 'w3', 'w4', 'w5']) expect((await join(id, user)).status).toBe(201);
    for (const { body } of orders.slice(0, 2)) await cancel(url, body.orderId);
    await published(stores);
    expect((await buy(url, id, 'w2')).status).toBe(201);
    await stores.sql.query(
      `UPDATE waitlist SET named_at = named_at - $2 * interval '1 millisecond' WHERE sale_id = $1`,
      [id, limits.waitlist.turnMs],
    );
    await expect.poll(() => namedOf(id)).toEqual([['w1'], ['w2'], ['w3']]);
    // The next unit is the next customer's: the one before is in time.
    await cancel(url, orders[2]!.body.orderId);
    await expect.poll(() => namedOf(id)).toEqual([['w1'], ['w2'], ['w3'], ['w4']]);
  });

  it('names who waits for several units when as many are free, and the next before', async () => {
    const { id } = await createSale(url, 4, { maxPerOrder: 3 });
    const orders = await Promise.all(users(4).map((user) => buy(url, id, user)));
    expect((await join(id, 'three', 3)).body).toMatchObject({ quantity: 3, place: 1, namedAt: null });
    expect(await join(id, 'four', 4)).toMatchObject({ problem: 'invalid-request' });
    for (const user of ['one', 'gone', 'next']) await join(id, user);
    const entry = (user: string) => call(`${url}/sales/${id}/waitlist/${user}`);
    expect((await entry('next')).body).toMatchObject({ place: 4 });
    for (const _ of [1, 2])
      expect((await call(`${url}/sales/${id}/waitlist/gone`, { method: 'DELETE' })).status).toBe(204);
    expect(await entry('gone')).toMatchObject({ status: 404, problem: 'not-found' });
    expect((await entry('next')).body).toMatchObject({ place: 3 });
    await cancel(url, orders[0]!.body.orderId);
    await allSent();
    expect(namedOf(id)).toEqual([['one']]);
    expect((await entry('one')).body).toMatchObject({ place: null, namedAt: expect.any(String) });
    await stores.sql.query('UPDATE sales SET stock = stock + 3 WHERE id = $1', [id]); // without an event
    await expect.poll(() => namedOf(id)).toEqual([['one'], ['three']]);
    expect((await join(id, 'three', 2)).problem).toBe('not-sold-out');
  });

  it('names customers also where no event is published', async () => {
    await using quiet = await startService(envOf(stores));
    const { id } = await createSale(quiet.url, 1);
    const { orderId } = (await buy(quiet.url, id, 'ann')).body;
    expect((await post(`${quiet.url}/sales/${id}/waitlist`, { userId: 'bob' })).status).toBe(201);
    await cancel(quiet.url, orderId);
    const entry = () => call(`${quiet.url}/sales/${id}/waitlist/bob`);
    await expect.poll(entry).toMatchObject({ body: { place: null, namedAt: expect.any(String) } });
  });

  it('refuses a sale that has units, has ended, or does not exist', async () => {
    const { id } = await createSale(url, 1);
    expect(await join(id, 'bob')).toMatchObject({ problem: 'not-sold-out' });
    await buy(url, id, 'ann');
    await stores.sql.query('UPDATE sales SET ends_at = clock_timestamp() WHERE id = $1', [id]);
    const ended = { status: 409, problem: 'sale-not-open', body: { reason: 'ended' } };
    expect(await join(id, 'bob')).toMatchObject(ended);
    for (const unknown of [424_242, 2_147_483_648])
      expect(await join(unknown, 'ann')).toMatchObject({ problem: 'unknown-sale' });
  });

  it('names no customer with an order', async () => {
    const { id } = await createSale(url, 1);
    const { orderId } = (await buy(url, id, 'ann')).body;
    for (const user of ['bob', 'cat']) expect((await join(id, user)).status).toBe(201);
    await cancel(url, orderId);
    await published(stores);
    expect((await buy(url, id, 'cat')).status).toBe(201); // before bob, who was named
    expect((await join(id, 'bob')).status).toBe(201);
    await post(`${url}/sales/${id}/restock`, { units: 1 });
    await allSent();
    expect(namedOf(id)).toEqual([['bob'], ['bob']]);
    const waiting = 'SELECT user_id AS "userId" FROM waitlist WHERE sale_id = $1 AND named_at IS NULL';
    expect((await stores.sql.query(waiting, [id])).rows).toEqual([]); // cat's turn has passed
  });

  it('names no customer while the sale is paused, the first when it goes on, and none when it has ended', async () => {
    const { id } = await createSale(url, 2);
    const orders = [await buy(url, id, 'ann'), await buy(url, id, 'zoe')];
    for (const user of ['bob', 'cat']) expect((await join(id, user)).status).toBe(201);
    expect((await patch(`${url}/sales/${id}`, { paused: true })).status).toBe(200);
    await cancel(url, orders[0]!.body.orderId);
    expect((await patch(`${url}/sales/${id}`, { paused: false })).status).toBe(200);
    await allSent();
    await stores.sql.query('UPDATE sales SET ends_at = clock_timestamp() WHERE id = $1', [id]);
    await cancel(url, orders[1]!.body.orderId);
    await allSent();
    expect(namedOf(id)).toEqual([[], ['bob'], []]);
  });
});

// `order.offered` needs a waitlist that holds: orders/waitlist-hold.test.ts.
it('knows all types that the triggers write', async () => {
  const { rows } = await stores.sql.query(
    `SELECT DISTINCT payload->>'type' AS type FROM tasks WHERE kind = 'event' ORDER BY 1`,
  );
  const types = eventTypes.filter((type) => type !== 'order.offered');
  expect(rows.map(({ type }) => type)).toEqual(types.sort());
});
