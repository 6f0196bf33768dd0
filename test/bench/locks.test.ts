/** The lock bench: its arithmetic against answers known beforehand, and the command against real servers. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { chosen, everyone, turns } from '../../bench/locks/contenders.ts';
import { fairness, jainIndex } from '../../bench/locks/fairness.ts';
import { handOffsOf, numbersOf, overlaps, percentile } from '../../bench/locks/numbers.ts';
import { type LocksOptions, parseOptions } from '../../bench/locks/options.ts';
import type { Cycle, WorkerReport } from '../../bench/locks/protocol.ts';
import { busyShare, untilAtRest } from '../../bench/locks/rest.ts';
import type { LocksResults, Measurement, ShapeName } from '../../bench/locks/results.ts';
import { shortcomings, summarize } from '../../bench/locks/summary.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const ms = 1_000_000;

/** In ms, for people. */
const cycle = (waiter: number, asked: number, granted: number, released: number): Cycle => ({
  waiter,
  askedNs: asked * ms,
  grantedNs: granted * ms,
  releasedNs: released * ms,
});
const all = () => true;

describe('percentiles', () => {
  it('are values that occurred', () => {
    const hundred = Array.from({ length: 100 }, (_, i) => i + 1);
    expect(percentile(hundred, 50)).toBe(50);
    expect(percentile(hundred, 99)).toBe(99);
    expect(percentile(hundred, 100)).toBe(100);
    expect(percentile([7], 99)).toBe(7);
    expect(percentile([1, 2, 3], 50)).toBe(2);
    expect(percentile([], 50)).toBe(0);
  });
});

describe('overlaps', () => {
  it('are grants before an earlier holder released', () => {
    expect(overlaps([cycle(0, 0, 1, 2), cycle(1, 0, 2, 3), cycle(0, 2, 4, 5)])).toBe(0);
    expect(overlaps([cycle(0, 0, 1, 3), cycle(1, 0, 2, 4)])).toBe(1);
  });

  it('are seen while a long hold goes on, not only beside the grant before', () => {
    const long = [cycle(0, 0, 1, 100), cycle(1, 0, 10, 11), cycle(2, 0, 20, 21), cycle(1, 0, 100, 101)];
    expect(overlaps(long)).toBe(2);
  });
});

describe('hand-offs', () => {
  it('run from release to the next grant, and tell whether it was another waiter', () => {
    const cycles = [cycle(0, 0, 1, 2), cycle(0, 2, 3, 4), cycle(1, 0, 9, 10)];
    expect(handOffsOf(cycles, all)).toEqual([
      { ns: 1 * ms, another: false },
      { ns: 5 * ms, another: true },
    ]);
    expect(handOffsOf(cycles, ({ waiter }) => waiter === 1)).toHaveLength(1);
  });

  it('do not count an overlap', () => {
    expect(handOffsOf([cycle(0, 0, 1, 3), cycle(1, 0, 2, 4)], all)).toEqual([]);
  });
});

describe('fairness', () => {
  it('has an index of Jain', () => {
    expect(jainIndex([5, 5, 5, 5])).toBe(1);
    expect(jainIndex([8, 0, 0, 0])).toBe(0.25);
    expect(jainIndex([1, 3])).toBeCloseTo(16 / 20);
  });

  it('is 1 throughout for first come, first served', () => {
    const served = [cycle(0, 0, 10, 11), cycle(1, 1, 12, 13), cycle(2, 2, 14, 15), cycle(0, 11, 16, 17)];
    const again = [...served, cycle(1, 13, 18, 19), cycle(2, 15, 20, 21)];
    expect(fairness(again, [], 3, all)).toEqual({ order: 1, oldestFirst: 1, jain: 1, mostOverMean: 1 });
  });

  it('is -1 for last come, first served', () => {
    // The last grant has nobody beside it who could have been passed over.
    const stack = [cycle(2, 2, 10, 11), cycle(1, 1, 12, 13), cycle(0, 0, 14, 15)];
    expect(fairness(stack, [], 3, all)).toMatchObject({ order: -1, oldestFirst: 1 / 3 });
  });

  it('counts who is never served', () => {
    const greedy = [cycle(0, 5, 10, 11), cycle(0, 11, 12, 13), cycle(0, 13, 14, 15)];
    const starving = [{ waiter: 1, askedNs: 0 }];
    expect(fairness(greedy, starving, 2, all)).toEqual({
      order: -1,
      oldestFirst: 0,
      jain: 0.5,
      mostOverMean: 2,
    });
    expect(fairness(greedy, [], 2, () => false)).toBeNull();
  });

  it('compares with those only who wait at that moment', () => {
    // Waiter 2 is passed over by waiter 0; waiter 1 asks when both have been served.
    const cycles = [cycle(0, 5, 10, 11), cycle(2, 1, 12, 13), cycle(1, 20, 21, 22)];
    expect(fairness(cycles, [], 3, all)).toMatchObject({ order: -1, oldestFirst: 2 / 3 });
  });
});

