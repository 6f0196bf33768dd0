/** The race without its stores: how a lane counts answers and faults, the options, and who may send commands. */
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { Lane } from '../../bench/race/lane.ts';
import { defaults } from '../../bench/race/options.ts';
import { Race } from '../../bench/race/race.ts';
import { openServer } from '../../bench/race/server.ts';
import {
  isRight,
  type RaceOptions,
  type RaceView,
  recoveryText,
  verdictText,
} from '../../bench/race/view.ts';
import { type AuditReport, checkNames } from '../../lab/audit/audit.ts';
import { description as lua } from '../../src/strategies/redis/lua.ts';
import { description as unsafe } from '../../src/strategies/redis/unsafe.ts';
import { opened } from '../support/opened.ts';
import { executablePath, inspect, openBrowser, visit } from '../web/browser.ts';

const clean = Object.fromEntries(checkNames.map((name) => [name, 0]));
const report = (found: Partial<AuditReport>) =>
  ({ ...clean, verdict: 'fail', findings: ['one', 'two'], ...found }) as AuditReport;

describe('a lane', () => {
  it('counts answers by kind and accepted ones by time', () => {
    const lane = new Lane(lua, 3);
    for (const atMs of [10, 490, 500, 1_700]) lane.answered('accepted', atMs);
    for (const outcome of ['sold-out', 'busy', 'unknown', 'unexpected', 'replayed'] as const)
      lane.answered(outcome, 1_800);
    lane.missing(true);
    lane.missing(false);
    expect(lane.view(2_000)).toMatchObject({
      ...{ accepted: 4, soldOut: 1, busy: 1, unknown: 3, unsent: 1 },
      ...{ bins: [2, 1, 0, 1], allSoldMs: 500, outages: [], verdict: null },
    });
  });

  it('stops while a fault lasts, and recovers with the first decided answer', () => {
    const lane = new Lane(lua, 1_000);
    for (let atMs = 0; atMs < 1_000; atMs += 10) lane.answered('accepted', atMs);
    lane.struck(1_000);
    lane.answered('accepted', 1_010); // was in flight
    lane.answered('busy', 1_900); // decides nothing
    const texts = (atMs: number) => lane.view(atMs).outages.map(recoveryText);
    expect([texts(2_400), texts(2_600)]).toEqual([['still answers'], ['stopped']]);
    lane.healed(3_000);
    lane.answered('sold-out', 3_400);
    lane.answered('accepted', 3_410);
    expect(texts(3_420)).toEqual(['recovered after 2.4 s']);
  });

  it.each([
    ['exact', report({ verdict: 'pass', findings: [] })],
    ['2 units left', report({ verdict: 'pass', findings: [] }), 5],
    ['oversold by 1,200', report({ oversold: 1_200, drift: 3 })],
    ['lost 2', report({ lost: 2, undersold: 1 })],
    ['stranded 7', report({ undersold: 7 })],
    ['broken', report({ drift: 3 })],
    ['not audited', report({ verdict: 'unknown', drift: null })],
  ])('is judged %s', (text, found, units = 3) => {
    const lane = new Lane(unsafe, units);
    lane.judged(found, 3);
    const { verdict, isSafe } = lane.view(0);
    expect(verdictText(verdict!)).toBe(text);
    expect(verdict?.sentence).toMatch(isRight(verdict!) ? /^3 of [35] units sold; / : /^One\.$/);
    expect(isSafe).toBe(false);
  });
});

/** Of the picture in the README. */
const committed: RaceView = JSON.parse(
  readFileSync(new URL('../../bench/results/canonical/race.json', import.meta.url), 'utf8'),
);

describe('commands', () => {
  const race = new Race(defaults, () => {});
  const server = opened(() => openServer(race, 0));

  /** Not `fetch`, which sets Host itself. */
  const post = (path: string, body: string, headers: Record<string, string> = {}) =>
    new Promise<number | undefined>((resolve, reject) => {
      const all = { 'content-type': 'application/json', ...headers };
      request(`${server.url}${path}`, { method: 'POST', headers: all }, (response) => {
        response.resume();
        resolve(response.statusCode);
      })
        .once('error', reject)
        .end(body);
    });

  it.each<[number, string, string, Record<string, string>?]>([
    [403, '/start', '{}', { origin: 'http://example.org' }],
    [403, '/start', '{}', { host: 'rebound.example.org' }],
    [415, '/start', '{}', { 'content-type': 'text/plain' }],
    [400, '/start', '{'],
    [400, '/start', '{"units":0,"strategies":["lau"]}'],
    [413, '/start', `"${'x'.repeat(20_000)}"`],
    [400, '/strike', '{"fault":"none"}'],
    [409, '/strike', '{"fault":"service-killed"}'],
    [404, '/other', '{}'],
    [200, '/stop', '{}'],
  ])('have the answer %i: %s', async (status, path, body, headers) => {
    expect(await post(path, body, headers)).toBe(status);
    expect(race.view.phase).toBe('idle');
  });
});

describe.skipIf(executablePath === undefined)('in Chromium (skipped where it is not installed)', () => {
  const browser = opened(openBrowser);

  it('the page starts a race, strikes it, and shows its verdicts', async () => {
    const calls: unknown[] = [];
    const race = {
      view: new Race(defaults, () => {}).view,
      start: (options: RaceOptions) => void calls.push(options),
      strike: ({ name }: { name: string }) => void calls.push(name),
    };
    await using server = await openServer(race as unknown as Race, 0);
    await visit(browser, server.url, async (page) => {
      const reach = async (view: RaceView) => {
        race.view = view;
        server.show(view);
        await page.locator(`main[data-phase="${view.phase}"]`).waitFor();
      };
      const press = async (name: string) => {
        await page.getByRole('button', { name }).focus();
        await page.keyboard.press('Enter');
      };
      await page.locator('main[data-phase="idle"]').waitFor();
      await press('Start the race');
      await expect.poll(() => calls).toMatchObject([{ strategies: defaults.strategies }]);
      const lanes = committed.lanes.map((lane) => ({ ...lane, verdict: null }));
      await reach({ ...committed, phase: 'running', lanes });
      await press('Redis back empty');
      await expect.poll(() => calls).toHaveLength(2);
      expect(calls[1]).toBe('redis-emptied');
      await reach(committed);
      for (const { strategy, verdict, isSafe } of committed.lanes) {
        const lane = page.getByRole('region', { name: strategy, exact: true });
        expect(await lane.locator('.verdict .pill').textContent()).toBe(verdictText(verdict!));
        expect(verdict!.word === 'exact').toBe(isSafe);
      }
      await inspect(page);
    });
  });
});
