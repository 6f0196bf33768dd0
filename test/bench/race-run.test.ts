/** Whole races on real servers: the states, a fault in the middle, what is left afterwards, the command, and the page. */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import axe from 'axe-core';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { defaults, raceFaults } from '../../bench/race/options.ts';
import { Race, RaceError } from '../../bench/race/race.ts';
import { openServer } from '../../bench/race/server.ts';
import type { LaneView, Phase, RaceView } from '../../bench/race/view.ts';
import type { StrategyFault } from '../../lab/faults/strategy-fault.ts';
import { strategyFaults } from '../../lab/faults/strategy-faults.ts';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { executablePath, openBrowser } from '../web/browser.ts';

const postgresKilled = strategyFaults.find(({ name }) => name === 'postgres-killed')!;

/** Customers come for 18 s: a fault heals, and the stock is sold, long before. */
const small = { ...defaults, strategies: ['unsafe', 'lua'], customers: 1_100, units: 240, rate: 60 };
const main = fileURLToPath(new URL('../../bench/race/main.ts', import.meta.url));

/** Parent folder of the races in this file and of their servers. */
let folder: string;
const { TMPDIR } = process.env;
beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-race-');
  process.env.TMPDIR = folder;
});
afterAll(async () => {
  process.env.TMPDIR = TMPDIR;
  await rm(folder, { recursive: true, force: true });
});

/** Command lines of processes that use the folder. */
function processesOf(path: string): string[] {
  const ids = existsSync('/proc') ? readdirSync('/proc').filter((name) => /^\d+$/.test(name)) : [];
  return ids.flatMap((id) => {
    try {
      const line = readFileSync(`/proc/${id}/cmdline`, 'utf8').replaceAll('\0', ' ');
      return line.includes(path) ? [line] : [];
    } catch {
      return []; // the process has ended
    }
  });
}

const nothingIsLeft = (): void => {
  expect(readdirSync(folder).filter((name) => name.startsWith('stampede-race-'))).toEqual([]);
  expect(processesOf(folder)).toEqual([]);
};

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
    nothingIsLeft();
  });

  it.each(['it prepares', 'it runs', 'a fault lasts', 'a fault heals'])(
    'stops while %s, and leaves nothing',
    async (when) => {
      let reached = (_when: string): void => {};
      const isThere = new Promise<void>((resolve) => {
        reached = (now) => now === when && resolve();
      });
      let struck = 0;
      const fault: StrategyFault = {
        ...postgresKilled,
        async strike(shop) {
          await postgresKilled.strike(shop);
          reached('a fault lasts');
          if (struck++ > 0) await sleep(1_000); // so that lanes are at different steps
        },
        heal: (shop) => {
          reached('a fault heals');
          return postgresKilled.heal(shop);
        },
      };
      const race = new Race(small, ({ phase }) => {
        if (phase === 'preparing') reached('it prepares');
        if (phase === 'running') reached('it runs');
      });
      race.start(small, [{ fault, atMs: 100 }]);
      await isThere;
      await race.stop();
      expect(race.view).toMatchObject({ phase: 'idle', problem: null });
      await sleep(1_000); // anything started without being awaited exists by now
      nothingIsLeft();
    },
  );
});

describe('the command', () => {
  /** @param last may have spaces */
  const run = (args: string, ...last: readonly string[]) => {
    const child = spawn(process.execPath, ['--import', 'tsx', main, ...args.split(' '), ...last]);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    const ended = new Promise<{ code: number | null; output: string }>((resolve) =>
      child.on('close', (code) => resolve({ code, output })),
    );
    return { child, ended, output: () => output };
  };

  it('names every mistake', async () => {
    const { code, output } = await run('--units 0 --rate 5.5 --fault none@1 --canonical x').ended;
    expect(code).toBe(2);
    for (const word of ['--units 0', '--rate 5.5', '--fault none@1', '--canonical needs --headless', '"x"'])
      expect(output).toContain(word);
  });

  it('races without a page, and writes figures, a summary and a picture', async () => {
    const flags = '--strategies lua --customers 480 --units 40 --fault redis-silent@0.5 --seed 7';
    const { code, output } = await run(`--headless ${flags} --out`, folder).ended;
    expect({ code, output }).toMatchObject({ code: 0 });
    const [made = ''] = readdirSync(folder).filter((name) => /^race-20[\dT-]+$/.test(name));
    const figures = JSON.parse(readFileSync(join(folder, made, 'race.json'), 'utf8'));
    expect(figures).toMatchObject({
      ...{ schema: 1, phase: 'done', options: { seed: 7 }, strikes: [{ name: 'redis-silent' }] },
      lanes: [{ strategy: 'lua', verdict: { word: 'exact', sold: 40 } }],
    });
    expect(readFileSync(join(folder, made, 'race.md'), 'utf8')).toMatch(/^\| `lua` \| exact \| \d+ \| /m); // answers may be lost
    expect(output).toContain(made);
    for (const picture of ['race.png', 'race-dark.png'])
      expect(existsSync(join(folder, made, picture))).toBe(executablePath !== undefined);
    nothingIsLeft();
  });

  it('leaves nothing after Ctrl-C in the middle of a race', async () => {
    const flags = '--headless --strategies lua --customers 50000 --out';
    const { child, ended, output } = run(flags, folder);
    while (!output().includes('running') && child.exitCode === null) await sleep(50);
    child.kill('SIGINT');
    expect((await ended).code).toBe(130);
    nothingIsLeft();
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
    nothingIsLeft();
  });
});
