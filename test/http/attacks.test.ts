/** Payment notifications, signed and forged: each gets what it should. Administrative routes: every-route.test.ts. */
import { Webhook } from 'standardwebhooks';
import { describe, expect, it } from 'vitest';
import { attempt, call, createSale, pay } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const secretOf = (letter: string) => `whsec_${Buffer.alloc(32, letter).toString('base64')}`;
const [OLD, NEW, OTHER, FOREIGN] = ['o', 'n', 'p', 'f'].map(secretOf) as [string, string, string, string];

const stores = opened(openTestStores);
const signed = opened(() =>
  startService({ ...envOf(stores), PAYMENT_WEBHOOK_SECRETS: `${NEW},${OLD},other:${OTHER}` }),
);

interface Sent {
  readonly secret?: string;
  /** Signature age, minutes. */
  readonly age?: number;
  readonly notificationId?: string;
  readonly amountCents?: number;
  /** Sent in place of the body that was signed. */
  readonly altered?: object;
}

/** Reports a payment as a provider does. */
function notify(orderId: unknown, { secret = NEW, age = 0, altered, ...more }: Sent = {}) {
  const at = new Date(Date.now() - age * 60_000);
  const body = JSON.stringify({ notificationId: `n-${orderId}`, orderId, amountCents: 500, ...more });
  return call(`${signed.url}/payments/notifications`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'webhook-id': 'm-1',
      'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
      'webhook-signature': new Webhook(secret).sign('m-1', at, body),
    },
    body: altered === undefined ? body : JSON.stringify({ ...JSON.parse(body), ...altered }),
  });
}

async function order(): Promise<unknown> {
  const { id } = await createSale(signed.url, 1);
  return (await attempt(signed.url, id, 'ann')).body.orderId;
}
const statusOf = async (orderId: unknown) => (await call(`${signed.url}/orders/${orderId}`)).body.status;
/** Kinds of the tasks of an order, sorted. */
async function kindsOf(orderId: unknown): Promise<string[]> {
  const tasks = await stores.sql.query(`SELECT kind FROM tasks WHERE payload ->> 'orderId' = $1`, [orderId]);
  return tasks.rows.map(({ kind }) => kind as string).sort();
}

