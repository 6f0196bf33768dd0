/** The console in a real browser: what it shows, and what administrators do with it. */
import { text } from 'node:stream/consumers';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { attempt, buy, call, createSale, pay } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const service = opened(() => startService(envOf(stores)));
  const browser = opened(openBrowser);

  const rowOf = (page: Page, saleId: number) => page.locator('.sale-row', { hasText: `no. ${saleId} ` });
  const saleNow = async (id: number) => (await call(`${service.url}/sales/${id}`)).body;

  async function creates(page: Page): Promise<number> {
    await page.waitForSelector('text=There is no sale yet');
    await page.click('text=New sale');
    await inspect(page);
    await page.fill('input[name=name]', 'Launch');
    await page.fill('input[name=stock]', '7');
    await page.click('text=Create the sale');
    await page.locator('.sale-row', { hasText: 'Launch' }).waitFor();
    const { rows } = await stores.sql.query("SELECT id, stock FROM sales WHERE name = 'Launch'");
    expect(rows).toEqual([{ id: expect.any(Number), stock: 7 }]);
    return rows[0].id;
  }

  /** Adds units although the first answer is lost, and cuts units. */
  async function restocks(page: Page, id: number): Promise<void> {
    const keys: (string | undefined)[] = [];
    await page.route('**/restock', async (route) => {
      keys.push(route.request().headers()['idempotency-key']);
      if (keys.length > 1) return route.continue();
      expect((await route.fetch()).status()).toBe(200);
      await route.abort('connectionreset');
    });
    const row = rowOf(page, id);
    await row.locator('input[name=units]').fill('5');
    await row.locator('button:text("Add")').click();
    await row.locator('text=12 of 12 left').waitFor();
    await row.locator('[aria-live] >> text=5 added: the stock is 12').waitFor();
    expect(keys).toEqual([expect.stringMatching(/^[\w-]{10,}$/), keys[0]]);
    await row.locator('button:text("Cut")').click();
    await row.locator('text=7 of 7 left').waitFor();
    await row.locator('input[name=units]').fill('8');
    await row.locator('button:text("Cut")').click();
    await page.waitForSelector('text=has fewer than 8 unsold units');
  }

  async function changes(page: Page): Promise<void> {
    const startsAt = '2026-01-01T10:00:00.123Z';
    const { id } = await createSale(service.url, 7, { name: 'Changing', startsAt });
    const row = rowOf(page, id);
    await row.locator('summary:text("Change")').click();
    await row.locator('input[name=maxPerOrder]').fill('4');
    await row.locator('input[name=price]').fill('7.50');
    await inspect(page);
    await row.locator('text=Save the changes').click();
    await row.locator('text=up to 4 an order').waitFor();
    // What was not edited stays, to the millisecond.
    const changed = { maxPerOrder: 4, priceCents: 750, startsAt, paused: false };
    expect(await saleNow(id)).toMatchObject(changed);
    await row.locator('button:text("Pause")').click();
    await row.locator('.pill:text("Paused")').waitFor();
    expect(await saleNow(id)).toMatchObject({ ...changed, paused: true });
    await row.locator('button:text("Resume")').click();
    await row.locator('.pill:text("On sale")').waitFor();
    expect(await saleNow(id)).toMatchObject(changed);
  }

  /** Audits a sale that agrees, and one whose order has no points. */
  async function audits(page: Page, id: number): Promise<void> {
    await rowOf(page, id).locator('text=Audit').click();
    await page.waitForSelector('text=The stores agree');
    const { id: drifted } = await createSale(service.url, 5);
    await buy(service.url, drifted, 'ann');
    await stores.sql.query(`DELETE FROM points_entries WHERE user_id = 'ann'`);
    await rowOf(page, drifted).locator('text=Audit').click();
    await rowOf(page, drifted).locator('text=The stores differ').waitFor();
    await rowOf(page, drifted).locator('text=1 orders have other points entries').waitFor();
  }

  /** Opens the charts of a sale while customers buy, and then those of another one. */
  async function watches(page: Page): Promise<void> {
    const [{ id: first }, { id }] = [await createSale(service.url, 5), await createSale(service.url, 400)];
    await rowOf(page, first).locator('text=Live').click();
    await rowOf(page, first).locator('[aria-label="Units left: 5"]').waitFor();
    await rowOf(page, id).locator('text=Live').click();
    await expect.poll(() => page.locator('.charts').count()).toBe(1);
    const sold = rowOf(page, id).locator('svg').first();
    let n = 0;
    await expect
      .poll(async () => {
        await attempt(service.url, id, `u-${n++}`);
        return sold.getAttribute('aria-label');
      })
      .toMatch(/^Units sold per second: [1-9]/);
    await expect.poll(() => sold.locator('path').getAttribute('d')).toMatch(/^M\d+ [\d.]+L/);
    await inspect(page);
  }

  it('creates a sale, adds and cuts units, changes and audits sales, and shows one of them live', async () => {
    await visit(browser, `${service.url}/console`, async (page) => {
      const id = await creates(page);
      await restocks(page, id);
      await changes(page);
      await audits(page, id);
      await inspect(page);
      await page.waitForSelector('text=Postgres answers');
      await watches(page);
    });
  });

  /** Orders of ann, bob and dan, of which bob's is not paid. */
  async function order(): Promise<number> {
    const { id } = await createSale(service.url, 9, { maxPerOrder: 2 });
    for (const [user, quantity] of Object.entries({ ann: 2, bob: 1, dan: 1 })) {
      const { orderId } = (await buy(service.url, id, user, quantity)).body;
      if (user !== 'bob') await pay(service.url, orderId, undefined, 500 * quantity);
    }
    return id;
  }

  it('finds orders of a sale, cancels and refunds one and all of them, and exports them', async () => {
    const id = await order();
    await visit(browser, `${service.url}/console`, async (page) => {
      const row = rowOf(page, id);
      const listed = () => row.locator('.order-line b').allTextContents();
      const problem = { type: '/problems/busy', detail: 'Postgres is away.', reason: 'test' };
      const [status, contentType, body] = [503, 'application/problem+json', JSON.stringify(problem)];
      await page.route(`**/sales/${id}/orders?*`, (route) => route.fulfill({ status, contentType, body }));
      await row.locator('summary:text("Orders")').click();
      await row.locator('.notice >> text=Postgres is away.').waitFor();
      await inspect(page);
      await page.unroute(`**/sales/${id}/orders?*`);
      await row.locator('text=2 for $10.00').waitFor();
      expect([await listed(), await row.locator('.notice').count()]).toEqual([['dan', 'bob', 'ann'], 0]);
      await inspect(page);
      await row.locator('input[type=search]').fill('AN');
      await expect.poll(listed).toEqual(['dan', 'ann']);
      await row.locator('input[type=search]').fill('');
      await row.locator('select').selectOption('pending');
      await expect.poll(listed).toEqual(['bob']);
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
      const lines = (await text(await (await download).createReadStream())).split('\r\n').slice(1, -1);
      expect(lines.map((line) => line.split(',')[1])).toEqual(['dan', 'bob', 'ann']);
      await page.route('**/orders.csv*', (route) => route.abort('connectionreset'));
      await row.locator('text=Export as CSV').click();
      await row.locator('.notice >> text=The export failed').waitFor();
      page.on('dialog', (dialog) => dialog.accept());
      await row.locator('text=Refund all…').click();
      await row.locator('text=: 1 closed').waitFor();
      await row.locator('text=6 of 6 left').waitFor();
      await inspect(page);
    });
  });
});
