import { lstatSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkNames } from '../../bench/audit/audit.ts';
import { type BenchOptions, parseOptions } from '../../bench/options.ts';
import type { Contender } from '../../bench/plan.ts';
import type { Results } from '../../bench/report/results.ts';
import { type RunContext, runPlan } from '../../bench/run.ts';
import { oversoldTrial, trialOf } from './trial-of.ts';

let out: string;
beforeEach(() => {
  out = mkdtempSync(join(tmpdir(), 'stampede-results-'));
});
afterEach(() => rmSync(out, { recursive: true, force: true }));

const rows: Contender[] = [
  { strategy: 'unsafe', lock: null, unsafe: true, twin: false },
  { strategy: 'global-lock', lock: 'redis', unsafe: false, twin: false },
  { strategy: 'lua', lock: null, unsafe: false, twin: false },
];

function options(...args: string[]): BenchOptions {
  const parsed = parseOptions(['--out', out, ...args]);
  if (parsed.kind !== 'run') throw new Error(JSON.stringify(parsed));
  return parsed.options;
}

/** A run whose trials are made up; everything else is real. */
async function run(changes: Partial<RunContext> & { tty?: boolean } = {}) {
  let shown = '';
  const code = await runPlan({
    options: options('--rounds', '2'),
    contenders: rows,
    machine: {
      cpu: 'Test CPU',
      cores: 2,
      memoryBytes: 2 ** 34,
      os: 'Linux 6',
      node: 'v20',
      postgres: '18.4',
      redis: '7.0',
    },
    serviceEnv: { SEGMENTS: '10' },
    out: { write: (text) => (shown += text), isTTY: changes.tty ?? false, columns: 200 },
    signal: new AbortController().signal,
    runTrial: async (trial) => [
      trial.unsafe
        ? oversoldTrial({ ...trial })
        : trialOf({ ...trial, history: `history-${trial.round}.jsonl` }),
    ],
    ...changes,
  });
  const read = (name: string): string => readFileSync(join(out, 'latest', name), 'utf8');
  const results = (): Results => JSON.parse(read('results.json')) as Results;
  return { code, shown, read, results };
}

