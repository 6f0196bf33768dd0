/** The shop in a real browser: one order whatever happens, and every state readable by everyone. */
import { randomUUID } from 'node:crypto';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { attempt, buy, call, cancel, createSale, patch, pay, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const service = opened(() => startService(envOf(stores)));
  const browser = opened(openBrowser);

  const shop = (saleId: number) => `${service.url}/shop/${saleId}`;
  const newName = () => `c-${randomUUID().slice(0, 8)}`;
  const ordersOf = async (saleId: number, name: string) =>
    (
      await stores.sql.query<{ status: string }>(
        'SELECT status FROM orders WHERE sale_id = $1 AND user_id = $2 ORDER BY created_at',
        [saleId, name],
      )
    ).rows.map(({ status }) => status);
  const inMs = (ms: number) => new Date(Date.now() + ms).toISOString();
  const HOUR_MS = 3_600_000;

  const problem = (status: number, slug: string) => ({
    status,
    contentType: 'application/problem+json',
    body: JSON.stringify({ type: `/problems/${slug}`, detail: slug }),
  });

  async function press(page: Page, name: string): Promise<void> {
    await page.fill('input[name=customer]', name);
    await page.click('button.primary');
  }

  it('buys, pays and shows the order again after a reload', async () => {
    const { id } = await createSale(service.url, 3);
    const name = newName();
    await visit(browser, shop(id), async (page) => {
      await inspect(page);
      await press(page, name);
      await page.waitForSelector('text=Your order is reserved');
      await page.waitForSelector('.product >> text=of 3 left');
      await expect.poll(() => page.locator('.product .numeral').textContent()).toBe('2');
      await inspect(page);
      await page.reload();
      await page.click('text=(demo)');
      await page.waitForSelector('text=Your order is paid');
      await inspect(page);
    });
    expect(await ordersOf(id, name)).toEqual(['paid']);
  });

  it('finds the order after a reload also when its reads are lost at first', async () => {
    const { id } = await createSale(service.url, 1);
    await visit(browser, shop(id), async (page) => {
      await press(page, newName());
      await page.waitForSelector('text=Your order is reserved');
      let isLosing = true;
      await page.route(`**/sales/${id}/orders?*`, (route) =>
        isLosing ? route.abort('connectionreset') : route.continue(),
      );
      await page.reload();
      await page.waitForSelector('text=Looking for your order');
      await inspect(page);
      isLosing = false;
      await page.waitForSelector('text=Your order is reserved');
      expect(await page.locator('text=Looking for your order').count()).toBe(0);
    });
  });

  it('sends one request when the button is pressed many times, and gets one order', async () => {
    const { id } = await createSale(service.url, 3);
    const name = newName();
    await visit(browser, shop(id), async (page) => {
      const sent: string[] = [];
      page.on('request', (request) => request.method() === 'POST' && sent.push(request.url()));
      await page.fill('input[name=customer]', name);
      await page.evaluate(
        `(() => { const button = document.querySelector('button.primary'); for (let i = 0; i < 10; i++) button.click(); })()`,
      );
      await page.waitForSelector('text=Your order is reserved');
      expect(sent).toHaveLength(1);
    });
    expect(await ordersOf(id, name)).toEqual(['pending']);
  });

  it('buys several units, shows what fewer are left, and follows a pause and a changed limit', async () => {
    const { id } = await createSale(service.url, 5, { maxPerOrder: 3 });
    const name = newName();
    await visit(browser, shop(id), async (page) => {
      await page.fill('input[name=customer]', name);
      for (let n = 0; n < 2; n++) await page.click('[aria-label="One unit more"]');
      expect(await page.isDisabled('[aria-label="One unit more"]')).toBe(true);
      await page.waitForSelector('button:text("Buy for 15.00")');
      await inspect(page);
      await page.click('button.primary');
      await page.waitForSelector('dd:text-is("3")');
      await page.waitForSelector('text=Pay 15.00 (demo)');
      await inspect(page);
      await page.click('text=(demo)');
      await page.waitForSelector('text=Your order is paid');
    });
    const few = (await createSale(service.url, 3, { maxPerOrder: 3 })).id;
    const overtaken = async (page: Page) => {
      await page.fill('input[name=customer]', newName());
      await page.click('[aria-label="One unit more"]');
      await buy(service.url, few, newName(), 2);
      await page.click('button.primary');
      await page.waitForSelector('text=Only 1 left');
      await inspect(page);
    };
    // No event tells this page what others buy.
    const uninformed = (page: Page) => page.route('**/events', (route) => route.abort('connectionreset'));
    await visit(browser, shop(few), overtaken, {}, uninformed);
    await patch(`${service.url}/sales/${few}`, { paused: true });
    await visit(browser, shop(few), async (page) => {
      await page.waitForSelector('button:text-is("Paused")');
      await inspect(page);
      await patch(`${service.url}/sales/${few}`, { paused: false, maxPerOrder: 1 });
      await page.waitForSelector('button:text("Buy for")');
      expect(await page.locator('[aria-label="One unit more"]').count()).toBe(0);
      await patch(`${service.url}/sales/${few}`, { priceCents: 1_250 });
      await page.waitForSelector('button:text("Buy for 12.50")');
    });
  });

  it('cancels, and buys again', async () => {
    const { id } = await createSale(service.url, 1);
    const name = newName();
    await visit(browser, shop(id), async (page) => {
      await press(page, name);
      await page.click('text=Cancel the order');
      await page.waitForSelector('text=Your order is cancelled');
      await page.waitForSelector('h2:focus:has-text("Your order")');
      await page.waitForSelector('button.primary:has-text("Buy for")');
      await inspect(page);
      await press(page, name);
      await page.waitForSelector('text=Your order is reserved');
    });
    expect(await ordersOf(id, name)).toEqual(['cancelled', 'pending']);
  });

  it('shows that it is sold out, and sells a unit that is released', async () => {
    const { id } = await createSale(service.url, 1);
    const first = await buy(service.url, id, 'first');
    const name = newName();
    await visit(browser, shop(id), async (page) => {
      await page.waitForSelector('button:disabled:has-text("Sold out")');
      await inspect(page);
      await cancel(service.url, first.body.orderId);
      await page.waitForSelector('button.primary:has-text("Buy for")');
      await press(page, name);
      await page.waitForSelector('text=Your order is reserved');
    });
  });

  it('counts down by the clock of the store, whatever the clock of the visitor says, and opens by itself', async () => {
    const { id } = await createSale(service.url, 1, { startsAt: inMs(HOUR_MS), endsAt: inMs(2 * HOUR_MS) });
    const startsIn = (ms: number) => patch(`${service.url}/sales/${id}`, { startsAt: inMs(ms) });
    const open = async (page: Page) => {
      await page.waitForSelector('text=Opens in');
      expect(await page.locator('[role=timer]').textContent()).toMatch(/^(5\d|01:00):\d\d$/);
      await expect.poll(() => startsIn(3_000)).toMatchObject({ status: 200 });
      await page.waitForSelector('button.primary:has-text("Buy for")');
      await press(page, newName());
      await page.waitForSelector('text=Your order is reserved');
    };
    const yesterday = inMs(-24 * HOUR_MS);
    await visit(browser, shop(id), open, {}, (page) => page.clock.setSystemTime(yesterday));
    const later = await createSale(service.url, 1, { startsAt: inMs(HOUR_MS) });
    await visit(browser, shop(later.id), async (page) => {
      await page.waitForSelector('button:disabled:has-text("Not open yet")');
      await inspect(page);
    });
  });

  it('retries after a lost response, and gets one order', async () => {
    const { id } = await createSale(service.url, 3);
    const name = newName();
    let isLosing = true;
    await visit(browser, shop(id), async (page) => {
      await page.route(`**/sales/${id}/orders`, async (route) => {
        if (!isLosing) return route.continue();
        await route.fetch(); // the service has answered
        return route.abort('connectionreset');
      });
      await press(page, name);
      await page.waitForSelector('text=No response came, and your order may exist');
      isLosing = false;
      expect(await ordersOf(id, name)).toEqual(['pending']);
      await inspect(page);
      await page.waitForSelector('text=Your order is reserved');
    });
    expect(await ordersOf(id, name)).toEqual(['pending']);
  });

  it('finds the order of a lost response after the visitor stopped waiting, also when it appears later', async () => {
    const { id } = await createSale(service.url, 3);
    const name = newName();
    let [isStopped, isThere, looks] = [false, false, 0];
    await visit(browser, shop(id), async (page) => {
      await page.route(`**/sales/${id}/orders`, async (route) => {
        await route.fetch(); // the service has answered
        return route.abort('connectionreset');
      });
      await page.route(`**/sales/${id}/orders?*`, (route) => {
        if (isThere) return route.continue();
        if (isStopped) looks++;
        // The later ones say nothing, so that a slow test does not end the search.
        return route.fulfill(looks > 1 ? problem(503, 'busy') : problem(404, 'unknown-order'));
      });
      await press(page, name);
      await page.waitForSelector('text=No response came, and your order may exist');
      isStopped = true;
      await page.click('text=Stop waiting');
      await expect.poll(() => looks).toBeGreaterThan(1);
      await page.waitForSelector('text=Looking for your order');
      await inspect(page);
      isThere = true;
      await page.waitForSelector('text=Your order is reserved');
    });
    expect(await ordersOf(id, name)).toEqual(['pending']);
  });

  it('waits as long as Retry-After says when the shop is busy, and can stop', async () => {
    const { id } = await createSale(service.url, 3);
    const name = newName();
    await visit(browser, shop(id), async (page) => {
      const sentMs: number[] = [];
      let isBusy = true;
      await page.route(`**/sales/${id}/orders`, async (route) => {
        sentMs.push(performance.now());
        if (!isBusy && sentMs.length > 2) return route.continue();
        return route.fulfill({
          status: 503,
          headers: { 'Retry-After': '2' },
          contentType: 'application/problem+json',
          body: JSON.stringify({ type: '/problems/busy', detail: 'busy', reason: 'overloaded' }),
        });
      });
      await press(page, name);
      await page.waitForSelector('text=The shop is very busy');
      await inspect(page);
      isBusy = false;
      await page.waitForSelector('text=Your order is reserved');
      expect(sentMs[1]! - sentMs[0]!).toBeGreaterThan(1_950);
    });
  });

  it('takes the error of a proxy for a lost answer, and finds the order', async () => {
    const { id } = await createSale(service.url, 3);
    const name = newName();
    await visit(browser, shop(id), async (page) => {
      await page.route(`**/sales/${id}/orders`, async (route) => {
        await route.fetch(); // the order is placed
        await route.fulfill({
          status: 502,
          contentType: 'application/json',
          body: '{"message":"Bad Gateway"}',
        });
        await page.unroute(`**/sales/${id}/orders`);
      });
      await press(page, name);
      await page.waitForSelector('text=your order may exist');
      await page.waitForSelector('text=Your order is reserved');
    });
    expect((await call(`${service.url}/sales/${id}`)).body.sold).toBe(1);
  });

  it('explains why an attempt is refused', async () => {
    const { id } = await createSale(service.url, 1);
    await visit(browser, shop(id), async (page) => {
      await page.route('**/orders', async (route) => {
        if (route.request().method() === 'POST') await buy(service.url, id, 'faster');
        await route.continue();
      });
      await press(page, newName());
      await page.waitForSelector('text=Another customer got the last unit');
      await inspect(page);
    });
    await visit(browser, `${service.url}/shop/999999`, async (page) => {
      await page.waitForSelector('text=There is no such sale');
      await inspect(page);
    });
  });

  it('works by keyboard alone, and announces the order', async () => {
    const { id } = await createSale(service.url, 1);
    await visit(browser, shop(id), async (page) => {
      await page.focus('input[name=customer]');
      await page.keyboard.type(newName());
      await page.keyboard.press('Enter');
      await page.waitForSelector('text=Your order is reserved');
      expect(await page.evaluate('document.activeElement.textContent')).toBe('Your order is reserved');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await page.waitForSelector('h2:focus:has-text("Your order is paid")');
    });
  });

  it('shows an ended sale, an order that expired, and a payment that came too late', async () => {
    const { id } = await createSale(service.url, 2, { endsAt: inMs(1_500) });
    await visit(browser, shop(id), async (page) => {
      await page.waitForSelector('button:disabled:has-text("This sale has ended")');
      await inspect(page);
    });
    const other = await createSale(service.url, 1);
    const name = newName();
    await visit(browser, shop(other.id), async (page) => {
      await press(page, name);
      await page.waitForSelector('text=Your order is reserved');
      await stores.sql.query(`UPDATE orders SET expires_at = now() WHERE user_id = $1`, [name]);
      await page.waitForSelector('text=Your order expired');
      await inspect(page);
      expect((await attempt(service.url, other.id, 'next')).status).toBe(201);
      const mine = await stores.sql.query<{ id: string }>('SELECT id FROM orders WHERE user_id = $1', [name]);
      await pay(service.url, mine.rows[0]!.id);
      await page.waitForSelector('text=Your payment came too late');
    });
  });

  it('has a policy that allows no script but its own, and pages of a bounded size', async () => {
    const { headers, status } = await call(`${service.url}/`);
    expect(status).toBe(200);
    expect(headers.get('content-security-policy')).toContain("script-src 'self';");
    expect((await post(`${service.url}/`, {})).status).toBe(404);
  });
});