const report = (cycles: Cycle[], requests = 0): WorkerReport => ({
  cycles,
  waiting: [],
  sent: { fromNs: 0, toNs: 1_000 * ms, requests },
  refusals: {},
});

describe('the numbers of a measurement', () => {
  const noServer = { fromNs: 0, toNs: 1_000 * ms, commands: null, requests: null };
  const span = { startNs: 100 * ms, endNs: 1_000 * ms };

  it('count what was granted in its time, in the order of all processes', () => {
    const one = report([cycle(0, 0, 50, 60), cycle(0, 60, 300, 310)], 7);
    const other = report([cycle(1, 0, 200, 210), cycle(1, 210, 1_001, 1_002)], 5);
    const numbers = numbersOf([one, other], noServer, 2, span);
    expect(numbers).toMatchObject({ grants: 2, overlaps: 0, toAnother: 1, commandsPerGrant: null });
    expect(numbers.perSecond).toBeCloseTo(2 / 0.9);
    expect(numbers.handOffMs).toEqual({ p50: 90, p99: 140 });
    expect(numbers.waitMs).toEqual({ p50: 200, p99: 240 });
    // 12 requests; three grants lie between the moments at which they were counted.
    expect(numbers.requestsPerGrant).toBe(4);
  });

  it('know of those who were granted nothing', () => {
    const stuck = { ...report([]), waiting: [{ waiter: 0, askedNs: 0 }], refusals: { contended: 2 } };
    const numbers = numbersOf([stuck, stuck], { ...noServer, commands: 9 }, 2, span);
    expect(numbers).toMatchObject({ grants: 0, perSecond: 0, waitMs: null, handOffMs: null, fairness: null });
    expect(numbers).toMatchObject({
      longestWaitMs: 1_000,
      commandsPerGrant: null,
      refusals: { contended: 4 },
    });
  });

  it('take the count of the server where only the server counts', () => {
    const server = { fromNs: 100 * ms, toNs: 250 * ms, commands: 30, requests: 12 };
    const numbers = numbersOf([report([cycle(0, 0, 50, 60), cycle(0, 60, 200, 210)], 99)], server, 1, span);
    expect(numbers).toMatchObject({ requestsPerGrant: 12, commandsPerGrant: 30 });
  });
});

function run(...args: string[]): LocksOptions {
  const parsed = parseOptions(args);
  if (parsed.kind !== 'run') throw new Error(JSON.stringify(parsed));
  return parsed.options;
}
function mistakes(...args: string[]): readonly string[] {
  const parsed = parseOptions(args);
  return parsed.kind === 'mistakes' ? parsed.mistakes : [];
}

