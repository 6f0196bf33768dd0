/** Suites as a user runs them, small: on real servers, with the built programs. .ci/run makes the smoke run of `strategies`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, inject, it } from 'vitest';
import type { Results } from '../../bench/kit/results.ts';
import type { StrategyResult } from '../../bench/suites/strategies/result.ts';
import { readHistory } from '../../lab/history.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'stampede-bench-out-'));
const stores = opened(openTestStores);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A folder whose package has the script `bench` only. */
const script = join(folder, 'script');
mkdirSync(script);
const bench = `cd '${root}' && exec node dist/commands/bench.js`;
writeFileSync(join(script, 'package.json'), JSON.stringify({ scripts: { bench } }));

/** `npm run bench` without the build: the global setup has made it. In a process group of its own, as in a terminal. */
function start(args: string, env: NodeJS.ProcessEnv = {}) {
  const out = join(folder, String(Math.random()));
  const urls = { DATABASE_URL: inject('postgresUrl'), REDIS_URL: stores.redisUrl };
  const { PATH, HOME } = process.env;
  const options = { cwd: script, env: { PATH, HOME, TMPDIR: tmpdir(), ...urls, ...env }, detached: true };
  const child = spawn('npm', ['run', '--silent', 'bench', '--', ...args.split(' '), '--out', out], options);
  const run = { child, out, shown: '', ended: once(child, 'exit') as Promise<[number | null]> };
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (run.shown += chunk));
  return run;
}

async function finished(args: string) {
  const { out, ended, ...run } = start(args);
  const [code] = await ended;
  const latest = join(out, 'latest');
  expect(existsSync(join(latest, 'results.json')), `${run.shown} ${code}`).toBe(true);
  const results = JSON.parse(readFileSync(join(latest, 'results.json'), 'utf8')) as Results;
  expect(results.broken).toEqual([]);
  expect(results).toMatchObject({ schema: 2, partial: false });
  const files = readdirSync(latest);
  expect(files).toEqual(expect.arrayContaining(['report.html', 'report.md', 'results.csv', 'results.json']));
  return { code, results, latest };
}

/** Checks that trials left no database behind. */
async function expectNoDatabase(): Promise<void> {
  const all = "SELECT datname FROM pg_database WHERE datname ~ '^stampede_bench_[a-z0-9]+_[0-9]+$'";
  expect((await stores.sql.query(all)).rows).toEqual([]);
}

/** The verdict on each cell. */
const verdictsOf = ({ summary }: Results) =>
  Object.fromEntries(summary.map(({ cell, verdict }) => [cell, verdict]));

/** Longer than a trial's own timeouts, 180 s until it sells and 120 s until it is settled: those name what is missing. */
const BOUND_MS = 400_000;

