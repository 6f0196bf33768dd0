/** The console in a real browser, while the service answers late: its reads, and where it says how a change ended. */
import type { Page, Route } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { call, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { executablePath, openBrowser, visit } from './browser.ts';

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const stores = opened(openTestStores);
  const service = opened(() => startService(envOf(stores)));
  const browser = opened(openBrowser);

  const at = (id: number) => `${service.url}/console#open=${id}`;
  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
  /** Requests of a method for a sale, which wait until the test answers them. */
  async function hold(page: Page, id: number, method: string): Promise<Route[]> {
    const held: Route[] = [];
    await page.route(`**/sales/${id}`, (route) =>
      route.request().method() === method ? void held.push(route) : route.continue(),
    );
    return held;
  }

  it('it says how a change ended in the panel where it began, and a form keeps what is typed when Escape is pressed', async () => {
    const { id } = await createSale(service.url, 5);
    const { id: other } = await createSale(service.url, 5, { name: 'Other' });
    await visit(browser, at(id), async (page) => {
      const [held] = [await hold(page, id, 'PATCH'), await button(page, 'Pause').click()];
      await expect.poll(() => held.length).toBe(1);
      await page.getByRole('link', { name: 'Other' }).click();
      await page.getByRole('heading', { name: 'Other' }).waitFor();
      await held[0]!.continue();
      await expect.poll(async () => (await call(`${service.url}/sales/${id}`)).body.paused).toBe(true);
      await page.locator('button[aria-disabled=false]:text-is("Pause")').waitFor(); // the change is over
      expect(await page.getByText('The sale is paused').count()).toBe(0);
      await page.goBack();
      await page.getByText('The sale is paused').waitFor();
      await page.goto(at(other));
      await page.getByRole('link', { name: 'New sale' }).click();
      const name = page.getByLabel('Name', { exact: true });
      await name.fill('Launch');
      await name.press('Escape');
      expect(await name.inputValue()).toBe('Launch');
      await page.keyboard.press('Escape');
      await name.waitFor({ state: 'detached' });
    });
  });

  it('it reads again only after an answer, and an older answer does not overwrite a newer one', async () => {
    const { id } = await createSale(service.url, 5);
    const use = async (page: Page) => {
      await button(page, 'Pause').waitFor();
      const held = await hold(page, id, 'GET');
      await page.clock.runFor(20_000);
      await expect.poll(() => held.length).toBe(1);
      const before = await held[0]!.fetch();
      await button(page, 'Pause').click();
      await expect.poll(() => held.length).toBe(2);
      await held[1]!.continue();
      await page.getByText('The sale is paused').waitFor();
      const answered = page.waitForResponse((response) => response.request() === held[0]!.request());
      await held[0]!.fulfill({ response: before });
      await (await answered).finished();
      await page.clock.runFor(20_000);
      await expect.poll(() => held.length).toBe(3); // the older answer is processed
      expect(await button(page, 'Resume').count()).toBe(1);
    };
    await visit(browser, at(id), use, {}, (page) => page.clock.install());
  });
});
