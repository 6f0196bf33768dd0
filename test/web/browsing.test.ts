/** The pages in a real browser, except orders: lists, streams, amounts and times, a missing page, the description of the API. */
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { createSale, patch } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const service = opened(() => startService(envOf(stores)));
  const browser = opened(openBrowser);

  const inAnHour = () => new Date(Date.now() + 3_600_000).toISOString();

  it('lists what is on sale, also without script, on further pages, and says when there is nothing', async () => {
    await visit(browser, `${service.url}/`, async (page) => {
      await page.waitForSelector('text=Nothing is on sale yet');
      await inspect(page);
    });
    const { id } = await createSale(service.url, 5, { name: '<b>bold</b> & "quoted"' });
    await stores.sql.query(
      `INSERT INTO sales (name, stock, price_cents) SELECT 'Newer ' || n, 1, 100 FROM generate_series(1, 100) AS n`,
    );
    for (const javaScriptEnabled of [true, false])
      await visit(
        browser,
        service.url,
        async (page) => {
          await page.waitForSelector('text=Newer 100');
          expect(await page.locator(`a[href="/shop/${id}"]`).count()).toBe(0);
          await page.click('text=Older sales');
          await page.waitForSelector('text=<b>bold</b> & "quoted"');
          await page.waitForSelector('text=5 of 5 left');
          if (javaScriptEnabled) await inspect(page);
          await page.fill('input[type=search]', 'NEWER 7');
          await page.selectOption('select', 'open'); // with JavaScript, this submits the form, too
          if (!javaScriptEnabled) await page.click('text=Show');
          await page.waitForURL('**/?search=NEWER+7&state=open');
          expect(await page.locator('.sale h3').allTextContents()).toHaveLength(11);
          await page.goto(`${service.url}/?state=scheduled&search=older`);
          await page.waitForSelector('text=No sale matches');
          await page.click('text=Show all sales');
          await page.waitForSelector('text=Newer 100');
        },
        { javaScriptEnabled },
      );
  });

  it('shows amounts in the currency, with its smallest unit, names in their own direction, and when a sale ends', async () => {
    await using yen = await startService({ ...envOf(stores), CURRENCY: 'JPY' });
    const name = 'سماعات';
    const { id } = await createSale(yen.url, 3, { name, priceCents: 4_900, endsAt: inAnHour() });
    const right = 'getComputedStyle(document.querySelector("h1")).direction';
    for (const javaScriptEnabled of [true, false])
      await visit(
        browser,
        `${yen.url}/shop/${id}`,
        async (page) => {
          await page.waitForSelector('text=¥4,900');
          expect(await page.evaluate(right)).toBe('rtl');
          await page.waitForSelector(javaScriptEnabled ? '.countdown >> text=/GMT[+]5:30/' : 'text=UTC');
        },
        { javaScriptEnabled, timezoneId: 'Asia/Kolkata' },
      );
  });

  it('opens a sale of the list on time, also after the device slept, and the clock of the page with it', async () => {
    const { id } = await createSale(service.url, 3, { startsAt: inAnHour() });
    const pill = (text: string) => `a[href="/shop/${id}"] .pill:text-is("${text}")`;
    const use = async (page: Page) => {
      await page.waitForSelector(pill('Opens soon'));
      await patch(`${service.url}/sales/${id}`, { startsAt: new Date(Date.now() + 3_000).toISOString() });
      await page.waitForSelector(pill('On sale'));
    };
    const sleeps = 'const asleep = performance.now(); performance.now = () => asleep;';
    await visit(browser, service.url, use, {}, (page) => page.addInitScript(sleeps));
  });

  it('shows a page where there is none, and describes the API in one', async () => {
    await visit(browser, `${service.url}/nothing/here`, async (page) => {
      await page.waitForSelector('h1:has-text("There is no such page")');
      await inspect(page);
      await page.click('text=see what is on sale');
      await page.waitForSelector('h1:has-text("On sale")');
      await page.goto(`${service.url}/docs`);
      await page.waitForSelector('text=POST >> visible=true');
      const sum = `performance.getEntriesByType('resource').reduce((sum, one) => sum + one.encodedBodySize, 0)`;
      expect(await page.evaluate<number>(sum)).toBeLessThan(500_000);
    });
    for (const path of ['/', '/console', '/docs', '/openapi.json', '/nothing']) {
      const { headers } = await fetch(service.url + path, { headers: { accept: 'text/html' } });
      expect(headers.get('content-encoding'), path).toBe('gzip');
    }
  });
});
