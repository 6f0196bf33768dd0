/** The command, without its page: a whole race with a fault, and races that Ctrl-C ends. */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { expectNoProcessOn, temporaryFolder } from '../local/support.ts';
import { executablePath } from '../web/browser.ts';

const program = fileURLToPath(new URL('../../dist/commands/race.js', import.meta.url));

function run(TMPDIR: string, args: string) {
  const child = spawn(process.execPath, [program, ...args.split(' ')], { env: { ...process.env, TMPDIR } });
  const race = { child, output: '' };
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (race.output += chunk));
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
  return Object.assign(race, { ended });
}

async function expectNothingOf(folder: string): Promise<void> {
  expect(readdirSync(folder).filter((name) => name.startsWith('stampede-race-'))).toEqual([]);
  await expectNoProcessOn(folder);
}

describe('npm run race', { timeout: 600_000 }, () => {
  it('with two lanes and a fault leaves figures, a summary, pictures, and verdicts', async () => {
    const folder = temporaryFolder();
    const flags = '--strategies unsafe,lua --customers 900 --units 120 --rate 90 --fault service-killed@1';
    const race = run(folder, `--headless ${flags} --seed 7 --out ${folder}`);
    expect(await race.ended, race.output).toBe(0);
    const [made = ''] = readdirSync(folder).filter((name) => /^race-20[\dT-]+$/.test(name));
    const figures = JSON.parse(readFileSync(join(folder, made, 'race.json'), 'utf8'));
    expect(figures).toMatchObject({
      ...{ schema: 1, phase: 'done', options: { seed: 7 } },
      strikes: [{ name: 'service-killed', isHealed: true }],
      lanes: [
        { strategy: 'unsafe', verdict: { word: 'oversold' } },
        { strategy: 'lua', verdict: { word: 'exact', sold: 120 }, outages: [{ isStopped: false }] },
      ],
    });
    for (const { accepted, soldOut, busy, unknown, unsent } of figures.lanes)
      expect(accepted + soldOut + busy + unknown + unsent).toBe(900);
    expect(readFileSync(join(folder, made, 'race.md'), 'utf8')).toMatch(/^\| `lua` \| exact \| \d+ \| /m);
    for (const picture of ['race.png', 'race-dark.png', 'race-phone.png', 'race-phone-dark.png'])
      expect(existsSync(join(folder, made, picture))).toBe(executablePath !== undefined);
    await expectNothingOf(folder);
  });

  it.each([
    ['it prepares', 'preparing'],
    ['a fault lasts', 's: Postgres'],
  ])('leaves nothing after Ctrl-C while %s', async (_, said) => {
    const folder = temporaryFolder();
    const flags = '--strategies unsafe,lua --customers 50000 --fault postgres-killed@0.1';
    const race = run(folder, `--headless ${flags} --out ${folder}`);
    const isThere = () => race.output.includes(said) || race.child.exitCode !== null;
    await expect.poll(isThere, { timeout: 300_000, interval: 20 }).toBe(true);
    race.child.kill('SIGINT');
    expect(await race.ended, race.output).toBe(130);
    await expectNothingOf(folder);
  });
});
