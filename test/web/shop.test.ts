/** The shop in a real browser: one journey through its states, each readable by everyone. What it sends and when: shop-state.test.ts. */
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { attempt, buy, call, cancel, createSale, patch, pay, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

/** Collects layout shifts from now on. */
const WATCH = `window.shifts?.disconnect(); window.score = 0;
  window.add = (entries) => { for (const { value } of entries) window.score += value; };
  window.shifts = new PerformanceObserver((list) => window.add(list.getEntries()));
  window.shifts.observe({ type: 'layout-shift' });`;
/** Their sum once two more frames are drawn. */
const SCORE = `new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => {
  window.add(window.shifts.takeRecords());
  resolve(window.score);
})))`;

/** What the oldest browsers of scripts/build.js lack, and a storage that is blocked. */
const OLDER = `delete AbortSignal.any; delete Promise.withResolvers;
  Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('', 'SecurityError'); } });`;

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const service = opened(() => startService(envOf(stores)));
  const browser = opened(openBrowser);

  const shop = (saleId: number) => `${service.url}/shop/${saleId}`;
  const NAME = 'customer';
  const ordersOf = async (saleId: number) =>
    (
      await stores.sql.query<{ status: string }>(
        'SELECT status FROM orders WHERE sale_id = $1 AND user_id = $2 ORDER BY created_at',
        [saleId, NAME],
      )
    ).rows.map(({ status }) => status);
  const inMs = (ms: number) => new Date(Date.now() + ms).toISOString();
  const HOUR_MS = 3_600_000;

  /** Opens a sale, as the same visitor. */
  async function open(page: Page, stock: number, more: object = {}): Promise<number> {
    const { id } = await createSale(service.url, stock, more);
    await page.goto(shop(id));
    return id;
  }
  async function press(page: Page): Promise<void> {
    await page.fill('input[name=customer]', NAME);
    await page.click('button[type=submit]');
  }
  const shows = async (page: Page, text: string) => {
    await page.waitForSelector(text);
    await inspect(page);
  };

  async function waitsForTheStart(page: Page): Promise<number> {
    const id = await open(page, 5, { startsAt: inMs(HOUR_MS), endsAt: inMs(2 * HOUR_MS), maxPerOrder: 3 });
    await shows(page, 'button:disabled:has-text("Not open yet")');
    expect(await page.locator('[role=timer]').textContent()).toMatch(/^(5\d|01:00):\d\d$/);
    await patch(`${service.url}/sales/${id}`, { startsAt: inMs(1_000) });
    await page.waitForSelector('button.primary:has-text("Buy for")');
    return id;
  }

  async function buysAndPays(page: Page, id: number): Promise<void> {
    const sent: string[] = [];
    page.on('request', (request) => request.method() === 'POST' && sent.push(request.url()));
    await page.fill('input[name=customer]', NAME);
    for (let n = 0; n < 2; n++) await page.click('[aria-label="One unit more"]');
    expect(await page.isDisabled('[aria-label="One unit more"]')).toBe(true);
    await shows(page, 'button:text("Buy for $15.00")');
    await page.evaluate(
      `(() => { const button = document.querySelector('button.primary'); for (let i = 0; i < 10; i++) button.click(); })()`,
    );
    await page.waitForSelector('text=Your order is reserved');
    expect(sent).toHaveLength(1);
    await page.waitForSelector('dd:text-is("3 × $5.00")');
    await page.waitForSelector('.stock:text-is("2 of 5 left")');
    await inspect(page);
    await page.reload();
    await page.click('text=Pay $15.00 (demo)');
    await shows(page, 'text=Your order is paid');
    expect(await ordersOf(id)).toEqual(['paid']);
  }

  async function losesAnswers(page: Page): Promise<void> {
    const id = await open(page, 1);
    let isLosing = true;
    await page.route(`**/sales/${id}/orders*`, async (route) => {
      if (!isLosing) return route.continue();
      if (route.request().method() === 'POST') await route.fetch(); // the service has answered
      return route.abort('connectionreset');
    });
    await press(page);
    await shows(page, 'text=No response came, and your order may exist');
    await page.click('text=Stop waiting');
    await shows(page, 'text=Looking for your order');
    await page.reload();
    await page.waitForSelector('text=Looking for your order');
    isLosing = false;
    await page.waitForSelector('text=Your order is reserved');
    expect(await page.locator('text=Looking for your order').count()).toBe(0);
    await page.click('text=Cancel the order');
    await shows(page, 'h2:focus:text-is("Your order is cancelled")');
    await press(page);
    await page.waitForSelector('text=Your order is reserved');
    expect(await ordersOf(id)).toEqual(['cancelled', 'pending']);
  }

  async function isLate(page: Page): Promise<void> {
    const id = await open(page, 1);
    await press(page);
    await page.waitForSelector('text=Your order is reserved');
    const mine = await stores.sql.query<{ id: string }>(
      'UPDATE orders SET expires_at = now() WHERE sale_id = $1 RETURNING id',
      [id],
    );
    await shows(page, 'text=Your order expired');
    expect((await attempt(service.url, id, 'next')).status).toBe(201);
    await pay(service.url, mine.rows[0]!.id);
    await page.waitForSelector('text=Your payment came too late');
    await page.waitForSelector('dt:text("Refund") + dd:text("$5.00")');
  }

  it('a visitor waits for the start, buys and pays; loses an answer, cancels, and buys again; is late', async () => {
    const yesterday = inMs(-24 * HOUR_MS);
    await visit(
      browser,
      service.url,
      async (page) => {
        await buysAndPays(page, await waitsForTheStart(page));
        await losesAnswers(page);
        await isLate(page);
      },
      {},
      (page) => page.clock.setSystemTime(yesterday), // the clock of the store counts
    );
  });

  it('a visitor joins the waitlist of a sold-out sale, leaves it, waits again, and buys the unit that came back', async () => {
    await visit(browser, service.url, async (page) => {
      const { id } = await createSale(service.url, 2, { maxPerOrder: 2 });
      const { orderId } = (await buy(service.url, id, 'first', 2)).body;
      await page.goto(shop(id));
      await page.fill('input[name=customer]', NAME);
      await page.click('[aria-label="One unit more"]');
      await page.waitForSelector('text=whoever buys first');
      // The API refuses it with a strategy that decides in Redis.
      const holds = `UPDATE sales SET waitlist = $2, waitlist_hold_s = 900 WHERE id = $1`;
      await stores.sql.query(holds, [id, 'hold']);
      await page.reload();
      await page.waitForSelector('text=your units are reserved for you for 15 min');
      await stores.sql.query(holds, [id, 'notify']);
      await page.reload();
      await page.click('[aria-label="One unit more"]');
      await page.click('text=Join the waitlist');
      await shows(page, 'text=You are on the waitlist');
      await page.waitForSelector('text=You are waiting for 2 units');
      await page.waitForSelector('text=whoever buys first');
      await page.click('text=Leave the waitlist');
      await page.waitForSelector('button:text("Join the waitlist")');
      const entry = `${service.url}/sales/${id}/waitlist/${NAME}`;
      expect((await call(entry)).status).toBe(404);
      await page.click('text=Join the waitlist');
      await page.waitForSelector('text=Your place in line');
      await page.reload();
      await page.waitForSelector('text=Your place in line');
      await cancel(service.url, orderId);
      await shows(page, 'text=You are next: a unit is free');
      await page.click('button.primary');
      await page.waitForSelector('text=Your order is reserved');
      expect(await ordersOf(id)).toEqual(['pending']);
    });
  });

  it('a visitor with a code buys before the sale opens, as many as the limit of related sales allows', async () => {
    await visit(browser, service.url, async (page) => {
      const later = { startsAt: inMs(HOUR_MS), maxPerOrder: 5, limitGroup: 'spring', maxPerCustomer: 2 };
      const { id } = await createSale(service.url, 9, later);
      const codes = [{ code: 'EARLY-1', uses: 1 }];
      await post(`${service.url}/sales/${id}/groups`, { name: 'members', opensAt: inMs(-HOUR_MS), codes });
      await patch(`${service.url}/sales/${id}`, { paused: true });
      await page.goto(shop(id));
      await page.waitForSelector('text=You can buy here when it goes on and has opened');
      await page.waitForSelector('.countdown:has-text("Opens in")');
      await shows(page, 'text=With a code you can buy before the sale opens.');
      await patch(`${service.url}/sales/${id}`, { paused: false });
      await page.waitForSelector('text=2 per customer, together with related sales');
      await page.click('[aria-label="One unit more"]');
      expect(await page.isDisabled('[aria-label="One unit more"]')).toBe(true);
      await page.fill('input[name=code]', 'early-1');
      await press(page);
      await shows(page, 'text=This code is not valid here');
      await page.fill('input[name=code]', 'EARLY-1');
      await press(page);
      await shows(page, 'text=Your order is reserved');
      const other = await open(page, 9, { limitGroup: 'spring', maxPerCustomer: 2 });
      await press(page);
      await shows(page, 'text=You have reached your limit');
      expect([await ordersOf(id), await ordersOf(other)]).toEqual([['pending'], []]);
    });
  });

  it('a visitor reads what is wrong with a name, and the number of a paid order, by which support finds it', async () => {
    await visit(browser, service.url, async (page) => {
      const id = await open(page, 2, { description: 'First line\n<b>Second</b>' });
      await page.waitForSelector('.about:has-text("<b>Second</b>")');
      await page.fill('input[name=customer]', 'not a name');
      await page.click('button.primary');
      await shows(page, 'text=letters, digits');
      expect(await page.locator('input[name=customer]:focus').count()).toBe(1);
      await page.fill('input[name=customer]', `${NAME} `); // as a keyboard's suggestion ends
      await page.click('button.primary');
      await page.click('text=Pay $5.00 (demo)');
      await page.waitForSelector('text=Your order is paid');
      const number = await page.locator('dt:text("Order") + dd').textContent();
      const orders = (await call(`${service.url}/sales/${id}/orders?search=${number}`)).body;
      expect(orders).toMatchObject([{ userId: NAME, status: 'paid' }]);
    });
  });

  it('nothing moves when the state of the page changes: the browser counts less than 0.02 in each state, on a phone and a desktop', async () => {
    for (const [width, height] of [
      [390, 1_400],
      [1280, 1_000],
    ] as const)
      await visit(
        browser,
        service.url,
        async (page) => {
          const observed = { startsAt: inMs(HOUR_MS), endsAt: inMs(2 * HOUR_MS), description: 'About it' };
          const id = await open(page, 1, observed);
          /** The score of the state that an act leads to, also within half a second of a press, which the browser's own score leaves out. */
          const after = async (act: () => Promise<unknown>, text: string) => {
            await page.evaluate(WATCH);
            await act();
            await page.waitForSelector(text);
            expect(await page.evaluate<number>(SCORE), text).toBeLessThan(0.02);
          };
          await page.waitForSelector('text=Not open yet');
          await page.fill('input[name=customer]', NAME);
          await after(() => patch(`${service.url}/sales/${id}`, { startsAt: inMs(0) }), 'text=Buy for');
          let orderId: unknown;
          await after(
            async () => ({ orderId } = (await buy(service.url, id, 'faster')).body),
            'text=Join the waitlist',
          );
          await after(() => page.click('text=Join the waitlist'), 'text=You are on the waitlist');
          await after(() => cancel(service.url, String(orderId)), 'text=You are next: a unit is free');
          await after(() => page.click('button.primary'), 'text=Your order is reserved');
          await after(() => page.click('text=(demo)'), 'text=Your order is paid');
          const mine = (await call(`${service.url}/sales/${id}/orders?userId=${NAME}`)).body;
          await after(
            () => post(`${service.url}/orders/${mine.orderId}/refund`, {}),
            'text=Your order will be refunded',
          );
          await after(
            () => patch(`${service.url}/sales/${id}`, { paused: true }),
            'text=The shop has paused the sale',
          );
          await after(
            () => patch(`${service.url}/sales/${id}`, { paused: false, endsAt: inMs(0) }),
            'text=This sale has ended',
          );
        },
        { viewport: { width, height } },
      );
  });

  it('a visitor sees what others and administrators change, and keeps what is typed, also in an older browser that blocks storage', async () => {
    const use = async (page: Page) => {
      const id = await open(page, 1, { maxPerOrder: 3 });
      await page.fill('input[name=customer]', NAME);
      const { orderId } = (await buy(service.url, id, 'faster')).body;
      await shows(page, 'button:text("Join the waitlist")');
      await cancel(service.url, orderId);
      await page.waitForSelector('button.primary:has-text("Buy for")');
      await shows(page, 'text=Back on sale');
      expect(await page.inputValue('input[name=customer]')).toBe(NAME);
      await page.route('**/orders', async (route) => {
        if (route.request().method() === 'POST') await buy(service.url, id, 'fastest');
        await route.continue();
      });
      await page.click('button.primary');
      await shows(page, 'text=Another customer got the last unit');
      const other = await open(page, 3, { maxPerOrder: 3 });
      await patch(`${service.url}/sales/${other}`, { paused: true });
      await shows(page, 'button:text-is("Paused")');
      await page.waitForSelector('[aria-live] .pill:text-is("Paused")');
      await patch(`${service.url}/sales/${other}`, { paused: false, maxPerOrder: 1, priceCents: 1_250 });
      await page.waitForSelector('button:text("Buy for $12.50")');
      expect(await page.locator('[aria-label="One unit more"]').count()).toBe(0);
      await patch(`${service.url}/sales/${other}`, { endsAt: inMs(1_000) });
      await shows(page, 'h2:text-is("This sale has ended")');
      await page.goto(shop(999_999));
      await shows(page, 'text=There is no such sale');
    };
    await visit(browser, service.url, use, {}, (page) => page.addInitScript(OLDER));
  });
});