describe('a payment notification', () => {
  it.each<[string, Sent]>([
    ['the newest secret', { secret: NEW }],
    ['the one before it', { secret: OLD }],
    ['another provider', { secret: OTHER }],
  ])('counts when it is signed by %s', async (_name, sent) => {
    const orderId = await order();
    expect(await notify(orderId, sent)).toMatchObject({ status: 200, body: { status: 'paid' } });
  });

  it.each<[string, Sent]>([
    ['a foreign secret', { secret: FOREIGN }],
    ['a time 6 minutes ago', { age: 6 }],
    ['a time in 6 minutes', { age: -6 }],
    ['another body', { altered: { notificationId: 'other' } }],
  ])('does not count with %s', async (_name, sent) => {
    const orderId = await order();
    expect(await notify(orderId, sent)).toMatchObject({ status: 401, problem: 'invalid-signature' });
    expect(await pay(signed.url, orderId)).toMatchObject({ problem: 'invalid-signature' }); // without a signature
    expect(await statusOf(orderId)).toBe('pending');
  });

  it('has one effect when it is replayed, and the same id of another provider is another one', async () => {
    const [first, second] = [await order(), await order()];
    for (const age of [0, 4, -4, 0]) expect((await notify(first, { age })).status).toBe(200); // also with another timestamp
    const same = { notificationId: `n-${first}` };
    expect(await notify(second, same)).toMatchObject({
      status: 200,
      body: { result: 'unmatched', reason: 'conflict' },
    });
    expect((await notify(second, { ...same, secret: OTHER })).status).toBe(200);
    expect(await kindsOf(first)).toEqual(['award', 'ship']);
  });

  it.each<[string, Sent, Sent, 'a repeat' | 'another payment']>([
    ['its secret got a name', {}, { secret: OTHER }, 'a repeat'],
    ['its secret lost its name', { secret: OTHER }, {}, 'a repeat'],
    [
      'it looks like one of a named secret',
      { notificationId: 'other:1' },
      { notificationId: '1' },
      'another payment',
    ],
  ])('is the same one, or another, after %s', async (_name, before, after, what) => {
    const orderId = await order();
    const notificationId = `n-${orderId}`;
    const idOf = (sent: Sent) => ({ ...sent, notificationId: (sent.notificationId ?? '') + notificationId });
    for (const sent of [before, after, after, before])
      expect(await notify(orderId, idOf(sent))).toMatchObject({ status: 200, body: { status: 'paid' } });
    expect(await kindsOf(orderId)).toEqual(['award', ...(what === 'a repeat' ? [] : ['refund']), 'ship']);
  });

  it.each([
    ['got', NEW, OTHER],
    ['lost', OTHER, NEW],
  ])(
    'that changed no order is listed once after its secret %s a name, until it takes effect',
    async (_name, before, after) => {
      const orderId = await order();
      const dearer = { amountCents: 600 };
      const listed = async () =>
        (await stores.sql.query('SELECT times FROM unmatched_payments WHERE order_id = $1', [orderId])).rows;
      for (const secret of [before, after, before])
        expect((await notify(orderId, { ...dearer, secret })).body.reason).toBe('amount-mismatch');
      expect(await listed()).toEqual([{ times: 3 }]);
      await stores.sql.query('UPDATE orders SET price_cents = 600 WHERE id = $1', [orderId]);
      expect((await notify(orderId, { ...dearer, secret: after })).body.status).toBe('paid');
      expect(await listed()).toEqual([]);
      // By a try that began before:
      await stores.sql.query(
        `INSERT INTO unmatched_payments (notification_id, order_id, amount_cents, reason, actor, provider)
         SELECT id, order_id, amount_cents, 'unknown-order', 'service', provider FROM payment_notifications WHERE order_id = $1`,
        [orderId],
      );
      expect((await notify(orderId, { ...dearer, secret: before })).body.status).toBe('paid');
      expect(await listed()).toEqual([]);
    },
  );

  it('conflicts with one of another secret whose id reads the same', async () => {
    const orderId = await order();
    expect((await notify(orderId, { notificationId: `other:n-${orderId}` })).status).toBe(200);
    const answer = await notify(orderId, { secret: OTHER });
    expect(answer.body).toEqual({ result: 'unmatched', reason: 'conflict' });
    expect(await kindsOf(orderId)).toEqual(['award', 'ship']);
  });

  it.each(['', 'other:'])('is the same one as that of an earlier version: "%s"', async (name) => {
    const orderId = await order();
    await stores.sql.query(`UPDATE orders SET status = 'paid' WHERE id = $1`, [orderId]);
    await stores.sql.query(
      'INSERT INTO payment_notifications (id, order_id, amount_cents) VALUES ($1, $2, 500)',
      [`${name}n-${orderId}`, orderId],
    );
    for (const secret of [NEW, OTHER]) expect((await notify(orderId, { secret })).status).toBe(200);
    expect(await kindsOf(orderId)).toEqual([]);
  });

  it('refunds the payments of a cancelled order only when they are signed, each once', async () => {
    const orderId = await order();
    await call(`${signed.url}/orders/${orderId}/cancel`, { method: 'POST' });
    for (const wrong of [{ secret: FOREIGN }, { amountCents: 499 }])
      expect((await notify(orderId, wrong)).body).not.toHaveProperty('orderId');
    expect(await statusOf(orderId)).toBe('cancelled');
    expect(await kindsOf(orderId)).toEqual([]);
    for (const id of ['r-1', 'r-1', 'r-2']) await notify(orderId, { notificationId: `${id}-${orderId}` });
    expect([await statusOf(orderId), await kindsOf(orderId)]).toEqual(['refund-due', ['refund', 'refund']]);
  });
});
