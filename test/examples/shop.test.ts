/**
 * The shop of examples/shop, as a process on a real Stampede and Postgres: it is killed at each step, started again, and finishes by
 * itself what it had begun. A proxy on each of its three ways out sees the request of a step: `before`, the request does not arrive, and
 * the shop dies; `after`, the shop dies once the request is answered, and the answer is lost. The customer repeats what had no answer, as
 * a browser does.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openProvider, type Provider } from '../../examples/shop/provider.ts';
import { programEntry, type Started, startTool } from '../../lab/kit/processes.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { Stampede } from '../../src/client/index.ts';
import { createSale, eventually, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const [paymentSecret, TASK_WEBHOOK_SECRET, PROVIDER_SECRET] = ['p', 't', 'v'].map(
  (letter) => `whsec_${Buffer.alloc(32, letter).toString('base64')}`,
) as [string, string, string];
const PAYMENT_WEBHOOK_SECRETS = `provider:${paymentSecret}`;

const stores = opened(openTestStores);
/** To the shop, whose port changes with each start. */
const toShop = opened(() => TcpProxy.open({ port: 1 }));
const shopUrl = (path: string) => `http://127.0.0.1:${toShop.port}${path}`;
const provider = opened<Provider & AsyncDisposable>(async () => {
  const opened = await openProvider(shopUrl('/webhooks/provider'), PROVIDER_SECRET);
  return { ...opened, [Symbol.asyncDispose]: async () => opened.close() };
});
const service = opened(() =>
  startService({
    ...envOf(stores),
    PAYMENT_WEBHOOK_SECRETS,
    TASK_WEBHOOK_SECRET,
    TASK_WEBHOOK_URL: shopUrl('/webhooks/stampede'),
  }),
);
const links = {
  stampede: opened(() => TcpProxy.to(service.url)),
  postgres: opened(() => TcpProxy.to(stores.ownerUrl)),
  provider: opened(() => TcpProxy.to(provider.url)),
};

let shop: Started;
/** The shop makes one pass at its start, and none later: what is not armed sends nothing. */
async function startShop(PASS_MS = '3600000'): Promise<void> {
  let listens = (_port: number) => {};
  shop = startTool({
    command: [process.execPath, programEntry('shop')],
    env: {
      PATH: process.env.PATH,
      PORT: '0',
      PASS_MS,
      DATABASE_URL: links.postgres.through(stores.ownerUrl),
      STAMPEDE_URL: links.stampede.through(service.url),
      PROVIDER_URL: links.provider.through(provider.url).replace(/\/$/, ''),
      PAYMENT_WEBHOOK_SECRETS,
      TASK_WEBHOOK_SECRET,
      PROVIDER_SECRET,
    },
    onLine: (line) => {
      const port = /the shop listens on .*"port":(\d+)/.exec(line)?.[1];
      if (port !== undefined) listens(Number(port));
    },
  });
  toShop.lead(
    await shop.until<number>((found) => {
      listens = found;
    }),
  );
}
beforeAll(() => startShop());
afterAll(() => shop[Symbol.asyncDispose]());
afterEach(({ task }) => {
  if (task.result?.state === 'fail') console.log(shop.tail().join('\n'));
});

type When = 'before' | 'after';
/** Kills the shop at the next request on a link that has the marker. @returns how it ended */
async function dieAt(link: TcpProxy, marker: string, when: When): Promise<string> {
  await new Promise<void>((isTime) => {
    link.watch = (request) => {
      if (!request.includes(marker)) return 'pass';
      link.watch = null;
      if (when === 'after')
        return async () => {
          link.set('lose-replies');
          link.roundTrips = 0;
          await eventually(
            async () => link.roundTrips,
            (trips) => trips > 0,
          );
          isTime();
        };
      isTime();
      return 'drop';
    };
  });
  shop.signal('SIGKILL');
  return shop.ended;
}

/** Kills the shop, and starts it again. */
async function crashAt([on, marker, when]: Crash): Promise<void> {
  const link = links[on];
  expect(await dieAt(link, marker, when)).toBe('ended with SIGKILL');
  link.set('pass');
  await startShop();
}

interface Shown {
  readonly state: 'asked' | 'reserved' | 'paid' | 'refused';
  readonly reason: string | null;
  readonly payAt?: string;
}

