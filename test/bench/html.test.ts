import { accessSync, constants, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { apart } from '../../bench/report/chart/lines.ts';
import { looksOf } from '../../bench/report/chart/look.ts';
import { linear, logarithmic } from '../../bench/report/chart/scale.ts';
import { toHtml } from '../../bench/report/html.ts';
import type { SummaryRow } from '../../bench/summary.ts';
import { inspectCharts, inspectColours, inspectScheme, unfoldedWidth } from './inspect-page.ts';
import { resultsOf, rowOf, summaryOf, sweepOf, unsafeRow } from './results-of.ts';

const sweeps = [sweepOf('rtt'), sweepOf('connections'), sweepOf('sales')];
const whole = toHtml(resultsOf(), sweeps);

/** The ids of the charts, in order. */
function charts(page: string): string[] {
  return [...page.matchAll(/<h3 id="([^"]*)">/g)].map(([, id]) => id ?? '');
}

function ranking(page: string): string {
  return /<table class="ranking">.*?<\/table>/s.exec(page)?.[0] ?? '';
}

function indexOf(page: string, text: string): number {
  const index = page.indexOf(text);
  expect(index, `the page should say "${text}"`).toBeGreaterThan(-1);
  return index;
}

describe('what the page says', () => {
  it('begins with the verdict in words', () => {
    expect(whole).toContain(
      '7 of 7 safe strategies sold exactly the stock and passed every other check; unsafe oversold by 700.',
    );
  });

  it('ranks what is correct, and has what is not below, with the reason', () => {
    const order = [
      '>lua</th>',
      '>group-commit</th>',
      '>advisory-lock</th>',
      'Not correct</h3>',
      '>unsafe</th>',
      '300 oversold',
    ];
    const places = order.map((text) => indexOf(whole, text));
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(whole).toContain('<td class="right">2=</td>');
  });

  it('says how noisy the run was, and leaves the twin out of the ranking and the charts', () => {
    expect(whole).toContain(
      'Noise: for-update was measured twice in each round. The second came out at 0.98 of the first',
    );
    expect(whole.slice(0, whole.indexOf('id="trials"'))).not.toContain('for-update, again');
  });

  it('says at which share of its capacity each was rushed, as far as it is known', () => {
    expect(whole).toContain('open, 70\u00a0% of own');
    expect(whole).toContain('Latency when each strategy has 70\u00a0% of what it can do');
    expect(toHtml(resultsOf({ trials: [] }))).toContain('open, own share');
  });

  it('compares with the baseline, in words, and has no column without a figure', () => {
    expect(whole).toContain('>× for-update</th>');
    expect(whole).toContain('<td class="right">baseline</td>');
    expect(whole).toMatch(/6\.64 <span class="word faster">faster<\/span> <small>6\.31 … 7\.04<\/small>/);
    const closed = summaryOf().map((row) => ({ ...row, rush: { fixed: null, share: null } }));
    expect(ranking(whole)).toContain('p99 ms');
    expect(ranking(toHtml(resultsOf({ summary: closed })))).not.toContain('p99 ms');
  });

  it('says which rounds the generator spoilt', () => {
    expect(whole).toContain('skip-locked: 1 round of the closed loop');
  });

  it('escapes names, findings and the machine', () => {
    const hostile = '<script>alert("&")</script>';
    const row = rowOf(hostile, 900, { lock: "'>", verdict: 'fail', rank: null, findings: [hostile] });
    const results = resultsOf({ summary: [...summaryOf(), row], shortcomings: [hostile], commit: hostile });
    const page = toHtml({ ...results, machine: { ...results.machine, cpu: hostile } });
    for (const text of [whole, page]) {
      expect(text).not.toMatch(/<script|<b>/);
      expect(text).toContain('&lt;b&gt;&amp;&quot;bold&quot;');
    }
    expect(page).toContain('&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt; (&#39;&gt;)');
  });

  it('says that a run is partial, and of how many trials it is', () => {
    expect(whole).not.toContain('Partial');
    const { trials } = resultsOf();
    const page = toHtml(resultsOf({ partial: true, trials: trials.slice(0, 15) }));
    expect(page).toContain('<strong>Partial run:</strong> 5 of 45 trials were finished.');
  });

  it('says that nothing was finished', () => {
    const page = toHtml(resultsOf({ partial: true, summary: [], trials: [], noise: null }));
    expect(page).toContain('No trial was finished.');
    expect(page).not.toContain('<figure');
  });

  it('does not praise an unsafe strategy that was not seen to oversell', () => {
    const unsafe = unsafeRow({ verdict: 'pass', worst: rowOf('lua', 1).worst, findings: [] });
    const page = toHtml(resultsOf({ summary: [rowOf('lua', 9_300), unsafe] }));
    expect(page).toContain('unsafe was not seen to oversell');
    expect(page).toContain('Declared unsafe, but this load did not make it oversell.');
    expect(page).toContain('5,200, declared unsafe');
  });

  it('is the same for the same results, and has no number that is none', () => {
    expect(toHtml(resultsOf(), sweeps)).toBe(whole);
    expect(whole).not.toMatch(/NaN|Infinity|undefined|\[object/);
  });
});

describe('the charts', () => {
  const comparisons = ['accepted', 'latency-fixed', 'latency-share', 'remaining', 'cpu'];
  const without = (changes: Partial<SummaryRow>): string =>
    toHtml(resultsOf({ summary: summaryOf().map((row) => ({ ...row, ...changes })) }));

  it('are those of one point, and one for each axis', () => {
    expect(charts(whole)).toEqual([...comparisons, 'sweep-rtt-1', 'sweep-connections-2', 'sweep-sales-3']);
    expect(charts(toHtml(sweepOf('rtt')))).toEqual(['sweep-rtt-0']);
  });

  it.each<[string, Partial<SummaryRow>]>([
    ['accepted', { acceptedInterval: null }],
    ['latency-fixed', { rush: { fixed: null, share: summaryOf()[0]!.rush.share } }],
    ['latency-share', { rush: { fixed: summaryOf()[0]!.rush.fixed, share: null } }],
    ['remaining', { remainingOverTime: [] }],
    [
      'cpu',
      {
        cost: {
          cpu: { service: null, redis: null, postgres: null },
          redisCommands: null,
          postgresTransactions: null,
        },
      },
    ],
  ])('leave out %s where it has no data, with its heading', (missing, changes) => {
    expect(charts(without(changes))).toEqual(comparisons.filter((id) => id !== missing));
  });

  it('say what they show and find, and have their data as a table', () => {
    for (const figure of whole.split('<figure>').slice(1)) {
      expect(figure).toMatch(/<svg [^>]*role="img" aria-labelledby="[^"]+"/);
      expect(figure).toMatch(/<desc id="[^"]+">[^<]*\d/);
      expect(figure).toMatch(/<details><summary>The figures as a table<\/summary>.*<td/s);
    }
  });

  it('tell 24 strategies apart without colour', () => {
    const looks = looksOf(Array.from({ length: 24 }, (_, n) => `strategy-${n}`));
    const uncoloured = [...looks.values()].map(({ colour, ...look }) => JSON.stringify(look));
    expect(new Set(uncoloured).size).toBe(24);
  });
});

describe('scales', () => {
  it.each([
    [[0], [0, 0.2]],
    [[0.9], [0, 0.2, 0.4, 0.6, 0.8, 1]],
    [[9_870], [0, 2_000, 4_000, 6_000, 8_000, 10_000]],
    [
      [2_000, -700],
      [-1_000, -500, 0, 500, 1_000, 1_500, 2_000],
    ],
  ])('are round and hold %j', (values, ticks) => {
    expect(linear(values, String).ticks.map((tick) => Number(tick.toFixed(6)))).toEqual(ticks);
  });

  it('are logarithmic between round numbers, also of one value or none above 0', () => {
    expect(logarithmic([3, 180], String).ticks).toEqual([2, 5, 10, 20, 50, 100, 200]);
    expect(logarithmic([10], String).ticks).toEqual([10, 20]);
    expect(logarithmic([0], String).ticks).toEqual([1, 2, 5, 10]);
  });

  it('move names apart, and keep their order and their room', () => {
    const places = apart([10, 11, 12, 50, 99, 100], 10, 0, 100);
    expect(places).toEqual([1, 11, 21, 50, 90, 100]);
  });
});

/** Of the environment or the search path; null: there is none. */
function findChromium(): string | null {
  const names = ['chromium', 'chromium-browser', 'google-chrome'];
  const folders = (process.env.PATH ?? '').split(delimiter);
  const paths = folders.flatMap((folder) => names.map((name) => join(folder, name)));
  const candidates = process.env.CHROMIUM === undefined ? paths : [process.env.CHROMIUM];
  return candidates.find(isExecutable) ?? null;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const executablePath = findChromium();
const browserName =
  executablePath === null ? 'a browser (skipped: no Chromium is on PATH or in CHROMIUM)' : 'a browser';

describe.skipIf(executablePath === null)(`in ${browserName}`, () => {
  const folder = mkdtempSync(join(tmpdir(), 'stampede-report-'));
  const file = join(folder, 'report.html');
  const url = pathToFileURL(file).href;
  const widths = [360, 1280];
  let browser: Browser;

  beforeAll(async () => {
    writeFileSync(file, whole);
    browser = await chromium.launch({ executablePath: executablePath ?? '', args: ['--no-sandbox'] });
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  async function opened(width: number, colorScheme: 'light' | 'dark'): Promise<Page> {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    await page.goto(url);
    return page;
  }

  it('asks for nothing but itself, and has no errors', async () => {
    const page = await browser.newPage();
    const [requests, troubles]: [string[], string[]] = [[], []];
    page.on('request', (request) => requests.push(request.url()));
    page.on('console', (message) => troubles.push(message.text()));
    page.on('pageerror', (error) => troubles.push(error.message));
    await page.goto(url, { waitUntil: 'networkidle' });
    await page.close();
    expect({ requests, troubles }).toEqual({ requests: [url], troubles: [] });
  });

  it.each(widths)('has charts with marks, and no text that is cut or on another, at %i px', async (width) => {
    const page = await opened(width, 'light');
    const drawn = await page.evaluate(inspectCharts);
    await page.close();
    expect(drawn).toHaveLength(8);
    for (const { title, marks, smallestText, faults } of drawn) {
      expect.soft(marks, title).toBeGreaterThan(10);
      expect.soft(smallestText, title).toBeGreaterThan(9);
      expect.soft(faults, title).toEqual([]);
    }
  });

  it.each(widths)('does not scroll sideways at %i px', async (width) => {
    const page = await opened(width, 'light');
    expect(await page.evaluate(unfoldedWidth)).toBeLessThanOrEqual(width);
    await page.close();
  });

  it('has other colours in the dark, and texts that can be read in both', async () => {
    const light = await coloursIn('light');
    const dark = await coloursIn('dark');
    expect({ light: light.faint, dark: dark.faint }).toEqual({ light: [], dark: [] });
    expect(light.texts.length).toBeGreaterThan(200);
    expect(light.lines.length).toBeGreaterThan(200);
    expect(dark.texts.filter((colour, index) => colour === light.texts[index])).toEqual([]);
    expect(dark.lines.filter((colour, index) => colour === light.lines[index])).toEqual([]);
  });

  it('is light on paper, and shows the wide charts', async () => {
    const page = await opened(700, 'dark');
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    const seen = await page.evaluate(inspectScheme);
    await page.close();
    expect(seen).toEqual({ ink: 'rgb(27, 31, 36)', wide: 'block', narrow: 'none' });
  });

  async function coloursIn(scheme: 'light' | 'dark'): Promise<ReturnType<typeof inspectColours>> {
    const page = await opened(1280, scheme);
    const seen = await page.evaluate(inspectColours);
    await page.close();
    return seen;
  }
});