describe('a run', () => {
  it('runs all trials in rotated order and ends with the table', async () => {
    const { code, shown, results } = await run();
    expect(code).toBe(0);
    expect(results().trials.map(({ round, strategy }) => `${round} ${strategy}`)).toEqual([
      '1 unsafe',
      '1 global-lock',
      '1 lua',
      '2 global-lock',
      '2 lua',
      '2 unsafe',
    ]);
    expect(shown).toContain('trial 1 of 6  round 1 of 2  unsafe: starting');
    const table = shown.slice(shown.indexOf('rank')).split('\n');
    expect(table[0]).toMatch(
      /^rank +strategy +accepted\/s +95 % +× base +attempts\/s +p99 ms +rush p99 ms +sold out after +round trips +CPU s\/10k +oversold +undersold +duplicates +lost +verdict$/,
    );
    expect(table.slice(2, 5).map((line) => line.trim().split(/ {2,}/).slice(0, 2).join(' '))).toEqual([
      '1= global-lock (redis)',
      '1= lua',
      '– unsafe',
    ]);
    expect(table[4]).toMatch(/213 +0 +0 +0 +fail \(expected\)$/);
    expect(shown).toContain('unsafe: round 1: sold 1,213 of 1,000: 213 oversold');
  });

  it('writes results.json as the contract has it', async () => {
    const { results } = await run();
    expect(results()).toMatchObject({
      schema: 1,
      partial: false,
      machine: { cpu: 'Test CPU', cores: 2, postgres: '18.4', redis: '7.0' },
      plan: { rounds: 2, attempts: 20_000, trials: 6, contenders: rows, serviceEnv: { SEGMENTS: '10' } },
      summary: [{ strategy: 'global-lock', lock: 'redis' }, { strategy: 'lua' }, { strategy: 'unsafe' }],
      shortcomings: [],
    });
    expect(new Date(results().startedAt).toISOString()).toBe(results().startedAt);
    expect(results().commit).toMatch(/^([0-9a-f]{40}(-dirty)?|unknown)$/);
    const fields =
      'strategy lock round load attempts accepted replayed soldOut busy unknown acceptedPerSecond attemptsPerSecond latencyMs timeToSellOutMs aftermath audit';
    const audit =
      'verdict oversold undersold duplicates lost phantom drift pointsMismatch returnsMismatch paymentsMismatch tasksMismatch';
    for (const trial of results().trials) {
      expect(Object.keys(trial)).toEqual(expect.arrayContaining(fields.split(' ')));
      expect(Object.keys(trial.audit)).toEqual(expect.arrayContaining(audit.split(' ')));
      expect(Object.keys(trial.latencyMs ?? {})).toEqual(['p50', 'p90', 'p99', 'max']);
    }
  });

  it('writes one row per trial in results.csv, with quotes where they are needed', async () => {
    const { read } = await run();
    const lines = read('results.csv').split('\r\n');
    expect(lines).toHaveLength(8);
    expect(lines[0]).toMatch(/^strategy,lock,twin,round,load,/);
    expect(lines[1]).toMatch(
      /^unsafe,,false,1,closed,.*,fail,213,0,0,0,0,0,0,0,0,0,"sold 1,213 of 1,000: 213 oversold"$/,
    );
    expect(lines[2]).toMatch(/^global-lock,redis,false,1,/);
  });

  it('writes report.md with verdicts, definitions, plan, machine and raw rounds', async () => {
    const { read } = await run();
    const report = read('report.md');
    expect(report).toContain(
      '| 1= | lua | 2,000 | 2,000–2,000 | 1.00 | 9,000 | 9.13 | – | 0.10 s | – | – | 0 | 0 | 0 | 0 | pass |',
    );
    for (const heading of [
      'What went wrong',
      'What the words mean',
      'Plan',
      'Machine',
      'Every load of every trial',
    ]) {
      expect(report).toContain(`## ${heading}`);
    }
    expect(report).toContain('20,000 attempts by 18,000 customers (2,000 repeats) for 2,000 units');
    expect(report).toContain('SEGMENTS=10');
    for (const name of checkNames) expect(report).toContain(`\n| ${name} | `);
    expect(report).not.toContain('Partial');
    expect(report.split('\n').filter((line) => line.startsWith('| 2 |'))).toHaveLength(3);
  });

  it('points latest at the newest folder', async () => {
    await run();
    expect(lstatSync(join(out, 'latest')).isSymbolicLink()).toBe(true);
    expect(readlinkSync(join(out, 'latest'))).toMatch(/^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ$/);
    expect(readdirSync(join(out, 'latest')).sort()).toEqual([
      'report.html',
      'report.md',
      'results.csv',
      'results.json',
    ]);
    await run();
    expect(lstatSync(join(out, 'latest')).isSymbolicLink()).toBe(true);
  });

  it('fails when a safe strategy fails its audit', async () => {
    const { code, shown } = await run({
      runTrial: async (trial) => [
        trial.unsafe
          ? oversoldTrial({ ...trial })
          : trialOf({ ...trial, audit: { verdict: 'fail', lost: 2 } }),
      ],
    });
    expect(code).toBe(1);
    expect(shown).toContain('WARNING: lua: the audit failed');
  });

  it('fails with a warning when the unsafe strategy does not oversell', async () => {
    const { code, shown } = await run({ runTrial: async (trial) => [trialOf({ ...trial })] });
    expect(code).toBe(1);
    expect(shown).toContain('WARNING: unsafe is declared unsafe, but was not seen to oversell');
    expect(shown).toContain('pass (should oversell)');
  });

  it('keeps the finished trials when it is interrupted', async () => {
    const interrupt = new AbortController();
    const { code, shown, read, results } = await run({
      signal: interrupt.signal,
      runTrial: async (trial) => {
        if (trial.number < 3) return [trialOf({ ...trial })];
        interrupt.abort(new Error('interrupted'));
        throw new Error('interrupted');
      },
    });
    expect(code).toBe(130);
    expect(shown).toContain('interrupted: 2 of 6 trials were finished');
    expect(results()).toMatchObject({ partial: true, trials: [{}, {}] });
    expect(read('report.md')).toContain('**Partial:** 2 of 6 trials');
  });

  it('keeps the finished trials when one cannot be run, and says why', async () => {
    const { code, shown, results } = await run({
      runTrial: async (trial) => {
        if (trial.number === 2)
          throw new Error('the service ended with code 1; it logged last:\nno stock table');
        return [oversoldTrial({ ...trial })];
      },
    });
    expect(code).toBe(1);
    expect(shown).toContain('broken off after 1 of 6 trials: the service ended with code 1');
    expect(shown).toContain('no stock table');
    expect(results().partial).toBe(true);
  });

  it('writes nothing when nothing was finished', async () => {
    const { code } = await run({ runTrial: () => Promise.reject(new Error('no')) });
    expect(code).toBe(1);
    expect(readdirSync(out)).toEqual([]);
  });

  it('changes one line in place on a terminal', async () => {
    const { shown } = await run({
      tty: true,
      runTrial: async (trial, { onStep }) => {
        onStep('1,234 of 20,000 attempts');
        if (trial.number === 2) await new Promise((resolve) => setTimeout(resolve, 300));
        return [trial.unsafe ? oversoldTrial({ ...trial }) : trialOf({ ...trial })];
      },
    });
    expect(shown).toContain(
      '\r\u001b[2Ktrial 2 of 6  round 1 of 2  global-lock (redis): 1,234 of 20,000 attempts  (0:00, about 0:15 left)',
    );
    expect(shown).toContain('round 1  unsafe');
  });
});
