/** Races that end early leave nothing; and the command, without its page. */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { defaults } from '../../bench/race/options.ts';
import { Race } from '../../bench/race/race.ts';
import type { StrategyFault } from '../../lab/faults/strategy-fault.ts';
import { strategyFaults } from '../../lab/faults/strategy-faults.ts';
import { raceFolder } from '../support/race-folder.ts';
import { executablePath } from '../web/browser.ts';

const postgresKilled = strategyFaults.find(({ name }) => name === 'postgres-killed')!;
/** Longer than any of these tests. */
const small = { ...defaults, strategies: ['unsafe', 'lua'], customers: 1_100, units: 240, rate: 60 };
const main = fileURLToPath(new URL('../../bench/race/main.ts', import.meta.url));
const folder = raceFolder();
describe('a race', () => {
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
      folder.nothingIsLeft();
    },
  );
});

describe('the command', { timeout: 600_000 }, () => {
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
    const { code, output } = await run(`--headless ${flags} --out`, folder.path).ended;
    expect({ code, output }).toMatchObject({ code: 0 });
    const [made = ''] = readdirSync(folder.path).filter((name) => /^race-20[\dT-]+$/.test(name));
    const figures = JSON.parse(readFileSync(join(folder.path, made, 'race.json'), 'utf8'));
    expect(figures).toMatchObject({
      ...{ schema: 1, phase: 'done', options: { seed: 7 }, strikes: [{ name: 'redis-silent' }] },
      lanes: [{ strategy: 'lua', verdict: { word: 'exact', sold: 40 } }],
    });
    expect(readFileSync(join(folder.path, made, 'race.md'), 'utf8')).toMatch(
      /^\| `lua` \| exact \| \d+ \| /m,
    ); // answers may be lost
    expect(output).toContain(made);
    for (const picture of ['race.png', 'race-dark.png'])
      expect(existsSync(join(folder.path, made, picture))).toBe(executablePath !== undefined);
    folder.nothingIsLeft();
  });

  it('leaves nothing after Ctrl-C in the middle of a race', async () => {
    const flags = '--headless --strategies lua --customers 50000 --out';
    const { child, ended, output } = run(flags, folder.path);
    while (!output().includes('running') && child.exitCode === null) await sleep(50);
    child.kill('SIGINT');
    expect((await ended).code).toBe(130);
    folder.nothingIsLeft();
  });
});
