/** Tickets of services whose clocks are an hour ahead and an hour behind, beside one with the clock of the stores. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { post } from '../support/client.ts';
import { ownClocks } from '../support/clocks.ts';
import { openIssuer } from '../support/issuer.ts';
import { opened } from '../support/opened.ts';
import { startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores, published } from '../support/stores.ts';

const ADMIN = '0123456789abcdef';
const HOUR_MS = 3_600_000;
const CLOCKS = { right: 0, ahead: HOUR_MS, behind: -HOUR_MS } as const;
type Clock = keyof typeof CLOCKS;

const stores = opened(openTestStores);
const issuer = opened(openIssuer);
const services = new Map<Clock, TestService>();
const clocks = ownClocks();
beforeAll(async () => {
  const env = {
    ...envOf(stores),
    ...issuer.env,
    TICKET_SECRETS: Buffer.alloc(32, 'k').toString('base64'),
    ADMIN_TOKEN: ADMIN,
    ADMISSION_MS: '60000', // a slow machine answers late instead of `busy`
  };
  const start = async ([clock, aheadMs]: [string, number]) => {
    services.set(clock as Clock, await clocks.run(aheadMs, () => startService(env)));
  };
  await Promise.all(Object.entries(CLOCKS).map(start));
});
afterAll(() => Promise.all([...services.values()].map((service) => service.stop())));

const send = (clock: Clock, path: string, token: string, body: object = {}) =>
  post(services.get(clock)!.url + path, body, token);
const at = (aheadMs: number) => new Date(Date.now() + aheadMs).toISOString();
async function sell(more: object = {}): Promise<number> {
  const { body } = await send('right', '/sales', ADMIN, { name: 'sale', stock: 9, priceCents: 1, ...more });
  return body.id as number;
}
const ticketOf = (clock: Clock, saleId: number, token: string) =>
  send(clock, `/sales/${saleId}/tickets`, token);

it.each(['ahead', 'behind'] as const)(
  'a process whose clock is %s issues tickets until the sale has ended by the clock of Postgres',
  async (clock) => {
    const running = await sell({ endsAt: at(HOUR_MS / 2) });
    const ended = await sell({ startsAt: at(-HOUR_MS), endsAt: at(-HOUR_MS / 2) });
    const token = await issuer.token('ann');
    expect(await ticketOf(clock, running, token)).toMatchObject({ status: 201 });
    expect(await ticketOf(clock, ended, token)).toMatchObject({ status: 409, problem: 'sale-not-open' });
  },
);

it.each(['ahead', 'behind'] as const)(
  'a process whose clock is %s lets a customer wait after unpaid orders as long as the others',
  async (clock) => {
    const token = await issuer.token(`fickle-${clock}`);
    const saleId = await sell();
    const { ticket } = (await ticketOf('right', saleId, token)).body;
    for (let n = 0; n < 3; n++) {
      const { body } = await send('right', `/sales/${saleId}/orders`, ticket as string);
      expect((await send('right', `/orders/${body.orderId}/cancel`, token)).status).toBe(200);
      await published(stores);
    }
    const { status, headers } = await ticketOf(clock, saleId, token);
    expect(status).toBe(429);
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(30);
    expect(Number(headers.get('retry-after'))).toBeLessThanOrEqual(60);
  },
);

it('a ticket of one process is accepted by all', async () => {
  for (const issued of services.keys())
    for (const used of services.keys()) {
      const saleId = await sell();
      const { ticket } = (await ticketOf(issued, saleId, await issuer.token(`${issued}-${used}`))).body;
      const answer = await send(used, `/sales/${saleId}/orders`, ticket as string);
      expect(answer, `${issued}, ${used}`).toMatchObject({ status: 201 });
    }
});

it('a process whose clock is ahead delays no turn that another gives', async () => {
  const saleId = await sell();
  await ticketOf('ahead', saleId, await issuer.token('early'));
  const { body } = await ticketOf('right', saleId, await issuer.token('late'));
  expect(Date.parse(body.notBefore as string)).toBeLessThan(Date.now() + HOUR_MS / 2);
});