/** The customer presses the button until there is an answer. */
async function checkout(saleId: number, userId: string): Promise<Shown> {
  const body = JSON.stringify({ saleId, userId });
  const headers = { 'content-type': 'application/json' };
  const press = async () => {
    const answer = await fetch(shopUrl('/checkout'), { method: 'POST', headers, body }).catch(() => null);
    return (await answer?.json().catch(() => null)) as Shown | null;
  };
  const shown = await eventually(
    press,
    (one) => one?.payAt !== undefined || one?.state === 'refused' || one?.state === 'paid',
  );
  return shown!;
}
const payAt = async (saleId: number, userId: string): Promise<string> => {
  const { payAt, ...other } = await checkout(saleId, userId);
  return payAt ?? expect.fail(JSON.stringify(other));
};
const shown = async (saleId: number, userId: string): Promise<string> => {
  const answer = await fetch(shopUrl(`/checkout/${saleId}/${userId}`)).catch(() => null);
  return ((await answer?.json().catch(() => null)) as Shown | null)?.state ?? 'nothing';
};
const pay = (url: string) => fetch(url, { method: 'POST' });
const orderOf = async (saleId: number, userId: string): Promise<string> =>
  (await stores.sql.query('SELECT id FROM orders WHERE sale_id = $1 AND user_id = $2', [saleId, userId]))
    .rows[0].id;
const statusOf = async (orderId: string): Promise<string> =>
  (await stores.sql.query('SELECT status FROM orders WHERE id = $1', [orderId])).rows[0].status;
const made = (kind: 'payments' | 'refunds' | 'parcels', name: string, value: unknown) =>
  [...provider.made[kind].values()].filter((one) => one[name] === value);

/** What is wrong, over all that has happened so far; also what has not ended. */
async function wrongs(): Promise<string[]> {
  const rows = async (text: string) => (await stores.sql.query(text)).rows;
  const orders = new Map<string, string>();
  for (const { id, status } of await rows('SELECT id, status FROM orders')) orders.set(id, status);
  const found: string[] = [];
  const must = (isSo: boolean, what: string) => isSo || found.push(what);
  for (const [id, status] of orders) {
    const payments = made('payments', 'orderId', id).filter((one) => provider.paid.has(one.id));
    const kept = payments.filter((one) => made('refunds', 'paymentId', one.id).length === 0);
    const isPaid = status === 'paid';
    must(kept.length === Number(isPaid), `${status} order ${id} has ${kept.length} payments`);
    const parcels = made('parcels', 'orderId', id).length;
    must(parcels === Number(isPaid), `${status} order ${id} has ${parcels} parcels`);
  }
  for (const id of provider.paid) {
    const payment = made('payments', 'id', id)[0]!;
    const buys = Number(orders.get(String(payment.orderId)) === 'paid');
    const refunds = made('refunds', 'paymentId', id);
    must(refunds.length === 1 - buys, `payment ${id} has ${refunds.length} refunds and ${buys} orders`);
    must(
      refunds.every((one) => one.amountCents === payment.amountCents),
      `payment ${id} has a refund of another amount`,
    );
  }
  for (const part of ['refunds', 'parcels'] as const)
    for (const { id, paymentId, orderId } of provider.made[part].values())
      must(provider.paid.has(String(paymentId)) || orders.has(String(orderId)), `${id} is of nothing`);
  const nothing = {
    'two orders of a customer': `SELECT sale_id, user_id FROM orders WHERE status IN ('pending', 'paid') GROUP BY 1, 2 HAVING count(*) > 1`,
    'an order that the shop does not have':
      "SELECT id FROM orders WHERE status = 'paid' AND id NOT IN (SELECT order_id FROM shop_orders WHERE state = 'paid')",
    'a row without its order':
      "SELECT * FROM shop_orders WHERE state = 'paid' AND order_id NOT IN (SELECT id FROM orders WHERE status = 'paid')",
    'an unfinished row': `SELECT user_id FROM shop_orders WHERE state = 'asked' UNION ALL
      SELECT id FROM shop_payments WHERE reported_at IS NULL UNION ALL SELECT key FROM shop_tasks WHERE done_at IS NULL`,
    'an unfinished task of Stampede':
      "SELECT key FROM tasks WHERE kind IN ('ship', 'refund') AND state <> 'done'",
    'an oversold sale': 'SELECT id FROM sales WHERE sold > stock OR oversold > 0',
  };
  for (const [what, text] of Object.entries(nothing))
    for (const row of await rows(text)) found.push(`${what}: ${JSON.stringify(row)}`);
  return found;
}
const allIsRight = () => expect.poll(wrongs).toEqual([]);