describe('options', () => {
  it('have defaults, and are read', () => {
    const defaults = { locks: 'all', rounds: 3, durationMs: 2_000, warmupMs: 500, waiters: 64, processes: 4 };
    expect(run()).toEqual({ ...defaults, restMs: 0, out: 'bench/results', canonical: false });
    const given = run(
      '--locks=redis,redlock-5,redis',
      '--duration',
      '0.3',
      '--processes',
      '2',
      '--canonical',
    );
    expect(given).toMatchObject({
      locks: ['redis', 'redlock-5'],
      durationMs: 300,
      processes: 2,
      canonical: true,
    });
    expect(parseOptions(['--help'])).toEqual({ kind: 'help' });
  });

  it('are refused together, each with what is wrong', () => {
    const wrong = mistakes(
      '--rounds',
      '0',
      '--durations',
      '2',
      '--waiters',
      '1e3',
      'redis',
      '--locks',
      'a,,b',
    );
    expect(wrong).toEqual([
      'there is no option --durations; did you mean "--duration"?',
      '"2" is not an option; --help lists them',
      '"redis" is not an option; --help lists them',
      '--locks a,,b: must be names with commas between them, without spaces',
      '--rounds 0: must be a whole number from 1 to 100',
      '--waiters 1e3: must be a whole number from 2 to 10000',
    ]);
    expect(mistakes('--waiters', '3')).toEqual([
      '--processes 4 exceeds --waiters 3: every process has at least one',
    ]);
    expect(mistakes('--rounds', '2', '--rounds', '3')).toEqual(['--rounds is given twice']);
    expect(mistakes('--out')).toEqual(['--out needs a value: --out folder']);
    expect(mistakes('--canonical=yes')).toEqual(['--canonical takes no value']);
  });
});

describe('contenders', () => {
  it('are all locks and the libraries; the control only when it is named', () => {
    const names = everyone.map(({ name }) => name);
    const folder = join(root, 'src/locks');
    const locks = readdirSync(folder)
      .filter((file) => /^export const description\b/m.test(readFileSync(join(folder, file), 'utf8')))
      .map((file) => file.replace('.ts', ''));
    expect(locks.length).toBeGreaterThan(10);
    expect(names).toEqual(expect.arrayContaining([...locks, 'redlock-5', 'redis-semaphore']));
    expect(names).not.toContain('none');
    expect(chosen(['none', 'redis']).contenders.map(({ name }) => name)).toEqual(['redis', 'none']);
    expect(chosen(['reddis']).mistakes).toEqual([
      '--locks: there is no lock "reddis"; did you mean "redis"?',
    ]);
  });

  it('take turns, in every round from another one on', () => {
    const order = turns(['a', 'b', 'c', 'd'], 2).map(({ round, contender }) => `${round}${contender}`);
    expect(order).toEqual(['1a', '1b', '1c', '1d', '2c', '2d', '2a', '2b']);
  });
});

const measured = (contender: string, round: number, perSecond: number, seen = 0): Measurement => ({
  ...numbersOf([], { fromNs: 0, toNs: 0, commands: null, requests: null }, 2, { startNs: 0, endNs: ms }),
  contender,
  round,
  shape: 'apart' as ShapeName,
  perSecond,
  overlaps: seen,
  busyBefore: 0,
});

describe('a machine', () => {
  it('is as busy as its processors were not idle', () => {
    expect(busyShare({ idle: 100, all: 200 }, { idle: 130, all: 240 })).toBe(0.25);
    expect(busyShare({ idle: 100, all: 200 }, { idle: 100, all: 200 })).toBe(1);
  });

  it('is waited for until it rests, but not longer than asked, nor when interrupted', async () => {
    const looks = (...idle: number[]) => {
      let all = 0;
      return () => {
        all += 10;
        return { idle: idle.shift() ?? 0, all };
      };
    };
    const goesOn = new AbortController().signal;
    // Busy between the first two looks, idle between the next two.
    expect(await untilAtRest(60_000, goesOn, looks(0, 1, 1, 11))).toBe(0);
    expect(await untilAtRest(0, goesOn, looks(0, 1, 1, 11))).toBe(0.9);
    expect(await untilAtRest(60_000, AbortSignal.abort(), looks(0, 1, 1, 11))).toBe(0.9);
  });
});

