/** The page: safe markup, complete without script, switches, and how it looks in a real browser. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { htmlReport } from '../../bench/kit/report/index.ts';
import { chartFile } from '../../scripts/chart-file.ts';
import { opened } from '../support/opened.ts';
import { executablePath, openBrowser } from '../web/browser.ts';
import { layout, onLadder, resultsOf, usual } from './report-fixture.ts';

const goal = {
  ...{ metric: 'rate', of: 'lua', over: 'for-update', atLeast: 5, atMost: null, what: 'speed' },
  ...{ value: { median: 6, low: 5.5, high: 7, rounds: 3 }, byRound: [], verdict: 'reached' as const },
};
const results = onLadder(1.3, undefined, { goals: [goal] });
const whole = htmlReport(results);

describe('the page', () => {
  it('leads with the sentence and the ranking, and has tables after the charts', () => {
    const places = ['class="lead"', 'class="bars ranking"', '<form', '<svg', '<table', 'Origin'].map((text) =>
      whole.indexOf(text),
    );
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(places).not.toContain(-1);
  });

  it('escapes names, findings, notes and the machine', () => {
    const hostile = '<script>alert("&")</script>';
    const cell = { name: hostile, rates: [1, 2], oversold: 1, findings: [hostile] };
    const page = htmlReport({
      ...resultsOf([...usual, cell], { commit: hostile, failures: [hostile], generator: hostile }),
      layout: { ...layout, title: hostile, notes: [`\`${hostile}\``] },
    });
    expect(page).not.toContain('<script');
    expect(page).toContain('<code>&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;</code>');
    expect(chartFile(resultsOf([...usual, cell]))).not.toContain('<script');
  });

  it('is self-contained and small', () => {
    expect(whole).not.toMatch(/(src|href)="(?!#)|url\(|@import/);
    expect(whole.length).toBeLessThan(100_000);
  });
});

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'stampede-report-'));
  const url = pathToFileURL(join(folder, 'report.html')).href;
  const browser = opened(openBrowser);

  beforeAll(() => writeFileSync(join(folder, 'report.html'), whole));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  async function inPage<T>(options: BrowserContextOptions, use: (page: Page) => Promise<T>): Promise<T> {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
    const troubles: string[] = [];
    page.on('pageerror', (error) => troubles.push(error.message));
    page.on('request', (request) => request.url() !== url && troubles.push(request.url()));
    await page.goto(url);
    const result = await use(page);
    await page.close();
    expect(troubles).toEqual([]);
    return result;
  }

  it.each([360, 1280])(
    'does not scroll sideways at %i px, and shows the ranking on the first screen',
    async (width) => {
      const seen = await inPage({ viewport: { width, height: 800 } }, (page) =>
        page.evaluate<{ width: number; bottom: number }>(
          `document.querySelectorAll('details').forEach((one) => { one.open = true; });
        ({ width: document.documentElement.scrollWidth, bottom: document.querySelector('.ranking').getBoundingClientRect().bottom })`,
        ),
      );
      expect(seen.width).toBeLessThanOrEqual(width);
      expect(seen.bottom).toBeLessThan(800);
    },
  );

  it.each([true, false])(
    'switches a cell off in all charts at once (with script: %s)',
    async (javaScriptEnabled) => {
      await inPage({ javaScriptEnabled }, async (page) => {
        await page.click('summary');
        const shown = (cell: string): Promise<number> =>
          page.locator(`[data-s]:visible`, { hasText: cell }).count();
        const length = async (): Promise<number> =>
          (await page.locator('.ranking li', { hasText: 'skip-locked' }).locator('.fill').boundingBox())
            ?.width ?? 0;
        expect(await shown('lua')).toBeGreaterThan(4);
        expect(await page.locator('form button:visible').count()).toBe(javaScriptEnabled ? 2 : 1);
        const before = await length();
        await page.uncheck('#c0');
        expect(await shown('lua')).toBe(0);
        expect(await shown('skip-locked')).toBeGreaterThan(4);
        expect(await length()).toBeGreaterThan(before * 1.2); // the remaining bars are stretched
        await page.click('text=all');
        expect(await length()).toBeCloseTo(before);
        if (javaScriptEnabled) await page.click('text=none');
        expect(await shown('skip-locked')).toBe(javaScriptEnabled ? 0 : await shown('lua'));
      });
    },
  );

  it('has texts that can be read in both schemes', async () => {
    const [light, dark] = await Promise.all(
      (['light', 'dark'] as const).map((colorScheme) =>
        inPage({ colorScheme }, (page) => page.evaluate<{ paper: string; faint: string[] }>(inspectContrast)),
      ),
    );
    expect(light?.faint).toEqual([]);
    expect(dark?.faint).toEqual([]);
    expect(light?.paper).not.toBe(dark?.paper);
  });
});

/** In the browser: texts whose contrast with their background is below 4.5, as WCAG defines it. */
const inspectContrast = `(() => {
  const parts = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const luminance = (color) => {
    const [r, g, b] = parts(color).map((part) => part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return parts(color)[3] === 0 && element.parentElement ? behind(element.parentElement) : color;
  };
  const written = [...document.querySelectorAll('body *')].filter((element) => !element.closest('script, .shared') &&
    [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== ''));
  const faint = written.filter((element) => {
    const { color, fill } = getComputedStyle(element);
    const [a, b] = [luminance(element.closest('svg') ? fill : color), luminance(behind(element))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 4.5;
  });
  return { paper: getComputedStyle(document.body).backgroundColor, faint: faint.map((element) => element.textContent) };
})()`;