describe('npm run bench', { timeout: BOUND_MS }, () => {
  const small = '--duration 0.6 --stock 60 --rate 1500 --warmup 0.3';

  it('compares strategies over a slower link: capacity, selling out and audits, and leaves no database', async () => {
    const { results, latest, code } = await finished(`--smoke --rtt-ms 1 --strategies unsafe,lua ${small}`);
    const trials = results.trials as readonly StrategyResult[];
    expect(trials.map(({ cell, load }) => `${cell} ${load}`).sort()).toEqual([
      ...['lua closed', 'lua open', 'unsafe closed', 'unsafe open'],
    ]);
    const expected = { lua: 'pass', unsafe: 'fail (expected)' };
    expect({ ...verdictsOf(results), code }).toMatchObject({ ...expected, code: 0 });
    const safe = trials.filter((one) => !one.unsafe);
    for (const { load, audit, accepted, soldOut, history, generator } of safe) {
      expect(audit.findings).toEqual([]);
      expect(soldOut > 0).toBe(load === 'open');
      // How much a closed loop sells in its time depends on the machine.
      if (load === 'open') expect(accepted).toBe(60);
      expect(generator.cpuS).not.toBeNull();
      expect(await readHistory(join(latest, history))).not.toEqual([]);
    }
    await expectNoDatabase();
  });

  it('reports finished trials after one Ctrl-C, of which npm forwards its own, and leaves nothing', async () => {
    const TMPDIR = join(folder, 'tmp');
    mkdirSync(TMPDIR);
    const run = start(`--strategies lua,for-update --rounds 3 --load closed --connections 4 ${small}`, {
      TMPDIR,
      DATABASE_URL: '',
      REDIS_URL: '',
    });
    await expect
      .poll(() => run.shown, { timeout: 300_000, interval: 100 })
      .toMatch(/round 1 {2}\S+ +[\d,.]+ accepted\/s/);
    process.kill(-run.child.pid!, 'SIGINT'); // as the terminal does
    const [code] = await run.ended;
    expect({ code, shown: run.shown }).toMatchObject({ code: 130 });
    expect(run.shown).toMatch(/interrupted: \d+ of 9 trials were finished/);
    const results = JSON.parse(readFileSync(join(run.out, 'latest', 'results.json'), 'utf8')) as Results;
    expect(results.partial).toBe(true);
    expect(readdirSync(TMPDIR).filter((name) => name.startsWith('stampede-'))).toEqual([]);
  });

  it('rejects a mistake before anything starts', async () => {
    const run = start('limits --cells bear');
    const why = expect.stringContaining('there is no cell "bear"; did you mean "bare"?');
    expect({ code: (await run.ended)[0], shown: run.shown }).toEqual({ code: 2, shown: why });
  });
});

/** Each suite in nightly runs; what CI runs is held by other tests, too. */
const inNightly = it.runIf(inject('size') === 'nightly');

describe('the other suites', { timeout: BOUND_MS }, () => {
  it('locks sees two holders exactly where nothing is locked, and counts requests and commands', async () => {
    // In a second, the server counts fewer commands besides those of grants than half of the grants, even on a busy machine.
    const args = 'locks --smoke --duration 1 --waiters 8 --locks redis,redis-setnx,redlock-5,none';
    const { code, results } = await finished(args);
    expect(code).toBe(0);
    const row = (name: string) => results.summary.find(({ cell }) => cell === name)!;
    for (const name of ['redis', 'redis-setnx', 'redlock-5']) {
      expect(row(name)).toMatchObject({ verdict: 'pass', checks: { overlaps: 0 }, findings: [] });
    }
    expect(row('none').verdict).toBe('fail (expected)');
    // Without scripts, client requests equal server commands; with scripts the server counts more.
    const { values } = row('redis-setnx');
    expect(values['solo.requests']!.median).toBeCloseTo(2, 0);
    expect(values['solo.commands']!.median).toBeCloseTo(2, 0);
    const scripted = row('redis').values;
    expect(scripted['solo.commands']!.median).toBeGreaterThan(2 * scripted['solo.requests']!.median);
  });

  inNightly.each([
    ['points', '', { 'unique-key': 'pass', lock: 'pass', 'lock-alone': 'fail (expected)' }],
    [
      'faults',
      '--faults holder-paused,redis-emptied --locks redis,redis-owner --strategies unsafe,lua',
      null,
    ],
    ['tasks', '--pick lock', { lock: 'pass' }],
    ['scale', '--cells redis-3-service-2-sales-100 --duration 0.4', null],
    [
      'limits',
      '--cells bare,lua-tickets,group-commit,sold-out,pgbench --duration 0.4 --generator autocannon',
      null,
    ],
    ['memory', '--duration 1 --connections 32 --pin none --profile --cells mixed', null],
    ['overload', '--duration 1 --warmup 0.5 --most 300', null],
  ] as const)('%s measures and audits', async (name, args, verdicts) => {
    const { results } = await finished(`${name} --smoke ${args}`.trim());
    if (verdicts !== null) expect(verdictsOf(results)).toEqual(verdicts);
    for (const { verdict, findings, values, invalid } of results.summary) {
      expect(['pass', 'fail (expected)', null]).toContain(verdict);
      if (invalid === 0) expect(Object.keys(values).length).toBeGreaterThan(0);
      if (verdict !== 'fail (expected)')
        expect(findings.filter((text) => !text.includes('not counted'))).toEqual([]);
    }
  });
});
