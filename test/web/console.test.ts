/** The console in a real browser: an operator's tasks, each by the labels that are visible. */
import { text } from 'node:stream/consumers';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { attempt, buy, call, createSale, patch, pay, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, inspect, openBrowser, visit } from './browser.ts';

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const service = opened(() => startService(envOf(stores)));
  const browser = opened(openBrowser);

  const saleNow = async (id: number) => (await call(`${service.url}/sales/${id}`)).body;
  const at = (hash: string) => `${service.url}/console#${hash}`;
  const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
  const follow = (page: Page, name: string) => page.getByRole('link', { name, exact: true }).click();
  const says = (page: Page, words: string | RegExp) => page.getByText(words).first().waitFor();

  it('creates the first sale, pauses it, and changes its terms', async () => {
    await visit(browser, `${service.url}/console`, async (page) => {
      await says(page, 'There is no sale yet');
      await inspect(page);
      await follow(page, 'New sale');
      await inspect(page);
      await page.getByLabel('Name', { exact: true }).fill('Launch');
      await page.getByLabel('Units', { exact: true }).fill('7');
      await press(page, 'Create the sale');
      await says(page, /^Sale no\. \d+ is created$/);
      await page.waitForURL(/#open=\d+$/);
      const id = Number(new URL(page.url()).hash.replace('#open=', ''));
      expect(await saleNow(id)).toMatchObject({ name: 'Launch', stock: 7 });
      await patch(`${service.url}/sales/${id}`, {
        startsAt: new Date(Date.now() + 86_400_000).toISOString(),
      });
      await press(page, 'Open now…');
      await press(page, 'Open the sale');
      await says(page, 'The sale is open');
      expect(await saleNow(id)).toMatchObject({ startsAt: null });
      await press(page, 'Pause');
      await says(page, 'The sale is paused');
      expect(await saleNow(id)).toMatchObject({ paused: true });
      await press(page, 'Resume');
      await says(page, 'The sale goes on');
      const startsAt = '2026-01-01T10:00:07.123Z';
      await patch(`${service.url}/sales/${id}`, { startsAt });
      await follow(page, 'Terms');
      await page.getByLabel('Most units per order').fill('4');
      await page.getByLabel('Price').fill('7.50');
      await inspect(page);
      // Beside each field is a copy with the width that its own text needs.
      const isCut = `[...document.querySelectorAll('[type=datetime-local]')].some((field) => {
        const copy = field.parentNode.appendChild(field.cloneNode());
        copy.style = 'position: absolute; width: max-content; min-width: 0';
        const needed = copy.offsetWidth;
        copy.remove();
        return field.offsetWidth < needed;
      })`;
      for (const width of [390, 1280]) {
        await page.setViewportSize({ width, height: 800 });
        expect(await page.evaluate(isCut), `cut at ${width} px`).toBe(false);
      }
      await press(page, 'Save the changes');
      await says(page, /up to 4 per order/);
      // What was not edited stays, to the millisecond.
      expect(await saleNow(id)).toMatchObject({ maxPerOrder: 4, priceCents: 750, startsAt, paused: false });
    });
  });

  it('adds units once although the first answer is lost, and cuts units after a preview and a confirmation', async () => {
    const { id } = await createSale(service.url, 100);
    for (const user of ['ann', 'bob']) await buy(service.url, id, user);
    await visit(browser, at(`open=${id}`), async (page) => {
      const keys: (string | undefined)[] = [];
      await page.route('**/restock', async (route) => {
        keys.push(route.request().headers()['idempotency-key']);
        if (keys.length > 1) return route.continue();
        expect((await route.fetch()).status()).toBe(200);
        await route.abort('connectionreset');
      });
      const units = page.getByLabel('Units', { exact: true });
      await units.fill('50');
      await says(page, 'Stock 100 → 150, 2 sold, 148 left');
      await press(page, 'Add 50');
      await says(page, '50 added: the stock is 150');
      expect(keys).toEqual([expect.stringMatching(/^[\w-]{10,}$/), keys[0]]);
      await page.getByLabel('Cut units').check();
      await units.fill('10');
      await press(page, 'Cut 10…');
      await page.getByRole('dialog').getByText('Stock 150 → 140, 2 sold, 138 left.').waitFor();
      await inspect(page);
      await press(page, 'Go back');
      expect(await saleNow(id)).toMatchObject({ stock: 150 });
      await press(page, 'Cut 10…');
      await press(page, 'Cut 10');
      await says(page, '10 cut: the stock is 140');
      await units.fill('139');
      await says(page, '2 are sold: at most 138 can be cut.');
      await units.press('Enter'); // does nothing
      expect([await page.getByRole('dialog').count(), (await saleNow(id)).stock]).toEqual([0, 140]);
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
    const problem = { type: '/problems/busy', detail: 'Postgres is away.', reason: 'test' };
    const [status, contentType, body] = [503, 'application/problem+json', JSON.stringify(problem)];
    const fail = (page: Page) =>
      page.route(`**/sales/${id}/orders?*`, (route) => route.fulfill({ status, contentType, body }));
    const use = async (page: Page) => {
      const missing: string[] = [];
      page.on('response', (response) => response.status() === 404 && missing.push(response.url()));
      const listed = () => page.locator('.order-line b').allTextContents();
      const search = page.getByLabel('Search orders by a part of their customer or number');
      await says(page, 'Postgres or Redis does not answer in time.');
      await page.unroute(`**/sales/${id}/orders?*`);
      await says(page, '2 for $10.00');
      expect([await listed(), await page.locator('.notice').count()]).toEqual([['dan', 'bob', 'ann'], 0]);
      await inspect(page);
      await search.fill('AN');
      await expect.poll(listed).toEqual(['dan', 'ann']);
      expect(new URL(page.url()).hash).toContain('find=AN');
      await search.fill('');
      await page.getByLabel('Status').selectOption('Reserved');
      await expect.poll(listed).toEqual(['bob']);
      await press(page, 'Cancel the order of bob…');
      await press(page, 'Cancel the order');
      await says(page, 'The order of bob is cancelled');
      await says(page, 'No order matches');
      await page.getByLabel('Status').selectOption('All statuses');
      await press(page, 'Refund the order of ann…');
      await page.getByLabel('The units return to the sale').uncheck();
      await press(page, 'Refund the order');
      await says(page, 'The order of ann is to be refunded');
      expect(await saleNow(id)).toMatchObject({ stock: 7, sold: 1 });
      const download = page.waitForEvent('download');
      await press(page, 'Export all orders as CSV');
      const lines = (await text(await (await download).createReadStream())).split('\r\n').slice(1, -1);
      expect(lines.map((line) => line.split(',')[1])).toEqual(['dan', 'bob', 'ann']);
      await page.route('**/orders.csv*', (route) => route.abort('connectionreset'));
      await search.fill('an');
      await press(page, 'Export 2 matching orders as CSV');
      await says(page, 'The export failed');
      await buy(service.url, id, 'eve');
      await press(page, 'Refund all orders…');
      await says(page, '1 paid order, $5.00: to be refunded. 1 unpaid order: to be cancelled.');
      expect(await page.getByText('The export failed').count()).toBe(0);
      await inspect(page);
      await page.getByLabel('The units return to the sale').uncheck();
      await press(page, 'Pause, refund 1 order ($5.00), cancel 1');
      await says(page, /: 2 closed/);
      expect(await saleNow(id)).toMatchObject({ stock: 5, sold: 0, paused: true });
      expect(await page.locator('.notice').count()).toBe(0);
      await inspect(page);
      await press(page, 'Refund all orders…');
      await says(page, 'No order can be refunded');
      await page.reload();
      await says(page, /: 2 closed/);
      await patch(`${service.url}/sales/${id}`, { paused: false });
      await buy(service.url, id, 'fay');
      await patch(`${service.url}/sales/${id}`, { paused: true });
      await says(page, /sold more: refund again/);
      expect(missing).toEqual([]);
    };
    await visit(browser, at(`open=${id}&tab=Orders`), use, {}, fail);
  });

  it('shows the order first whose whole customer or number is searched, also when newer matches fill the list', async () => {
    const { id } = await createSale(service.url, 100);
    const { orderId } = (await buy(service.url, id, 'ann')).body;
    const number = String(orderId).slice(19, 28);
    await Promise.all(Array.from({ length: 60 }, (_, n) => buy(service.url, id, `joanna-${n}`)));
    await buy(service.url, id, `for:${number}`);
    await visit(browser, at(`open=${id}&tab=Orders`), async (page) => {
      const listed = () => page.locator('.order-line b').allTextContents();
      const search = page.getByLabel('Search orders by a part of their customer or number');
      const first = async () => (await listed())[0];
      await search.fill('ann');
      await expect.poll(first).toBe('ann');
      expect(await listed()).toHaveLength(51);
      await press(page, 'Cancel the order of ann…');
      await press(page, 'Cancel the order');
      await says(page, 'The order of ann is cancelled');
      await page.locator('.order-line').first().getByText('Cancelled').waitFor();
      await page.getByLabel('Status').selectOption('Reserved');
      await expect.poll(first).toMatch(/^joanna-/);
      await page.getByLabel('Status').selectOption('All statuses');
      await expect.poll(first).toBe('ann');
      await press(page, 'Show more');
      await expect.poll(async () => new Set(await listed()).size).toBe(61);
      expect(await listed()).toHaveLength(61);
      expect(await first()).toBe('ann');
      await search.fill(number);
      await expect.poll(listed).toEqual(['ann', `for:${number}`]);
    });
  });

  it('shows the waitlist of a sale, its log, and whether its stores agree', async () => {
    const { id } = await createSale(service.url, 1, { currency: 'EUR' });
    await buy(service.url, id, 'zoe');
    for (const userId of ['cyd', 'dan']) await post(`${service.url}/sales/${id}/waitlist`, { userId });
    await patch(`${service.url}/sales/${id}`, { startsAt: null });
    await patch(`${service.url}/sales/${id}`, { priceCents: 2_499, endsAt: null });
    await post(`${service.url}/sales/${id}/restock`, { units: -5 });
    await visit(browser, at(`open=${id}`), async (page) => {
      await follow(page, 'Waitlist');
      await says(page, 'Place 2');
      expect(await page.locator('.order-line b').allTextContents()).toEqual(['cyd', 'dan']);
      await inspect(page);
      await follow(page, 'Audit');
      await says(page, 'cut 5 units');
      await says(page, 'opened the sale');
      await says(page, '(refused: 409)');
      const lines = await page
        .getByRole('list', { name: 'Who did what' })
        .getByRole('listitem')
        .allTextContents();
      expect(lines[1]).toMatch(
        /^An administrator on this machine changed the price to €24.99, the end to none\w+ \d+, \d{4}, /,
      );
      await press(page, 'Audit now');
      await says(page, 'The stores agree');
      await inspect(page);
      await stores.sql.query(`DELETE FROM points_entries WHERE user_id = 'zoe'`);
      await press(page, 'Audit now');
      await says(page, 'The stores differ');
      await says(page, '1 orders have other points entries');
    });
  });

  it('is used by the keyboard: it searches, walks along the sales, opens one by a link that can be shared, and closes it', async () => {
    const [{ id }, { id: later }] = [
      await createSale(service.url, 400, { name: 'Keys one' }),
      await createSale(service.url, 300, { name: 'Keys two' }),
    ];
    const { orderId } = (await buy(service.url, id, 'eve')).body;
    await visit(browser, `${service.url}/console`, async (page) => {
      await says(page, 'Keys two');
      const names = () => page.locator('.sales tbody b').allTextContents();
      const isFocused = () => page.evaluate<string>('document.activeElement.textContent');
      await page.keyboard.press('/');
      await page.keyboard.type('keys');
      await expect.poll(names).toEqual(['Keys two', 'Keys one']);
      await press(page, 'Left');
      await expect.poll(names).toEqual(['Keys one', 'Keys two']);
      await page.keyboard.press('/');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowDown');
      expect(await isFocused()).toBe('Keys two');
      await page.keyboard.press('Enter');
      await says(page, '0 sold');
      expect(new URL(page.url()).hash).toBe(`#search=keys&sort=Left&open=${later}`);
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await press(page, 'Copy link');
      await says(page, 'The link is copied');
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(page.url());
      await inspect(page);
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.reload();
      await says(page, '0 sold');
      await page.keyboard.press('Escape');
      await expect.poll(isFocused).toBe('Keys two');
      await page.keyboard.press('/');
      await page.keyboard.type(' ann');
      await says(
        page,
        'No sale matches. Customers, and orders by their short numbers, are found in an open sale, under Orders.',
      );
      await page.keyboard.press('Escape');
      await page.keyboard.type(String(orderId));
      await page.keyboard.press('Enter');
      await says(page, '1 for $5.00');
      expect(await page.locator('.order-line b').allTextContents()).toEqual(['eve']);
    });
  });

  it('shows how fast a sale and all sales sell, and the health of the stores', async () => {
    const { id } = await createSale(service.url, 400);
    await stores.sql.query(`INSERT INTO tasks (kind, key, payload, state, attempts, run_at)
      VALUES ('ship', 'later', '{}', 'retry', 1, now() + interval '1 day'), ('gone', 'gone', '{}', 'dead', 20, now())`);
    const orderId = '01a22bdc-f4eb-7875-921d-5e1c00000001';
    await post(`${service.url}/payments/notifications`, { notificationId: 'lost', orderId, amountCents: 1 });
    await visit(browser, at(`open=${id}`), async (page) => {
      await says(page, 'Work to do');
      await says(page, ' · 1 task retried, 1 task dead, 1 payment unmatched');
      await inspect(page);
      let n = 0;
      for (const chart of ['Units sold per second', 'Units sold per second, all sales'])
        await expect
          .poll(async () => {
            await attempt(service.url, id, `u-${n++}`);
            return page.getByRole('img', { name: new RegExp(`^${chart}: [1-9.]`) }).count();
          })
          .toBe(1);
      await page.getByText('Postgres and Redis answer · lua').click();
      await says(page, /which decides in Redis/);
      await expect
        .poll(async () => {
          await attempt(service.url, id, `v-${n++}`);
          return page.getByText(/^Purchases in the last \d+ s: [1-9].* 99.% within \d/).count();
        })
        .toBe(1);
      await inspect(page);
    });
  });

  it('gathers the kinds of work that a store stops', async () => {
    const degraded = ['expiry', 'refunds', 'waitlist'].map((what) => ({ what, detail: 'query timeout' }));
    const health = { now: Date.now(), stores: { postgres: 'query timeout', redis: 'ok' }, degraded };
    const answer = { contentType: 'text/event-stream', body: `data: ${JSON.stringify(health)}\n\n` };
    await visit(
      browser,
      `${service.url}/console`,
      async (page) => {
        await says(page, 'Postgres does not answer');
        await says(page, '3 kinds of work are behind');
        await page.getByText('expiry, refunds, waitlist').click();
        await says(page, 'Some waitlists have not moved up');
        await inspect(page);
      },
      {},
      (page) => page.route('**/console/events', (route) => route.fulfill(answer)),
    );
  });

  it('shows the tasks that fail with their errors, retries one and discards another', async () => {
    const { rows } = await stores.sql.query(`
      INSERT INTO tasks (kind, key, payload, state, attempts, run_at, last_error) VALUES
        ('ship', 'ship:1', '{}', 'dead', 20, now(), 'attempt 20: HTTP 500'), ('gone', NULL, '{"type": "old"}', 'dead', 1, now(), 'no handler'),
        ('award', 'award:1', '{}', 'retry', 3, now() + interval '1 day', 'attempt 3: HTTP 502') RETURNING id`);
    const [shipped, gone] = rows.map((row) => Number(row.id));
    const stateOf = async (id: number | undefined) =>
      (await stores.sql.query('SELECT state, last_error FROM tasks WHERE id = $1', [id])).rows[0];
    await visit(browser, `${service.url}/console`, async (page) => {
      await page.getByText('Postgres and Redis answer').click();
      await page.getByRole('link', { name: 'Show the failed tasks' }).last().click();
      const givenUp = page.getByRole('region', { name: 'Given up' });
      const again = page.getByRole('region', { name: 'To be tried again' });
      await again.getByText('award:1').waitFor();
      await again.getByText('attempt 3: HTTP 502').waitFor();
      await again.getByText(/3 attempts · failed .* next in 24 h/).waitFor();
      await givenUp.getByText('attempt 20: HTTP 500').waitFor();
      await givenUp.getByText('gone old').waitFor();
      await inspect(page);
      await press(page, `Retry task ${shipped}`);
      await says(page, `Task ${shipped} is to be tried again`);
      await expect.poll(() => stateOf(shipped)).toMatchObject({ state: 'done' });
      await press(page, `Discard task ${gone}`);
      await press(page, 'Go back');
      expect(await stateOf(gone)).toMatchObject({ state: 'dead' });
      await press(page, `Discard task ${gone}`);
      await press(page, 'Discard the task');
      await says(page, `Task ${gone} is discarded`);
      expect(await stateOf(gone)).toMatchObject({ state: 'done' });
      await givenUp.getByText('gone old').waitFor({ state: 'detached' });
    });
  });

  it('rehearses: customers buy in a sale that is made for it, audited, refunded and ended', async () => {
    await visit(browser, `${service.url}/console`, async (page) => {
      await follow(page, 'Rehearse');
      await page.getByLabel('Units', { exact: true }).fill('5');
      await page.getByLabel('Customers', { exact: true }).fill('8');
      await inspect(page);
      const made = page.waitForRequest(`${service.url}/sales`);
      await press(page, 'Start the rehearsal');
      expect((await made).postDataJSON().endsAt).toMatch(/Z$/); // also if the page is closed now
      await says(page, 'As expected: 5 sold, 3 refused, audit passed');
      await says(page, '5 accepted, 3 sold-out');
      const { rows } = await stores.sql.query("SELECT id FROM sales WHERE name = 'Rehearsal'");
      const hasEnded = ({ sold, endsAt }: Record<string, unknown>) =>
        sold === 0 && Date.parse(String(endsAt)) <= Date.now();
      await expect.poll(async () => hasEnded(await saleNow(rows[0].id))).toBe(true);
    });
  });
});