type Crash = readonly [on: keyof typeof links, marker: string, when: When];

describe('sells one unit for one payment, and ships it once', () => {
  it.each<[title: string, crash: Crash]>([
    ['before its row of the order', ['postgres', 'INSERT INTO shop_orders', 'before']],
    ['after its row of the order', ['postgres', 'INSERT INTO shop_orders', 'after']],
    ['before the request for units', ['stampede', '/orders HTTP', 'before']],
    ['after the request for units', ['stampede', '/orders HTTP', 'after']],
    ['before the row is reserved', ['postgres', 'SET state = CASE', 'before']],
    ['after the row is reserved', ['postgres', 'SET state = CASE', 'after']],
    ['before the order is held', ['stampede', '/extend HTTP', 'before']],
    ['after the order is held', ['stampede', '/extend HTTP', 'after']],
    ['after the payment page is made', ['provider', 'POST /payments', 'after']],
    ['before its row of the payment', ['postgres', 'INSERT INTO shop_payments', 'before']],
    ['after its row of the payment', ['postgres', 'INSERT INTO shop_payments', 'after']],
    ['before the payment is reported', ['stampede', 'POST /payments/notifications', 'before']],
    ['after the payment is reported', ['stampede', 'POST /payments/notifications', 'after']],
    ['before the row is paid', ['postgres', `SET state = 'paid'`, 'before']],
    ['before the payment counts as reported', ['postgres', 'UPDATE shop_payments SET', 'before']],
    ['before its row of the task to ship', ['postgres', 'INSERT INTO shop_tasks', 'before']],
    ['after its row of the task to ship', ['postgres', 'INSERT INTO shop_tasks', 'after']],
    ['before the parcel', ['provider', 'POST /parcels', 'before']],
    ['after the parcel', ['provider', 'POST /parcels', 'after']],
    ['before the parcel is marked', ['postgres', 'UPDATE shop_tasks SET', 'before']],
  ])('a shop killed %s', async (_, crash) => {
    const { id } = await createSale(service.url, 1);
    const crashed = crashAt(crash);
    await pay(await payAt(id, 'ann'));
    await crashed;
    await expect.poll(() => shown(id, 'ann')).toBe('paid');
    const orderId = await orderOf(id, 'ann');
    await expect.poll(() => made('parcels', 'orderId', orderId)).toHaveLength(1);
    await allIsRight();
    expect(await checkout(id, 'ann')).toMatchObject({ state: 'paid' });
    expect(await checkout(id, 'ben')).toMatchObject({ state: 'refused', reason: 'sold-out' });
  });
});

describe('refunds once what bought nothing', () => {
  it.each<[title: string, crash: Crash]>([
    ['after its row of the late payment', ['postgres', 'INSERT INTO shop_payments', 'after']],
    ['after the late payment is reported', ['stampede', 'POST /payments/notifications', 'after']],
    ['before its row of the refund', ['postgres', 'INSERT INTO shop_tasks', 'before']],
    ['after its row of the refund', ['postgres', 'INSERT INTO shop_tasks', 'after']],
    ['before the refund', ['provider', 'POST /refunds', 'before']],
    ['after the refund', ['provider', 'POST /refunds', 'after']],
    ['before the refund is marked', ['postgres', 'UPDATE shop_tasks SET', 'before']],
  ])('a shop killed %s', async (_, crash) => {
    const { id } = await createSale(service.url, 1);
    const anns = await payAt(id, 'ann');
    const orderId = await orderOf(id, 'ann');
    await stores.sql.query('UPDATE orders SET expires_at = clock_timestamp() WHERE id = $1', [orderId]);
    await expect.poll(() => statusOf(orderId)).toBe('expired');
    await pay(await payAt(id, 'ben'));
    await expect.poll(() => shown(id, 'ben')).toBe('paid');
    await allIsRight();
    const crashed = crashAt(crash);
    await pay(anns);
    await crashed;
    await expect.poll(() => statusOf(orderId)).toBe('refund-due');
    await allIsRight();
    expect(await checkout(id, 'ann')).toMatchObject({ state: 'refused', reason: 'sold-out' });
  });
});

