/** The routes of one service: what they answer. Bad input: every-route.test.ts. */
import { beforeAll, describe, expect, it } from 'vitest';
import { type Answer, buy, call, createSale, eventually, post } from '../support/client.ts';
import { ROUTES } from '../support/every-route.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));
let url: string;
beforeAll(() => {
  url = service.url;
});

it('sales are made, listed newest first, and read', async () => {
  const window = { startsAt: '2030-01-01T00:00:00+02:00', endsAt: '2030-01-02T00:00:00Z' };
  const made = await createSale(url, 7, window);
  expect(made).toEqual({
    id: made.id,
    name: 'test',
    description: null,
    imageUrl: null,
    currency: 'USD',
    priceCents: 500,
    maxPerOrder: 1,
    paused: false,
    paymentWindowS: null,
    waitlist: 'notify',
    waitlistHoldS: null,
    stock: 7,
    sold: 0,
    remaining: 7,
    startsAt: '2029-12-31T22:00:00.000Z',
    endsAt: '2030-01-02T00:00:00.000Z',
  });
  expect((await call(`${url}/sales/${made.id}`)).body).toEqual(made);
  const list = (await call(`${url}/sales`)).body as unknown as { id: number }[];
  expect(list[0]).toEqual(made);
});

describe('points', () => {
  const award = { sourceType: 'review', sourceId: '42', points: 30 };

  it('are added once per source, however often they are sent, and conflict when it comes with other points', async () => {
    const send = () => post(`${url}/users/ann/points`, award);
    const isFinal = ({ status }: Answer) => status !== 503; // on a busy machine a request may wait too long for a connection
    const answers = await Promise.all(Array.from({ length: 20 }, () => eventually(send, isFinal)));
    expect(answers.filter((answer) => answer.status === 201).length).toBeLessThanOrEqual(1);
    expect(answers.filter((answer) => ![200, 201].includes(answer.status))).toEqual([]);
    expect(new Set(answers.map((answer) => JSON.stringify(answer.body))).size).toBe(1);
    const other = await post(`${url}/users/ann/points`, { ...award, points: 31 });
    expect(other).toMatchObject({ status: 409, problem: 'idempotency-conflict' });
    const account = (await call(`${url}/users/ann/points`)).body;
    expect(account).toMatchObject({ balance: 30, entries: [{ ...award }] });
  });
});

describe('the service', () => {
  it('describes every route that it has', async () => {
    const { paths } = (await call(`${url}/openapi.json`)).body as { paths: Record<string, object> };
    expect(
      Object.entries(paths)
        .flatMap(([path, item]) => Object.keys(item).map((method) => `${method} ${path}`))
        .sort(),
    ).toEqual(Object.keys(ROUTES).sort());
    expect((await call(`${url}/docs`)).body.text).toContain('/docs.js');
  });

  it.each(['/orders/x', '/sales', '/sales/1/orders?userId=a', '/users/a/points', '/readyz', '/nothing'])(
    'lets no cache keep %s',
    async (path) => {
      const { headers } = await call(`${url}${path}`);
      expect(headers.get('cache-control')).toBe('private, no-store');
    },
  );

  it('answers 202 with CONFIRM=accepted, and the order follows', async () => {
    await using fast = await startService({ ...envOf(stores), CONFIRM: 'accepted' });
    const { id } = await createSale(fast.url, 20);
    const answers = await Promise.all(Array.from({ length: 30 }, (_, i) => buy(fast.url, id, `u${i}`)));
    const accepted = answers.filter(({ status }) => status === 202 || status === 200); // 200: of a repeat
    expect(accepted).toHaveLength(20);
    await fast.stop(); // a stop commits what was acknowledged
    const { rows } = await stores.sql.query(`SELECT id FROM orders WHERE sale_id = $1`, [id]);
    expect(rows.map((row) => row.id).sort()).toEqual(accepted.map(({ body }) => body.orderId).sort());
  });
});
