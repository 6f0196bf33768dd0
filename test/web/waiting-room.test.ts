/** The shop with AUTH=jwt in a real browser: the proof of work, turns, tokens. What it sends and when: shop-state.test.ts. */
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { post } from '../support/client.ts';
import { openIssuer } from '../support/issuer.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

const ADMIN = '0123456789abcdef';

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const issuer = opened(openIssuer);
  const service = opened(() =>
    startService({
      ...envOf(stores),
      ...issuer.env,
      TICKET_SECRETS: Buffer.alloc(32, 'k').toString('base64'),
      ADMIN_TOKEN: ADMIN,
      BOT_CHECK: 'proof-of-work',
    }),
  );
  const browser = opened(openBrowser);

  async function sell(startsInS: number): Promise<string> {
    const startsAt = new Date(Date.now() + startsInS * 1_000).toISOString();
    const asked = { name: 'Launch', stock: 3, priceCents: 500, startsAt, spreadS: 2 };
    const { body } = await post(`${service.url}/sales`, asked, ADMIN);
    return `${service.url}/shop/${body.id}`;
  }
  const orders = async () =>
    (await stores.sql.query('SELECT status FROM orders')).rows.map(({ status }) => status);
  async function press(page: Page, token: string): Promise<void> {
    await page.fill('input[name=customer]', token);
    await page.click('button.primary');
  }

  it('solves the puzzle and waits for the turn, also after a reload; buys; and asks for a new token', async () => {
    const token = await issuer.token('ann');
    await visit(browser, await sell(30 * 86_400), async (page) => {
      await press(page, await issuer.token('ben', { aud: 'another' }));
      await page.waitForSelector('text=Please sign in again');
      await inspect(page);
      await press(page, token);
      await page.waitForSelector('text=You are in the waiting room');
      await page.reload();
      await page.waitForSelector('text=You are in the waiting room');
      await inspect(page);
      await page.click('text=Stop waiting');
      await page.waitForSelector('text=Enter the waiting room');
      expect(await orders()).toEqual([]);

      await page.goto(await sell(2));
      await press(page, token);
      await page.waitForSelector('text=Your order is reserved');
      await page.waitForSelector('text=Pay in the way that the shop offers');
      expect(await page.locator('text=(demo)').count()).toBe(0);
      await inspect(page);
      await page.route('**/sales/*/orders', async (route) => {
        if (route.request().headers().authorization !== `Bearer ${token}`) return route.continue();
        return route.fulfill({
          status: 401,
          contentType: 'application/problem+json',
          body: JSON.stringify({ type: '/problems/unauthorized', detail: 'expired' }),
        });
      });
      await page.waitForSelector('text=Please sign in again');
      await inspect(page);
      await page.fill('input[name=customer]', await issuer.token('ann', { jti: 'renewed' }));
      await page.locator('input[name=customer]').blur();
      await page.locator('text=Please sign in again').waitFor({ state: 'detached' });
      expect(await page.locator('text=Your order is reserved').count()).toBe(1);
      await page.reload();
      await page.click('text=Cancel the order');
      await page.waitForSelector('text=Your order is cancelled');
      expect(await orders()).toEqual(['cancelled']);
    });
  });

  it('asks administrators for the token, and forgets a wrong one', async () => {
    await sell(1);
    await visit(browser, `${service.url}/console`, async (page) => {
      await page.fill('input[name=token]', 'wrong-wrong-wrong');
      await page.click('button.primary');
      await page.waitForSelector('text=That token is not accepted');
      await inspect(page);
      await page.fill('input[name=token]', ADMIN);
      await page.click('button.primary');
      await page.getByRole('link', { name: 'Launch' }).first().click();
      await page.getByRole('link', { name: 'Audit', exact: true }).click();
      await page.getByRole('button', { name: 'Audit now' }).click();
      await page.getByText('The stores agree', { exact: true }).waitFor();
      await page.click('text=Sign out');
      await page.waitForSelector('text=Administrator’s token');
      await expect.poll(() => page.locator('text=Launch').count()).toBe(0);
    });
  });
});