describe('refunds once what is of no order', () => {
  it.each<[title: string, crash: Crash]>([
    ['before it decides to refund', ['postgres', 'WITH reported', 'before']],
    ['after it has decided to refund', ['postgres', 'WITH reported', 'after']],
  ])('a shop killed %s', async (_, crash) => {
    const orderId = randomUUID();
    const headers = { 'content-type': 'application/json', 'idempotency-key': orderId };
    const body = JSON.stringify({ orderId, amountCents: 700 });
    const page = await fetch(`${provider.url}/payments`, { method: 'POST', headers, body });
    const { id, url } = (await page.json()) as { id: string; url: string };
    const crashed = crashAt(crash);
    await pay(url);
    await crashed;
    await expect.poll(() => made('refunds', 'paymentId', id)).toHaveLength(1);
    await allIsRight();
  });
});

it('a late payment that revives an order wins over a checkout that saw the order expired', async () => {
  const { id } = await createSale(service.url, 1);
  const url = await payAt(id, 'ann');
  const orderId = await orderOf(id, 'ann');
  await stores.sql.query('UPDATE orders SET expires_at = clock_timestamp() WHERE id = $1', [orderId]);
  await expect.poll(() => statusOf(orderId)).toBe('expired');
  const held = links.postgres.holdRequest(`SET state = 'refused', reason = $3 WHERE order_id`);
  const returned = checkout(id, 'ann');
  await held;
  await pay(url);
  await expect.poll(() => shown(id, 'ann')).toBe('paid');
  await links.postgres.release();
  await returned;
  expect(await shown(id, 'ann')).toBe('paid');
  await allIsRight();
});

it('a paid order that is refunded before it is shipped is not shipped', async () => {
  const { id } = await createSale(service.url, 1);
  const url = await payAt(id, 'ann');
  const crashed = dieAt(links.provider, 'POST /parcels', 'before');
  await pay(url);
  await crashed;
  const orderId = await orderOf(id, 'ann');
  await post(`${service.url}/orders/${orderId}/refund`, {});
  await startShop();
  await allIsRight();
  expect(made('parcels', 'orderId', orderId)).toEqual([]);
  expect(await payAt(id, 'ann')).toMatch(/^http/);
});

it('an order that was passed to another customer is that of the other one in the shop', async () => {
  const { id } = await createSale(service.url, 2);
  const passOn = async (userId: string, toUserId: string) => {
    const url = `${service.url}/orders/${await orderOf(id, userId)}/transfer`;
    expect((await post(url, { toUserId })).status).toBe(200);
  };
  await pay(await payAt(id, 'ann'));
  await expect.poll(() => shown(id, 'ann')).toBe('paid');
  const url = await payAt(id, 'cid');
  const orderId = await orderOf(id, 'cid');
  await passOn('ann', 'ben');
  await passOn('cid', 'dan');
  for (const former of ['ann', 'cid']) {
    expect(await checkout(id, former)).toEqual({ state: 'refused', reason: 'transferred' });
    expect(await checkout(id, former)).toMatchObject({ state: 'refused', reason: 'sold-out' });
  }
  expect(await checkout(id, 'ben')).toMatchObject({ state: 'paid' });
  await pay(url);
  await expect.poll(() => statusOf(orderId)).toBe('paid');
  expect(await checkout(id, 'dan')).toMatchObject({ state: 'paid' });
  await allIsRight();
});

it('a step that fails is repeated without a start', async () => {
  await shop[Symbol.asyncDispose]();
  await startShop('50');
  const { id } = await createSale(service.url, 1);
  const url = await payAt(id, 'ann');
  links.stampede.set('refuse');
  links.provider.set('refuse');
  await pay(url);
  await expect.poll(() => shop.tail().join('\n')).toContain('report is repeated later');
  links.stampede.set('pass');
  await expect.poll(() => shown(id, 'ann')).toBe('paid');
  await expect.poll(() => shop.tail().join('\n')).toContain('carryOut is repeated later');
  links.provider.set('pass');
  await allIsRight();
});

it('a payment whose id is that of another one is not refunded: a person decides', async () => {
  const { id } = await createSale(service.url, 2);
  const url = await payAt(id, 'ann');
  await payAt(id, 'ben');
  const payment = made('payments', 'orderId', await orderOf(id, 'ann'))[0]!;
  const notification = { orderId: await orderOf(id, 'ben'), amountCents: payment.amountCents as number };
  const stampede = new Stampede({ url: service.url, paymentSecret });
  await stampede.reportPayment({ notificationId: payment.id, ...notification });
  await pay(url);
  await expect.poll(() => shop.tail().join('\n')).toContain('"reason":"conflict"');
  expect(made('refunds', 'paymentId', payment.id)).toEqual([]);
});
