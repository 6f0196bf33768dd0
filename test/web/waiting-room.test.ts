/** The shop with AUTH=jwt in a real browser: tickets, turns, and the proof of work. */
import { describe, expect, it } from 'vitest';
import { call } from '../support/client.ts';
import { openIssuer } from '../support/issuer.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

const ADMIN = '0123456789abcdef';

describe.skipIf(executablePath === undefined).each([
  ['with Redis', {}],
  ['on Postgres alone', { REDIS_URL: 'none' }],
])('in Chromium (skipped where it is not installed), %s', (_name, env) => {
  const stores = opened(openTestStores);
  const issuer = opened(openIssuer);
  const service = opened(() =>
    startService({
      ...envOf(stores),
      ...issuer.env,
      TICKET_SECRETS: Buffer.alloc(32, 'k').toString('base64'),
      ADMIN_TOKEN: ADMIN,
      BOT_CHECK: 'proof-of-work',
      ...env,
    }),
  );
  const browser = opened(openBrowser);

  async function sell(more: object): Promise<string> {
    const { body } = await call(`${service.url}/sales`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${ADMIN}` },
      body: JSON.stringify({ name: 'sale', stock: 3, priceCents: 500, ...more }),
    });
    return `${service.url}/shop/${body.id}`;
  }

  const inS = (seconds: number) => new Date(Date.now() + seconds * 1_000).toISOString();

  it('solves the puzzle and waits for the turn, also after a reload, and for a start in a month', async () => {
    const url = await sell({ startsAt: inS(30 * 86_400), spreadS: 2 });
    await visit(browser, url, async (page) => {
      const purchases: string[] = [];
      page.on('request', (request) => {
        if (request.method() === 'POST' && request.url().endsWith('/orders')) purchases.push(request.url());
      });
      await page.fill('input[name=customer]', await issuer.token('ann'));
      await page.click('text=Enter the waiting room');
      await page.waitForSelector('text=You are in the waiting room');
      await inspect(page);
      await page.reload();
      await page.waitForSelector('text=You are in the waiting room');
      await inspect(page);
      expect(purchases).toEqual([]);
      await page.click('text=Stop waiting');
      await page.waitForSelector('text=Enter the waiting room');
    });
    const { rows } = await stores.sql.query('SELECT status FROM orders');
    expect(rows).toEqual([]);
  });

  // A proof of work can take longer than any start that a test waits for: then the turn has come, and the page buys at once.
  it('buys when the turn comes, and cannot pay by itself', async () => {
    const url = await sell({ startsAt: inS(8), spreadS: 2 });
    await visit(browser, url, async (page) => {
      await page.fill('input[name=customer]', await issuer.token('ann'));
      await page.click('button.primary');
      await page.waitForSelector('text=Your order is reserved');
      await page.waitForSelector('text=Pay with your payment provider');
      expect(await page.locator('text=(demo)').count()).toBe(0);
      await inspect(page);
      await page.reload();
      await page.click('text=Cancel the order');
      await page.waitForSelector('text=Your order is cancelled');
    });
    const { rows } = await stores.sql.query('SELECT status FROM orders');
    expect(rows).toEqual([{ status: 'cancelled' }]);
  });

  it('finds the order of a lost answer when the ticket has expired and the sale is sold out', async () => {
    const url = await sell({ stock: 1 });
    await visit(browser, url, async (page) => {
      let requests = 0;
      await page.route('**/sales/*/orders', async (route) => {
        if (route.request().method() !== 'POST') return route.continue();
        requests++;
        if (requests === 1) {
          await route.fetch();
          return route.abort('connectionreset');
        }
        return route.fulfill({
          status: 401,
          contentType: 'application/problem+json',
          body: JSON.stringify({ type: '/problems/invalid-ticket', detail: 'expired', reason: 'expired' }),
        });
      });
      await page.fill('input[name=customer]', await issuer.token('cat'));
      await page.click('button.primary');
      await page.waitForSelector('text=/Your order is reserved|last unit/');
      expect(await page.locator('text=Your order is reserved').count()).toBe(1);
      expect(requests).toBe(2);
    });
  });

  it('finds the order of a lost answer after a reload, also when the first read of it is lost', async () => {
    const url = await sell({ stock: 1 });
    await visit(browser, url, async (page) => {
      let lost: string | null = 'POST';
      await page.route('**/sales/*/orders', async (route) => {
        if (route.request().method() !== lost) return route.continue();
        if (lost === 'POST') await route.fetch();
        else lost = null;
        return route.abort('connectionreset');
      });
      await page.fill('input[name=customer]', await issuer.token('dan'));
      await page.click('button.primary');
      await page.waitForSelector('text=your order may exist');
      lost = 'GET';
      await page.reload();
      await page.waitForSelector('text=/Your order is reserved|last unit/');
      expect(await page.locator('text=Your order is reserved').count()).toBe(1);
      expect(await page.locator('text=last unit').count()).toBe(0);
    });
  });

  it('takes another ticket for one that is not accepted, however often the shop was busy before', async () => {
    const url = await sell({});
    await visit(browser, url, async (page) => {
      let tickets = 0;
      page.on('response', (response) => {
        if (response.url().endsWith('/tickets') && response.ok()) tickets++;
      });
      const answers = ['busy', 'busy', 'busy', 'invalid-ticket'];
      await page.route('**/sales/*/orders', (route) => {
        const slug = route.request().method() === 'POST' ? answers.shift() : undefined;
        if (slug === undefined) return route.continue();
        return route.fulfill({
          status: slug === 'busy' ? 503 : 401,
          headers: { 'Retry-After': '0' },
          contentType: 'application/problem+json',
          body: JSON.stringify({ type: `/problems/${slug}`, detail: slug, reason: 'expired' }),
        });
      });
      await page.fill('input[name=customer]', await issuer.token('eve'));
      await page.click('button.primary');
      await page.waitForSelector('text=/Your order is reserved|The request failed/');
      expect(await page.locator('text=Your order is reserved').count()).toBe(1);
      expect([answers, tickets]).toEqual([[], 2]);
    });
  });

  it('asks for a new token beside an order when the one it has is no longer accepted', async () => {
    const url = await sell({});
    const token = await issuer.token('fay');
    await visit(browser, url, async (page) => {
      await page.fill('input[name=customer]', token);
      await page.click('button.primary');
      await page.waitForSelector('text=Your order is reserved');
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
      await page.fill('input[name=customer]', await issuer.token('fay', { jti: 'renewed' }));
      await page.locator('input[name=customer]').blur();
      await page.locator('text=Please sign in again').waitFor({ state: 'detached' });
      expect(await page.locator('text=Your order is reserved').count()).toBe(1);
    });
  });

  it('says that a token is not accepted', async () => {
    const url = await sell({});
    await visit(browser, url, async (page) => {
      await page.fill('input[name=customer]', await issuer.token('ben', { aud: 'another' }));
      await page.click('button.primary');
      await page.waitForSelector('text=Please sign in again');
      await inspect(page);
    });
  });

  it('asks administrators for the token, and forgets a wrong one', async () => {
    await sell({ name: 'Launch' });
    await visit(browser, `${service.url}/console`, async (page) => {
      await inspect(page);
      await page.fill('input[name=token]', 'wrong-wrong-wrong');
      await page.click('button.primary');
      await page.waitForSelector('text=That token is not accepted');
      await inspect(page);
      await page.fill('input[name=token]', ADMIN);
      await page.click('button.primary');
      await page.waitForSelector('.pill:has-text("Live")');
      await page.click('text=Audit');
      await page.waitForSelector(
        'REDIS_URL' in env ? 'text=Postgres agrees with itself' : 'text=The stores agree',
      );
      await page.click('text=Sign out');
      await page.waitForSelector('text=Administrator’s token');
      await expect.poll(() => page.locator('text=Launch').count()).toBe(0);
    });
  });
});
