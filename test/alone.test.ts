/** REDIS_URL=none: a whole service on Postgres alone. The contracts of strategies and tickets are tested elsewhere. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buy, call, createSale, post } from './support/client.ts';
import { opened } from './support/opened.ts';
import { startService, type TestService } from './support/service.ts';
import { envOf, openTestStores } from './support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './web/browser.ts';

const stores = opened(openTestStores);
const env = () => ({ ...envOf(stores), REDIS_URL: 'none' });
let service: TestService;

beforeAll(async () => {
  service = await startService(env());
});
afterAll(() => service?.stop());

it('handles tasks and points, and reports Postgres as its only store', async () => {
  const { id } = await createSale(service.url, 1);
  const { orderId } = (await buy(service.url, id, 'ann')).body;
  const paid = { notificationId: `p-${id}`, orderId, amountCents: 500 };
  expect((await post(`${service.url}/payments/notifications`, paid)).status).toBe(200);
  const states = `SELECT DISTINCT state FROM tasks WHERE payload ->> 'orderId' = $1`;
  await expect.poll(() => stores.sql.query(states, [orderId])).toMatchObject({ rows: [{ state: 'done' }] });
  expect((await call(`${service.url}/users/ann/points`)).body).toMatchObject({ balance: 5 });
  expect((await call(`${service.url}/readyz`)).body).toEqual({ status: 'ok', stores: { postgres: 'ok' } });
  expect((await call(`${service.url}/sales/${id}/audit`)).body).toMatchObject({ agrees: true });
  expect(service.log.join('\n')).not.toMatch(/redis/i);
});

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const browser = opened(openBrowser);

  it('the shop sells, and the console shows no Redis', async () => {
    const { id, name } = await createSale(service.url, 3, { name: 'Alone' });
    await visit(browser, `${service.url}/shop/${id}`, async (page) => {
      await page.fill('input[name=customer]', 'bob');
      await page.click('button.primary');
      await page.waitForSelector('text=Your order is reserved');
      await page.click('text=(demo)');
      await page.waitForSelector('text=Your order is paid');
      await inspect(page);
    });
    await visit(browser, `${service.url}/console`, async (page) => {
      await page.waitForSelector('text=Postgres answers');
      await page.waitForSelector('text=decides in Postgres');
      const row = page.locator('.sale-row', { hasText: name });
      await row.locator('text=Audit').click();
      await row.locator('text=Postgres agrees with itself').waitFor();
      await inspect(page);
      expect(await page.locator('#app').textContent()).not.toMatch(/redis/i);
    });
  });
});
