/** The Chromium of the run, and pages whose errors fail a test. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { expect, inject } from 'vitest';

export { executablePath } from '../support/shared-browser.ts';

/** Its contexts are the caller's own, and end with it. */
export async function openBrowser(): Promise<Browser> {
  const answer = await fetch(inject('browserUrl'));
  return chromium.connect(await answer.text());
}

/** Chromium reports every answer of 400 and above; those that the page handles are not errors. */
const HANDLED =
  /Failed to load resource: (the server responded with a status of (401|403|404|409|429|502|503)|net::ERR_(EMPTY|CONNECTION|INCOMPLETE))/;

/** Opens a page, and fails if anything on it went wrong by the end of `use`. */
export async function visit(
  browser: Browser,
  url: string,
  use: (page: Page) => Promise<void>,
  options: BrowserContextOptions = {},
  prepare: (page: Page) => Promise<unknown> = async () => {},
): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(120_000);
  try {
    const page = await context.newPage();
    const troubles: string[] = [];
    page.on('pageerror', (error) => troubles.push(error.message));
    page.on('console', (message) => {
      if (message.type() === 'error' && !HANDLED.test(message.text())) troubles.push(message.text());
    });
    const { origin } = new URL(url);
    page.on('request', (request) => {
      if (new URL(request.url()).origin !== origin) troubles.push(request.url());
    });
    await prepare(page);
    await page.goto(url);
    await use(page).catch(async (error: unknown) => {
      const text = await page.locator('body').ariaSnapshot();
      throw new Error(`${error}\nThe page:\n${text}\n${troubles.join('\n')}`, { cause: error });
    });
    expect(troubles).toEqual([]);
  } finally {
    await context.close();
  }
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe checks in light; in dark, what depends on colours. */
const SCHEMES = {
  light: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice'],
  dark: { type: 'rule', values: ['color-contrast', 'link-in-text-block'] },
} as const;

/** Checks a state of a page: accessible in light and dark, and no wider than the screen of a phone and a desktop. */
export async function inspect(page: Page): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    expect(await violations(page, SCHEMES[colorScheme]), colorScheme).toEqual([]);
  }
  for (const width of [320, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    const scrolls = await page.evaluate<number>('document.documentElement.scrollWidth');
    expect(scrolls, `wider than ${width} px`).toBeLessThanOrEqual(width);
  }
}

/** Violations that axe finds. The debugger evaluates axe, so that the policy of the page does not refuse it. */
async function violations(page: Page, runOnly: (typeof SCHEMES)[keyof typeof SCHEMES]): Promise<string[]> {
  await page.evaluate(`if (!window.axe) { ${AXE} };0`);
  return page.evaluate<string[]>(
    `axe.run({ runOnly: ${JSON.stringify(runOnly)} }).then(({ violations }) =>
      violations.flatMap(({ id, nodes }) => nodes.map((node) => id + ': ' + node.target.join(' ') + ' ' + node.failureSummary)))`,
  );
}