describe('the summary', () => {
  const rows = summarize([
    measured('slow', 1, 10),
    measured('redis', 1, 100),
    measured('slow', 2, 40),
    measured('redis', 2, 200),
  ]);

  it('compares within a round, and has the median of that', () => {
    expect(rows.map(({ contender }) => contender)).toEqual(['redis', 'slow']);
    expect(rows[1]!.shapes.apart).toMatchObject({
      perSecond: { median: 25, min: 10, max: 40 },
      handOffP50Ms: null,
    });
    const { median, min, max } = rows[1]!.shapes.apart!.ratio!;
    expect([min, median, max].map((value) => value.toFixed(2))).toEqual(['0.10', '0.15', '0.20']);
    expect(rows[1]!.shapes.alone).toBeNull();
  });

  it('tells when a run is no success', () => {
    const failure = { contender: 'redlock', round: 2, reason: 'gone' };
    expect(shortcomings(rows, [{ ...failure, missing: true }])).toEqual([]);
    expect(shortcomings(rows, [{ ...failure, missing: false }])).toHaveLength(1);
    expect(shortcomings(summarize([measured('redis', 1, 5, 3)]), [])[0]).toContain('seen 3 times');
    expect(shortcomings(summarize([measured('none', 1, 5, 3)]), [])).toEqual([]);
    expect(shortcomings(summarize([measured('none', 1, 5, 0)]), [])).toHaveLength(1);
    expect(shortcomings([], [])).toEqual(['nothing could be measured']);
  });
});

describe('npm run bench:locks', () => {
  const out = mkdtempSync(join(tmpdir(), 'stampede-bench-locks-out-'));
  afterAll(() => rmSync(out, { recursive: true, force: true }));
  const bench = (...args: string[]) =>
    promisify(execFile)(process.execPath, ['--import', 'tsx', 'bench/locks/main.ts', '--out', out, ...args], {
      cwd: root,
    });
  const small = [
    '--rounds',
    '1',
    '--duration',
    '0.3',
    '--warmup',
    '0.1',
    '--waiters',
    '8',
    '--processes',
    '2',
  ];

  it('measures, and sees two holders exactly where nothing is locked', async () => {
    const { stdout } = await bench('--locks', 'redis,redis-setnx,redlock-5,none', ...small);
    expect(stdout).toContain('to another');
    expect(stdout).not.toContain('WARNING');
    const [folder, latest] = readdirSync(out).sort();
    expect(folder).toMatch(/^locks-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ$/);
    expect(latest).toBe('locks-latest');
    expect(readdirSync(join(out, latest!)).sort()).toEqual(['locks.json', 'locks.md']);
    const text = readFileSync(join(out, latest!, 'locks.json'), 'utf8');
    expect(readFileSync(join(out, folder!, 'locks.json'), 'utf8')).toBe(text);
    expect(readFileSync(join(out, latest!, 'locks.md'), 'utf8')).toMatch(/^# Locks compared\n\nWaiters ask/);

    const { measurements, summary, scriptCallsCounted, partial, failures } = JSON.parse(text) as LocksResults;
    expect({ partial, failures, scriptCallsCounted }).toEqual({
      partial: false,
      failures: [],
      scriptCallsCounted: true,
    });
    expect(measurements).toHaveLength(12);
    for (const { contender, shape, grants, overlaps: seen, refusals, fairness: fair } of measurements) {
      expect(grants, `${contender} ${shape}`).toBeGreaterThan(0);
      expect(refusals).toEqual({});
      const shared = contender === 'none' && shape !== 'alone';
      expect(seen > 0, `${contender} ${shape}: ${seen} overlaps`).toBe(shared);
      if (shape === 'alone') expect(fair).toEqual({ order: 1, oldestFirst: 1, jain: 1, mostOverMean: 1 });
    }
    const row = (name: string) => summary.find(({ contender }) => contender === name)!;
    // Without a script, what clients sent is what the server carried out; one that asks alone asks twice.
    const setnx = row('redis-setnx').shapes;
    expect(setnx.alone!.requestsPerGrant!.median).toBeCloseTo(2, 1);
    expect(setnx.alone!.commandsPerGrant!.median).toBeCloseTo(2, 1);
    const { requestsPerGrant, commandsPerGrant } = setnx.apart!;
    expect(requestsPerGrant!.median / commandsPerGrant!.median).toBeGreaterThan(0.7);
    expect(requestsPerGrant!.median / commandsPerGrant!.median).toBeLessThan(1.4);
    // With scripts, the server's count has what they called.
    const scripted = row('redis').shapes.alone!;
    expect(scripted.commandsPerGrant!.median).toBeGreaterThan(2 * scripted.requestsPerGrant!.median);
  }, 120_000);

  it('refuses what it does not understand, before anything starts', async () => {
    const refused = await bench('--locks', 'redsi', '--rounds', '1').catch((error) => error);
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toContain('there is no lock "redsi"; did you mean "redis"?');
  });
});
