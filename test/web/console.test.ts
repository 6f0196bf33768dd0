/** The console in a real browser: what it shows, and what administrators do with it. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { freePort } from '../../src/local/server-process.ts';
import { attempt, buy, call, createSale, pay, users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const service = opened(() => startService(envOf(stores)));
  const browser = opened(openBrowser);

  const consoleUrl = () => `${service.url}/console`;
  const saleNamed = async (name: string) =>
    (
      await stores.sql.query<{ id: number; stock: number }>('SELECT id, stock FROM sales WHERE name = $1', [
        name,
      ])
    ).rows[0];

  it('creates a sale, adds and cuts units, and audits it', async () => {
    await visit(browser, consoleUrl(), async (page) => {
      await page.waitForSelector('text=There is no sale yet');
      await page.click('text=New sale');
      await inspect(page);
      await page.fill('input[name=name]', 'Launch');
      await page.fill('input[name=stock]', '7');
      await page.click('text=Create the sale');
      const row = page.locator('.sale-row', { hasText: 'Launch' });
      await row.waitFor();
      expect((await saleNamed('Launch'))?.stock).toBe(7);
      await row.locator('input[name=units]').fill('5');
      await row.locator('button:text("Add")').click();
      await row.locator('text=12 of 12 left').waitFor();
      await row.locator('[aria-live] >> text=5 added: the stock is 12').waitFor();
      await row.locator('button:text("Cut")').click();
      await row.locator('text=7 of 7 left').waitFor();
      await row.locator('input[name=units]').fill('8');
      await row.locator('button:text("Cut")').click();
      await page.waitForSelector('text=has fewer than 8 unsold units');
      await row.locator('text=Audit').click();
      await page.waitForSelector('text=The stores agree');
      await row.locator('text=Load test').click();
      const command = await row.locator('pre').textContent();
      expect(command).toContain(`/sales/${(await saleNamed('Launch'))!.id}/orders`);
      await inspect(page);
    });
  });

  it('finds orders of a sale, cancels and refunds one and all of them, and exports them', async () => {
    const { id } = await createSale(service.url, 9, { name: 'Ordered', maxPerOrder: 2 });
    const orderOf = async (user: string, quantity = 1) =>
      (await buy(service.url, id, user, quantity)).body.orderId;
    const [ann, , dan] = [await orderOf('ann', 2), await orderOf('bob'), await orderOf('dan')];
    for (const [order, cents] of [
      [ann, 1_000],
      [dan, 500],
    ] as const)
      await pay(service.url, order, undefined, cents);
    await visit(browser, consoleUrl(), async (page) => {
      const row = page.locator('.sale-row', { hasText: `no. ${id} ` });
      await row.locator('summary:text("Orders")').click();
      await row.locator('text=2 for 10.00').waitFor();
      expect(await row.locator('.order-line b').allTextContents()).toEqual(['dan', 'bob', 'ann']);
      await inspect(page);
      await row.locator('input[type=search]').fill('AN');
      await expect.poll(() => row.locator('.order-line b').allTextContents()).toEqual(['dan', 'ann']);
      await row.locator('input[type=search]').fill('');
      await row.locator('select').selectOption('pending');
      await expect.poll(() => row.locator('.order-line b').allTextContents()).toEqual(['bob']);
      await row.locator('button:text-is("Cancel")').click();
      await row.locator('text=The order of bob is cancelled').waitFor();
      await row.locator('text=No order matches').waitFor();
      await row.locator('select').selectOption('');
      await row.locator('text=Units of closed orders return').click();
      await row.locator('[aria-label="Refund the order of ann"]').click();
      await row.locator('text=The order of ann is refunded').waitFor();
      await row.locator('text=6 of 7 left').waitFor();
      const download = page.waitForEvent('download');
      await row.locator('text=Export as CSV').click();
      const file = await (await download).path();
      expect(
        readFileSync(file, 'utf8')
          .split('\r\n')
          .slice(1, -1)
          .map((line) => line.split(',')[1]),
      ).toEqual(['dan', 'bob', 'ann']);
      await row.locator('text=Refund all…').click();
      await inspect(page);
      await row.locator('button:text-is("Refund all")').click();
      await row.locator('text=: 1 closed').waitFor();
      await row.locator('text=6 of 6 left').waitFor();
      await inspect(page);
    });
  });

  it('says why the orders of a sale are not listed, or not exported', async () => {
    const { id } = await createSale(service.url, 5, { name: 'Not read' });
    await visit(browser, consoleUrl(), async (page) => {
      const row = page.locator('.sale-row', { hasText: `no. ${id} ` });
      await page.route(`**/sales/${id}/orders?*`, (route) =>
        route.fulfill({
          status: 503,
          contentType: 'application/problem+json',
          body: JSON.stringify({ type: '/problems/busy', detail: 'Postgres is away.', reason: 'test' }),
        }),
      );
      await row.locator('summary:text("Orders")').click();
      await row.locator('.notice >> text=Postgres is away.').waitFor();
      await inspect(page);
      await page.unroute(`**/sales/${id}/orders?*`);
      await row.locator('text=No order matches').waitFor();
      expect(await row.locator('.notice').count()).toBe(0);
      await page.route('**/orders.csv*', (route) => route.abort('connectionreset'));
      await row.locator('text=Export as CSV').click();
      await row.locator('.notice >> text=The export failed').waitFor();
    });
  });

  it('sends a change again whose answer was lost, and it happens once', async () => {
    const { id } = await createSale(service.url, 5, { name: 'Lost answer' });
    await visit(browser, consoleUrl(), async (page) => {
      const keys: (string | undefined)[] = [];
      await page.route('**/restock', async (route) => {
        keys.push(route.request().headers()['idempotency-key']);
        if (keys.length > 1) return route.continue();
        expect((await route.fetch()).status()).toBe(200);
        await route.abort('connectionreset');
      });
      const row = page.locator('.sale-row', { hasText: `no. ${id} ` });
      await row.locator('input[name=units]').fill('3');
      await row.locator('button:text("Add")').click();
      await row.locator('text=3 added: the stock is 8').waitFor();
      expect(keys).toEqual([expect.stringMatching(/^[\w-]{10,}$/), keys[0]]);
    });
    expect((await call(`${service.url}/sales/${id}`)).body).toMatchObject({ stock: 8 });
  });

  it('changes a sale, pauses it and lets it go on', async () => {
    const { id } = await createSale(service.url, 7, {
      name: 'Changing',
      startsAt: '2026-01-01T10:00:00.123Z',
    });
    const saleNow = async () => (await call(`${service.url}/sales/${id}`)).body;
    await visit(browser, consoleUrl(), async (page) => {
      const row = page.locator('.sale-row', { hasText: `no. ${id} ` });
      await row.locator('summary:text("Change")').click();
      await row.locator('input[name=maxPerOrder]').fill('4');
      await row.locator('input[name=price]').fill('7.50');
      await inspect(page);
      await row.locator('text=Save the changes').click();
      await row.locator('text=up to 4 an order').waitFor();
      // What was not edited stays, to the millisecond.
      const changed = {
        maxPerOrder: 4,
        priceCents: 750,
        startsAt: '2026-01-01T10:00:00.123Z',
        paused: false,
      };
      expect(await saleNow()).toMatchObject(changed);
      await row.locator('button:text("Pause")').click();
      await row.locator('.pill:text("Paused")').waitFor();
      expect(await saleNow()).toMatchObject({ ...changed, paused: true });
      await inspect(page);
      await row.locator('button:text("Resume")').click();
      await row.locator('.pill:text("On sale")').waitFor();
      expect(await saleNow()).toMatchObject(changed);
    });
  });

  it('names a difference that an audit finds', async () => {
    const { id, name } = await createSale(service.url, 5, { name: 'Drifted' });
    await buy(service.url, id, 'ann');
    await stores.sql.query(`DELETE FROM points_entries WHERE user_id = 'ann'`);
    await visit(browser, consoleUrl(), async (page) => {
      const row = page.locator('.sale-row', { hasText: name });
      await row.locator('text=Audit').click();
      await row.locator('text=The stores differ').waitFor();
      await row.locator('text=1 orders have other points entries').waitFor();
      await inspect(page);
    });
  });

  it('says first by how much a sale is oversold, and when it was audited', async () => {
    const { id, name } = await createSale(service.url, 1, { name: 'Oversold' });
    await buy(service.url, id, 'bob');
    // Oversells as the strategy `unsafe` does.
    await stores.sql.query(
      `WITH second AS (
         INSERT INTO orders (id, sale_id, user_id, status, price_cents, expires_at)
         SELECT gen_random_uuid(), id, 'cat', 'pending', price_cents, now() + interval '1 hour' FROM sales WHERE id = $1
       ) UPDATE sales SET oversold = 1 WHERE id = $1`,
      [id],
    );
    await visit(browser, consoleUrl(), async (page) => {
      const row = page.locator('.sale-row', { hasText: name });
      await row.locator('text=Audit').click();
      await row.locator('strong:has-text("Oversold by 1: 2 are sold of a stock of 1")').waitFor();
      await row.locator('.notice time').waitFor();
      await inspect(page);
    });
  });

  it('shows an outage at the top, the age of its figures, and the strategy of a service that was started again', async () => {
    await using redis = await TcpProxy.open({ port: Number(new URL(stores.redisUrl).port) });
    const env = { DATABASE_URL: stores.databaseUrl, PORT: String(await freePort()) };
    await using first = await startService({ ...env, REDIS_URL: `redis://127.0.0.1:${redis.port}` });
    const { id } = await createSale(first.url, 40);
    await visit(browser, `${first.url}/console`, async (page) => {
      await page.waitForSelector('.pill:has-text("Live")');
      redis.set('lose-replies');
      const unknown = page.locator('dt:has-text("Unknown per second") + dd');
      let n = 0;
      await expect
        .poll(async () => {
          await attempt(first.url, id, `lost-${n++}`);
          return Number(await unknown.textContent());
        })
        .toBeGreaterThan(0);
      const notice = page.locator('.notice', { hasText: 'Redis does not answer' });
      await notice.waitFor();
      expect((await notice.boundingBox())!.y).toBeLessThan(300);
      await inspect(page);
      redis.set('refuse');
      await first.stop();
      await page.waitForSelector('text=As of');
      await inspect(page);
      await using _again = await startService({ ...env, REDIS_URL: 'none', STRATEGY: 'for-update' });
      await page.waitForSelector('h2:has-text("for-update")');
      await page.waitForSelector('.pill:has-text("Live")');
    });
  });

  it('shows live attempts', async () => {
    const { id } = await createSale(service.url, 40);
    await visit(browser, consoleUrl(), async (page) => {
      await page.waitForSelector('.pill:has-text("Live")');
      await page.waitForSelector('text=Postgres answers');
      await page.waitForSelector('canvas');
      const accepted = page.locator('.tiles .figure').first();
      let n = 0;
      await expect
        .poll(async () => {
          await Promise.all(users(3, `u-${n++}`).map((user) => buy(service.url, id, user)));
          return Number(await accepted.textContent());
        })
        .toBeGreaterThan(0);
      await inspect(page);
    });
  });

  it('is refused through a proxy, and says what to do', async () => {
    await visit(
      browser,
      consoleUrl(),
      async (page) => {
        await page.waitForSelector('text=Only this machine has access');
        await inspect(page);
      },
      { extraHTTPHeaders: { 'x-forwarded-for': '192.0.2.1' } },
    );
    const { problem } = await call(`${service.url}/console/events`, { headers: { via: 'a proxy' } });
    expect(problem).toBe('forbidden');
  });
});
