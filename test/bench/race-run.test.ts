/** Whole races on real servers: the states, a fault in the middle, and the page. */
import axe from 'axe-core';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { defaults, raceFaults } from '../../bench/race/options.ts';
import { Race, RaceError } from '../../bench/race/race.ts';
import { openServer } from '../../bench/race/server.ts';
import type { LaneView, Phase, RaceView } from '../../bench/race/view.ts';
import { raceFolder } from '../support/race-folder.ts';
import { executablePath, openBrowser } from '../web/browser.ts';

/** Customers come for 18 s: a fault heals, and the stock is sold, long before. */
const small = { ...defaults, strategies: ['unsafe', 'lua'], customers: 1_100, units: 240, rate: 60 };

const folder = raceFolder();

function expectVerdicts({ lanes, strikes, options: { units } }: RaceView): void {
  const [unsafe, lua] = lanes;
  expect(strikes).toMatchObject([{ isHealed: true }]);
  expect(unsafe?.verdict).toMatchObject({ word: 'oversold' });
  expect(unsafe?.verdict?.sold).toBe(units + unsafe!.verdict!.count);
  expect(lua?.verdict).toMatchObject({ word: 'exact', sold: units });
  expect(lua?.outages).toMatchObject([{ isStopped: false }]);
}

describe('a race', () => {
  it('goes through its states with a fault, and leaves only verdicts', async () => {
    const phases: Phase[] = [];
    const race = new Race(small, ({ phase }) => {
      if (phases.at(-1) !== phase) phases.push(phase);
    });
    race.start({ ...small, units: 120 });
    expect(() => race.start(small)).toThrow(RaceError);
    // A lane that answered less often would not count 2 s without an answer as an outage.
    const sells = ({ accepted, soldOut }: LaneView) => accepted + soldOut > race.view.elapsedMs / 50;
    const isSelling = () => race.view.phase === 'running' && race.view.lanes.every(sells);
    await expect.poll(isSelling, { timeout: 150_000 }).toBe(true);
    race.strike(raceFaults.find(({ name }) => name === 'service-killed')!);
    const view = await race.ended();
    expect(view.problem).toBeNull();
    expect(phases).toEqual(['preparing', 'running', 'auditing', 'done']);
    expectVerdicts(view);
    expect(view.lanes[1]!.outages).toMatchObject([{ recoveredMs: expect.any(Number) }]); // its service was dead
    for (const { accepted, soldOut, busy, unknown, unsent } of view.lanes)
      expect(accepted + soldOut + busy + unknown + unsent).toBe(small.customers);
    folder.nothingIsLeft();
  });
});

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  /** Violations that axe-core finds. */
  const flaws = async (page: Page): Promise<string[]> => {
    await page.evaluate(axe.source); // not as a script element: the page's policy refuses those
    return page.evaluate<string[]>(
      `axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => id + ': ' + html)))`,
    );
  };

  it('is controlled by keyboard, from the start to the verdicts, without console errors', async () => {
    let show = (_view: RaceView): void => {};
    const race = new Race(small, (view) => show(view));
    await using server = await openServer(race, 0);
    show = server.show;
    const browser = await openBrowser();
    try {
      const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
      page.setDefaultTimeout(120_000);
      const troubles: string[] = [];
      page.on('pageerror', ({ message }) => troubles.push(message));
      page.on('console', (message) => message.type() === 'error' && troubles.push(message.text()));
      page.on('request', (request) => {
        if (!request.url().startsWith(`${server.url}/`)) troubles.push(request.url());
      });
      const reach = (phase: Phase) => page.locator(`main[data-phase="${phase}"]`).waitFor();
      await page.goto(server.url);
      await reach('idle');
      expect(await flaws(page)).toEqual([]);
      await page.getByRole('button', { name: 'Start the race' }).focus();
      await page.keyboard.press('Enter');
      await reach('running');
      await page.getByRole('button', { name: 'Redis back empty' }).focus();
      await page.keyboard.press('Enter');
      await page
        .getByRole('img', { name: /^lua, .*Redis back empty: (recovered after [\d.]+ s|kept answering)/ })
        .waitFor();
      expect(await flaws(page)).toEqual([]);
      await reach('done');
      expectVerdicts(race.view);
      const verdict = (name: string) =>
        page.getByRole('region', { name, exact: true }).locator('.verdict .pill').textContent();
      expect(await verdict('unsafe')).toBe(`oversold by ${race.view.lanes[0]!.verdict!.count}`);
      expect(await verdict('lua')).toBe('exact');
      expect(await page.getByRole('heading', { level: 1 }).textContent()).toContain('1 of 2 sold exactly');
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        expect(await flaws(page)).toEqual([]);
      }
      await page.setViewportSize({ width: 390, height: 800 });
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
      expect(troubles).toEqual([]);
    } finally {
      await browser.close();
      await race.stop();
    }
    folder.nothingIsLeft();
  });
});
