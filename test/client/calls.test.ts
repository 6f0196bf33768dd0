/** `@stampede/client` against a service: every kind of answer, and answers that get lost, come late, or do not come. */
import { afterEach, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { GaveUpError, type PurchaseAnswer, Stampede } from '../../src/client/index.ts';
import { call, createSale } from '../support/client.ts';
import { type Front, type FrontStep, openFront } from '../support/front.ts';
import { openIssuer } from '../support/issuer.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const ADMIN = '0123456789abcdef';
const UNKNOWN = '00000000-0000-7000-8000-000000000000';
const PAYMENT_SECRET = `whsec_${Buffer.alloc(32, 'p').toString('base64')}`;
/** Longer than any test: nothing here ends because the machine is slow. */
const withinMs = 3_600_000;

const stores = opened(openTestStores);
const issuer = opened(openIssuer);
const service = opened(() => startService(envOf(stores)));
const proxy = opened(() => TcpProxy.to(service.url));
/** With tokens, tickets and signatures, and 202 before the commit. */
const guarded = opened(() =>
  startService({
    ...envOf(stores),
    ...issuer.env,
    ADMIN_TOKEN: `ann:${ADMIN}`,
    PAYMENT_WEBHOOK_SECRETS: PAYMENT_SECRET,
    CONFIRM: 'accepted',
  }),
);

const fronts: Front[] = [];
afterEach(async () => {
  for (const one of fronts.splice(0)) await one[Symbol.asyncDispose]();
});
const direct = () => new Stampede({ url: service.url, withinMs });
const through = (more = {}) => new Stampede({ url: proxy.through(service.url), withinMs, ...more });

async function behind(...steps: FrontStep[]): Promise<{ stampede: Stampede; front: Front }> {
  const front = await openFront(service.url, ...steps);
  fronts.push(front);
  return { stampede: new Stampede({ url: front.url, withinMs }), front };
}

/** The service handles a request of this call, and its answer gets lost with the connection. @param isDone a statement: it finds a row then */
async function losingTheAnswer<T>(isDone: string, of: readonly unknown[], act: () => Promise<T>): Promise<T> {
  proxy.set('lose-replies');
  const before = proxy.requests;
  const acted = act();
  try {
    await expect.poll(() => stores.sql.query(isDone, [...of])).toMatchObject({ rowCount: 1 });
    expect(proxy.requests).toBeGreaterThan(before);
  } finally {
    proxy.cutClients();
    proxy.set('pass');
  }
  const result = await acted;
  expect(proxy.requests).toBeGreaterThan(before + 1);
  return result;
}
const gaveUp = async (acted: Promise<unknown>): Promise<GaveUpError> => {
  const error = await acted.then(
    (answer) => expect.fail(`answered ${JSON.stringify(answer)}`),
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(GaveUpError);
  return error as GaveUpError;
};
const orderOf = (answer: PurchaseAnswer) =>
  'order' in answer ? answer.order : expect.fail(JSON.stringify(answer));

it('an order, from the purchase to the refund, and its sale', async () => {
  const stampede = direct();
  const made = await stampede.createSale({ name: 'one', stock: 2, priceCents: 500, maxPerOrder: 2 });
  if (made.kind !== 'done') throw new Error(made.detail);
  const saleId = made.value.id;
  const bought = await stampede.placeOrder(saleId, { userId: 'ann', quantity: 2 });
  expect(bought).toMatchObject({ kind: 'accepted', isDurable: true, order: { quantity: 2, saleId } });
  const { orderId } = orderOf(bought);
  expect(await stampede.placeOrder(saleId, { userId: 'ann' })).toMatchObject({
    kind: 'replayed',
    order: { orderId },
  });
  const payment = { notificationId: 'one', orderId, amountCents: 1_000 };
  const done = (value: object) => ({ kind: 'done', value: expect.objectContaining(value) });
  expect(await stampede.getOrder(orderId)).toEqual(done({ orderId, status: 'pending' }));
  expect(await stampede.extendOrder(orderId, 1)).toEqual(done({ orderId, status: 'pending' }));
  expect(await stampede.extendOrder(orderId, 2_000_000)).toMatchObject({
    kind: 'beyond-limit',
    latest: expect.any(String),
  });
  expect(await stampede.reportPayment(payment)).toEqual(done({ orderId, status: 'paid' }));
  expect(await stampede.getOrderOfUser(saleId, 'ann')).toEqual(done({ orderId, status: 'paid' }));
  expect(await stampede.getPoints('ann')).toEqual(done({ balance: 10 }));
  expect(await stampede.refundOrder(orderId, { returnUnits: false })).toEqual(done({ status: 'refund-due' }));
  const { orderId: second } = orderOf(await restocked());
  expect(await stampede.transferOrder(second, 'cyd')).toEqual(done({ orderId: second, userId: 'cyd' }));
  expect(await stampede.transferOrder(second, 'dan')).toMatchObject({ kind: 'already-transferred' });
  expect(await stampede.cancelOrder(second)).toEqual(done({ orderId: second, status: 'cancelled' }));
  expect(await stampede.changeSale(saleId, { paused: true })).toEqual(done({ paused: true }));
  expect(await stampede.getSale(saleId)).toEqual(done({ id: saleId, stock: 1, sold: 0 }));
  const page = await stampede.listSales({ limit: 1, search: 'one', state: 'paused' });
  expect(page).toEqual({ kind: 'done', value: [expect.objectContaining({ id: saleId })] });
  const award = { sourceType: 'survey', sourceId: '1', points: 5 };
  expect(await stampede.awardPoints('ann', award)).toEqual(done(award));
  expect(await stampede.awardPoints('ann', { ...award, points: 6 })).toMatchObject({
    kind: 'idempotency-conflict',
    entry: award,
  });

  async function restocked() {
    expect(await stampede.restockSale(saleId, 1)).toEqual(done({ stock: 1 }));
    return stampede.placeOrder(saleId, { userId: 'ben' });
  }
});

it('a place in the waitlist, and the refund of a sale', async () => {
  const stampede = direct();
  const { id: saleId } = await createSale(service.url, 1, { maxPerOrder: 2 });
  const ann = { userId: 'ann' };
  expect(await stampede.joinWaitlist(saleId, ann)).toMatchObject({ kind: 'not-sold-out' });
  const { orderId } = orderOf(await stampede.placeOrder(saleId, { userId: 'ben' }));
  const entry = { kind: 'done', value: expect.objectContaining({ userId: 'ann', place: 1, namedAt: null }) };
  expect(await stampede.joinWaitlist(saleId, ann)).toEqual(entry);
  expect(await stampede.joinWaitlist(saleId, ann)).toEqual(entry);
  const over = await stampede.joinWaitlist(saleId, { userId: 'cyd', quantity: 3 });
  expect(over).toMatchObject({ kind: 'invalid-request' });
  expect(await stampede.getWaitlistEntry(saleId, 'ann')).toEqual(entry);
  const { stampede: losing } = await behind('lost', 'proxy');
  expect(await losing.leaveWaitlist(saleId, 'ann')).toMatchObject({ kind: 'done' });
  expect(await stampede.getWaitlistEntry(saleId, 'ann')).toMatchObject({ kind: 'not-found' });
  expect(await stampede.getSaleRefund(saleId)).toMatchObject({ kind: 'not-found' });
  await stampede.changeSale(saleId, { paused: true });
  expect(await stampede.refundSale(saleId)).toMatchObject({ kind: 'done', value: { saleId, orders: 1 } });
  await expect
    .poll(() => stampede.getSaleRefund(saleId))
    .toMatchObject({ kind: 'done', value: { remaining: 0 } });
  expect(await stampede.getOrder(orderId)).toMatchObject({ kind: 'done', value: { status: 'cancelled' } });
});

it('each refusal is a value with its members', async () => {
  const stampede = direct();
  const { id } = await createSale(service.url, 3, { maxPerOrder: 2 });
  const { id: paused } = await createSale(service.url, 1);
  const { id: empty } = await createSale(service.url, 0);
  await stampede.changeSale(paused, { paused: true });
  orderOf(await stampede.placeOrder(id, { userId: 'ann', quantity: 2 }));
  const refused = { detail: expect.any(String), mayHaveHappened: false };
  const buy = (saleId: number, quantity = 1, userId = 'ben') =>
    stampede.placeOrder(saleId, { userId, quantity });
  const path = 'body.quantity';
  expect(await buy(id, 2)).toEqual({ kind: 'not-enough-units', remaining: 1, ...refused });
  expect(await buy(id, 3)).toEqual({
    kind: 'over-limit',
    maxPerOrder: 2,
    ...refused,
    errors: [expect.objectContaining({ path })],
  });
  expect(await buy(id, 101)).toEqual({
    kind: 'invalid-request',
    ...refused,
    errors: [expect.objectContaining({ path })],
  });
  expect(await buy(empty)).toEqual({ kind: 'sold-out', ...refused });
  expect(await buy(paused)).toEqual({ kind: 'sale-not-open', reason: 'paused', ...refused });
  expect(await buy(424_242)).toEqual({ kind: 'unknown-sale', ...refused });
  expect(await buy(id, 1, 'x'.repeat(5_000))).toEqual({ kind: 'too-large', ...refused });
  expect(await stampede.getOrder(UNKNOWN)).toEqual({ kind: 'unknown-order', ...refused });
  expect(await stampede.restockSale(id, -2)).toEqual({ kind: 'below-sold', ...refused });
  const { orderId } = orderOf(await buy(id, 1, 'ann'));
  await stampede.reportPayment({ notificationId: 'each', orderId, amountCents: 1_000 });
  expect(await stampede.cancelOrder(orderId)).toEqual({
    kind: 'invalid-transition',
    orderStatus: 'paid',
    ...refused,
  });
  const wrong = { notificationId: 'wrong', orderId, amountCents: 1 };
  expect(await stampede.reportPayment(wrong)).toEqual({ kind: 'unmatched', reason: 'amount-mismatch' });
});

it('tokens, tickets and signatures are sent, and their lack is a value', async () => {
  const stampede = new Stampede({ url: guarded.url, withinMs });
  const admin = new Stampede({
    url: guarded.url,
    token: ADMIN,
    paymentSecret: `stripe:${PAYMENT_SECRET}`,
    withinMs,
  });
  const sale = { name: 'guarded', stock: 1, priceCents: 500 };
  expect(await stampede.createSale(sale)).toMatchObject({ kind: 'unauthorized' });
  const made = await admin.createSale(sale);
  const saleId = made.kind === 'done' ? made.value.id : expect.fail(made.detail);
  const token = await issuer.token('ann');
  const ticket = await stampede.createTicket(saleId, {}, { token });
  if (ticket.kind !== 'done') throw new Error(ticket.detail);
  const buy = (token?: string) => stampede.placeOrder(saleId, { userId: 'ignored' }, { token });
  expect(await buy()).toMatchObject({ kind: 'invalid-ticket', reason: 'missing' });
  const bought = await buy(ticket.value.ticket);
  expect(bought).toMatchObject({ kind: 'accepted', isDurable: false });
  const { orderId } = orderOf(bought);
  // The order may not be committed yet: then the service answers `busy`.
  expect(await stampede.getOrder(orderId, { token })).toMatchObject({ kind: 'done' });
  const payment = { notificationId: 'signed', orderId, amountCents: 500 };
  expect(await stampede.reportPayment(payment)).toMatchObject({ kind: 'invalid-signature' });
  expect(await admin.reportPayment(payment)).toMatchObject({ kind: 'done', value: { status: 'paid' } });
});

it('a purchase whose answer got lost is repeated, and returns the order of the first request', async () => {
  const { id } = await createSale(service.url, 5);
  const found = 'SELECT id FROM orders WHERE sale_id = $1';
  const answer = await losingTheAnswer(found, [id], () => through().placeOrder(id, { userId: 'ann' }));
  const { rows } = await stores.sql.query(found, [id]);
  expect(answer).toMatchObject({ kind: 'replayed', order: { orderId: rows[0].id } });
  expect((await call(`${service.url}/sales/${id}`)).body).toMatchObject({ sold: 1 });
});

it('an administrative request whose answer got lost has one effect', async () => {
  const sale = { name: 'lost', stock: 1, priceCents: 500 };
  const found = 'SELECT id::int FROM sales WHERE name = $1';
  const made = await losingTheAnswer(found, ['lost'], () => through().createSale(sale));
  const { rows } = await stores.sql.query(found, ['lost']);
  expect(made).toMatchObject({ kind: 'done', value: { id: rows[0].id } });
  const { id } = rows[0];
  const grown = 'SELECT FROM sales WHERE id = $1 AND stock >= 4';
  const restocked = await losingTheAnswer(grown, [id], () => through().restockSale(id, 3));
  expect(restocked).toMatchObject({ kind: 'done', value: { stock: 4 } });
});

it('a cancellation and a payment whose answers got lost succeed', async () => {
  const { id } = await createSale(service.url, 5);
  const [first, second] = [
    orderOf(await direct().placeOrder(id, { userId: 'ann' })).orderId,
    orderOf(await direct().placeOrder(id, { userId: 'ben' })).orderId,
  ];
  const closed = 'SELECT FROM orders WHERE id = $1 AND status = $2';
  const cancelled = await losingTheAnswer(closed, [first, 'cancelled'], () => through().cancelOrder(first));
  expect(cancelled).toMatchObject({ kind: 'done', value: { status: 'cancelled' } });
  expect(await direct().cancelOrder(first)).toMatchObject({
    kind: 'invalid-transition',
    mayHaveHappened: false,
  });
  const payment = { notificationId: 'lost', orderId: second, amountCents: 500 };
  const paid = await losingTheAnswer(closed, [second, 'paid'], () => through().reportPayment(payment));
  expect(paid).toMatchObject({ kind: 'done', value: { status: 'paid' } });
});

it('a request is repeated after Retry-After, with the same Idempotency-Key', async () => {
  const { stampede, front } = await behind(['busy', 4], ['too-many-requests', 0], ['unknown-outcome', 0]);
  const startedMs = performance.now();
  const made = await stampede.createSale({ name: 'again', stock: 1, priceCents: 1 });
  expect(made).toMatchObject({ kind: 'done', value: { name: 'again' } });
  expect(performance.now() - startedMs).toBeGreaterThan(4_000); // without Retry-After 3.5 s at most
  expect(front.requests).toHaveLength(4);
  const keys = new Set(front.requests.map((headers) => headers['idempotency-key']));
  expect([...keys]).toEqual([expect.stringMatching(/^[\w-]{36}$/)]);
  expect(await stores.sql.query(`SELECT FROM sales WHERE name = 'again'`)).toMatchObject({ rowCount: 1 });
});

it('a Retry-After beyond the deadline ends the call: with the answer if nothing happened, else with an error', async () => {
  const { id } = await createSale(service.url, 5);
  const later = withinMs / 1_000;
  for (const slug of ['busy', 'too-many-requests', 'too-early'] as const) {
    const { stampede, front } = await behind([slug, later]);
    expect(await stampede.placeOrder(id, { userId: 'ann' })).toMatchObject({
      kind: slug,
      mayHaveHappened: false,
    });
    expect(front.requests).toHaveLength(1);
  }
  const { stampede } = await behind('lost', ['busy', later]);
  const error = await gaveUp(stampede.placeOrder(id, { userId: 'ann' }));
  expect(error).toMatchObject({ tries: 2, mayHaveHappened: true, ids: { saleId: id, userId: 'ann' } });
  expect(error.message).toContain(`POST /sales/${id}/orders after 2 tries. It may have taken effect.`);
  expect((error.cause as Error).message).toContain('503 {"type":"/problems/busy"');
  const other = await behind(['unknown-outcome', later]);
  const unknown = await gaveUp(other.stampede.cancelOrder(UNKNOWN, {}));
  expect(unknown).toMatchObject({ mayHaveHappened: true, ids: { orderId: UNKNOWN } });
  const read = await behind(['unknown-outcome', later]);
  expect(await gaveUp(read.stampede.getSale(id))).toMatchObject({ mayHaveHappened: false });
  const soon = await behind(['busy', 4]); // after which less than a second is left
  const refused = await soon.stampede.placeOrder(id, { userId: 'ben' }, { withinMs: 5_000 });
  expect(refused).toMatchObject({ kind: 'busy', mayHaveHappened: false });
  expect(soon.front.requests).toHaveLength(1);
});

it('the error of a purchase names the order only if each try without an answer has named it', async () => {
  const { id } = await createSale(service.url, 5);
  const later = withinMs / 1_000;
  const idOfError = async (userId: string, ...steps: FrontStep[]) =>
    (await gaveUp((await behind(...steps)).stampede.placeOrder(id, { userId }))).ids.orderId;
  const named = await idOfError('ann', ['unknown-outcome', later]);
  expect(await direct().getOrder(String(named))).toMatchObject({ kind: 'done', value: { userId: 'ann' } });
  expect(await idOfError('ben', ['unknown-outcome', 0], ['busy', later])).toMatch(/^[\w-]{36}$/);
  expect(await idOfError('cyd', 'lost', ['unknown-outcome', later])).toBeUndefined();
  expect(await idOfError('dan', ['unknown-outcome', 0], ['unknown-outcome', later])).toBeUndefined();
  expect(await idOfError('eve', ['unknown-outcome', 0], ['internal-error', later])).toBeUndefined();
});

it('a cancellation that has happened is said to, also when the order cannot be read afterwards', async () => {
  const { id } = await createSale(service.url, 1);
  const { orderId } = orderOf(await direct().placeOrder(id, { userId: 'ann' }));
  const { stampede } = await behind('lost', 'pass', ['internal-error', withinMs / 1_000]);
  const answer = await stampede.cancelOrder(orderId);
  const orderStatus = 'cancelled';
  expect(answer).toMatchObject({ kind: 'invalid-transition', orderStatus, mayHaveHappened: true });
});

it('a refusal after a try without an answer says that the first one may have happened', async () => {
  const { id } = await createSale(service.url, 0);
  const { stampede } = await behind('internal-error', 'lost');
  const answer = await stampede.placeOrder(id, { userId: 'ann' });
  expect(answer).toMatchObject({ kind: 'sold-out', mayHaveHappened: true });
});

it('without an answer it ends at the deadline, and a later call finds the order', async () => {
  const { id } = await createSale(service.url, 5);
  proxy.set('black-hole');
  const ended = await gaveUp(through({ tryMs: 50 }).placeOrder(id, { userId: 'ann' }, { withinMs: 400 }));
  expect(ended).toMatchObject({
    mayHaveHappened: true,
    code: 'ERR_STAMPEDE_GAVE_UP',
    ids: { userId: 'ann' },
  });
  expect((ended.cause as Error).message).toMatch(/^no answer within [\d.]+ ms$/);
  proxy.set('pass');
  expect(orderOf(await through().placeOrder(id, { userId: 'ann' }))).toMatchObject({ userId: 'ann' });
  proxy.set('refuse');
  const refused = await gaveUp(through().getSale(id, { withinMs: 300 }));
  expect(refused).toMatchObject({ mayHaveHappened: false, cause: expect.any(TypeError) });
  proxy.set('pass');
});

it('a signal ends a call: before it, during a request, and while it waits', async () => {
  const { id } = await createSale(service.url, 5);
  const reason = new Error('the customer left');
  const aborted = { signal: AbortSignal.abort(reason) };
  expect(await gaveUp(direct().placeOrder(id, { userId: 'ann' }, aborted))).toMatchObject({
    ...{ tries: 0, mayHaveHappened: false, cause: reason },
  });
  proxy.set('black-hole');
  const during = new AbortController();
  const before = proxy.requests;
  const sent = gaveUp(through().placeOrder(id, { userId: 'ann' }, { signal: during.signal }));
  await expect.poll(() => proxy.requests).toBeGreaterThan(before);
  during.abort(reason);
  expect(await sent).toMatchObject({ tries: 1, mayHaveHappened: true, cause: reason });
  proxy.set('pass');
  const { stampede, front } = await behind(['busy', 600]);
  const waiting = new AbortController();
  const waits = gaveUp(stampede.placeOrder(id, { userId: 'ann' }, { signal: waiting.signal }));
  await expect.poll(() => front.requests.length).toBe(1);
  waiting.abort(reason);
  expect(await waits).toMatchObject({ cause: reason });
});

it('a mistake of the program is thrown at once, and sends nothing', async () => {
  const stampede = direct();
  const wrong: (() => Promise<unknown>)[] = [
    async () => new Stampede({ url: '127.0.0.1:3000' }),
    async () => new Stampede({ url: 'ftp://127.0.0.1' }),
    async () => new Stampede({ url: 'http://' }),
    async () => new Stampede({ url: `${service.url}?a=b` }),
    () => new Stampede({ url: 'http://ann:secret@127.0.0.1' }).getSale(1),
    () => new Stampede({ url: service.url, token: 'a\nb' }).getSale(1),
    () =>
      new Stampede({ url: service.url, paymentSecret: 'secret' }).reportPayment({
        notificationId: 'n',
        orderId: UNKNOWN,
        amountCents: 1,
      }),
    () => stampede.placeOrder(1, { userId: 'ann' }, { withinMs: Number.NaN }),
    () => stampede.placeOrder(1, { userId: 1n as never }),
    async () => stampede.getOrder(''),
    async () => stampede.getPoints('..'),
    () => stampede.createSale({ name: 'n', stock: 1, priceCents: 1 }, { idempotencyKey: 'ä€' }),
  ];
  for (const [n, act] of wrong.entries()) await expect(act(), String(n)).rejects.toBeInstanceOf(TypeError);
});
