/** What bench:limits computes and writes; that it runs is in limits-run.test.ts. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { share, together } from '../../bench/limits/autocannon.ts';
import { flatCells, type Goal, ratioCells, ratioGoals } from '../../bench/limits/cells.ts';
import { writeCanonical } from '../../bench/limits/files.ts';
import { type Load, requestParts } from '../../bench/limits/load.ts';
import { growthText, toMarkdown } from '../../bench/limits/markdown.ts';
import { memoryResults, stepOf } from '../../bench/limits/memory.ts';
import { type LimitsOptions, parseOptions } from '../../bench/limits/options.ts';
import { expand, layoutOf } from '../../bench/limits/pin.ts';
import type { CellResult, CellsResults, RunHeader } from '../../bench/limits/results.ts';
import { pgbenchScript } from '../../bench/limits/statements.ts';
import { cellRows, missedGoals, notes, ratioRows, shortcomings } from '../../bench/limits/summary.ts';
import { parseWrk, wrkScript } from '../../bench/limits/wrk.ts';

const strategies = ['unsafe', 'global-lock', 'lua', 'for-update', 'group-commit'];

function run(...args: string[]): LimitsOptions {
  const parsed = parseOptions(args, strategies);
  if (parsed.kind !== 'run') throw new Error(JSON.stringify(parsed));
  return parsed.options;
}
function mistakes(...args: string[]): readonly string[] {
  const parsed = parseOptions(args, strategies);
  return parsed.kind === 'mistakes' ? parsed.mistakes : [];
}
const names = ({ cells }: LimitsOptions) => cells.map(({ name }) => name);

describe('options', () => {
  it('have defaults, and are read', () => {
    expect(run()).toEqual({
      only: 'ratios',
      cells: ratioCells,
      rounds: 5,
      durationMs: 4_000,
      warmupMs: 10_000,
      connections: 512,
      attempts: 5_000_000,
      variant: 'mixed',
      pin: 'auto',
      generator: 'auto',
      restMs: 0,
      out: 'bench/results',
      canonical: false,
      strict: false,
    });
    const given = run('--cells', 'lua-durable,bare', '--duration=0.3', '--pin', 'none', '--strict');
    expect(given).toMatchObject({ durationMs: 300, pin: 'none', strict: true });
    expect(names(given)).toEqual(['bare', 'lua-durable']);
    expect(names(run('--cells', 'bare', '--strategies', 'for-update,global-lock'))).toEqual([
      'bare',
      'global-lock',
    ]);
    expect(run('--only', 'flat').cells).toEqual(run('--only', 'flat', '--cells', 'all').cells);
    expect(names(run('--only', 'flat'))).toEqual(flatCells.map(({ name }) => name));
    expect(run('--only', 'memory', '--attempts', '5000', '--variant', 'accepted')).toMatchObject({
      attempts: 5_000,
      variant: 'accepted',
    });
    expect(parseOptions(['--help'], strategies)).toEqual({ kind: 'help' });
  });

  it('are refused together, each with what is wrong', () => {
    const wrong = mistakes('--cells', 'bear', '--strategies', 'lau,unsafe', '--round', '2', '--pin', 'all');
    expect(wrong).toEqual([
      'there is no option --round; did you mean "--rounds"?',
      '"2" is not an option; --help lists them',
      '--strategies: there is no strategy "lau"; did you mean "lua"?',
      '--strategies: unsafe fails its audit, and then no rate counts',
      '--cells: there is no cell "bear"; did you mean "bare"?',
      '--pin all: must be split or none',
    ]);
    expect(mistakes('--only', 'ratio', '--warmup', 'x')).toEqual([
      '--only ratio: must be ratios or memory or flat',
      '--warmup x: must be a number from 0 to 60',
    ]);
    expect(mistakes('--attempts', '5000')).toEqual(['--attempts is for --only memory']);
    expect(mistakes('--only', 'memory', '--cells', 'bare')).toEqual([
      '--cells is for --only ratios and --only flat',
    ]);
    expect(mistakes('--canonical=yes', '--rest')).toEqual([
      '--canonical takes no value',
      '--rest needs a value: --rest s',
    ]);
  });
});

describe('processors', () => {
  const means = (...processors: number[]) => ({ processors, taskset: true });

  it('are split so that what is measured has one alone', () => {
    expect(layoutOf('auto', means(0, 1))).toMatchObject({ server: '0', generator: '1', stores: '1' });
    expect(layoutOf('split', means(2, 3, 5, 7))).toMatchObject({
      kind: 'split',
      server: '2',
      generator: '7',
      stores: '3,5,7',
      why: null,
    });
    expect(expand('0,2-4')).toEqual([0, 2, 3, 4]);
  });

  it('are left to the system where they cannot be split, which is said', () => {
    const none = { kind: 'none', server: null, generator: null, stores: null };
    expect(layoutOf('none', means(0, 1))).toEqual({ ...none, generatorCount: 2, why: null });
    expect(layoutOf('auto', means(3))).toMatchObject({ ...none, why: 'there are not two processors' });
    expect(layoutOf('split', { processors: [0, 1], taskset: false })).toMatchObject({
      ...none,
      why: 'there is no taskset',
    });
  });
});

const load: Load = {
  url: 'http://127.0.0.1:4000',
  sales: { first: 7, count: 1 },
  connections: 5,
  customers: 'b',
  durationMs: 300,
  attempts: null,
  signal: new AbortController().signal,
};

describe('the load', () => {
  it('has requests that are complete, and equally long', () => {
    const [head, tail] = requestParts(load.url, 7, 'b');
    const [top, body] = `${head}1000000001${tail}`.split('\r\n\r\n');
    expect(body).toBe('{"userId":"b1000000001"}');
    expect(top!.split('\r\n')).toEqual([
      'POST /sales/7/orders HTTP/1.1',
      'Host: 127.0.0.1:4000',
      'Content-Type: application/json',
      `Content-Length: ${body!.length}`,
    ]);
  });

  it('is a script of wrk, over one sale or many', () => {
    const one = wrkScript(load);
    expect(one).toContain(
      'local head = "POST /sales/7/orders HTTP/1.1\\r\\nHost: 127.0.0.1:4000\\r\\n' +
        'Content-Type: application/json\\r\\nContent-Length: 24\\r\\n\\r\\n{\\"userId\\":\\"b"',
    );
    expect(one).toContain('return head .. (1000000000 + sent) .. tail');
    const many = wrkScript({ ...load, sales: { first: 1, count: 1_000 }, attempts: 5_000 });
    expect(many).toContain('return heads[sent % 1000 + 1] .. (1000000000 + sent) .. tail');
    expect(many.match(/POST \/sales\/\d+\/orders/g)).toHaveLength(1_000);
    expect(many).toContain('if sent % 100 == 0 then');
  });

  it('reads what the script tells', () => {
    const line = 'measured duration_us=4001500 answers=120 refused=3 unanswered=1 p50_us=1500 p99_us=20250';
    expect(parseWrk(line)).toEqual({
      durationMs: 4_001.5,
      answers: 120,
      refused: 3,
      unanswered: 1,
      latencyMs: { p50: 1.5, p99: 20.25 },
    });
    expect(parseWrk(line.replace('120', '0'))).toMatchObject({ answers: 0, latencyMs: null });
    expect(parseWrk('  10122 requests in 1.40s, 2.71MB read')).toBeNull();
    expect(parseWrk('sent 20000')).toBeNull();
  });

  it('is shared out to processes of autocannon, and added up again', () => {
    const parts = [0, 1, 2].map((index) => share({ ...load, attempts: 100 }, index, 3));
    expect(parts.map(({ connections }) => connections)).toEqual([2, 2, 1]);
    expect(parts.map(({ attempts }) => attempts)).toEqual([34, 33, 33]);
    expect(new Set(parts.map(({ customers }) => customers)).size).toBe(3);
    const numbers = {
      durationMs: 300,
      answers: 10,
      refused: 1,
      unanswered: 0,
      latencyMs: { p50: 1, p99: 2 },
    };
    expect(together([numbers, { ...numbers, durationMs: 310, latencyMs: { p50: 3, p99: 4 } }])).toEqual({
      durationMs: 310,
      answers: 20,
      refused: 2,
      unanswered: 0,
      latencyMs: { p50: 3, p99: 4 },
    });
    expect(together([{ ...numbers, latencyMs: null }]).latencyMs).toBeNull();
  });
});

describe("pgbench's script", () => {
  it('has a variable for each value', () => {
    const statements = [
      { text: 'BEGIN', values: [] },
      {
        text: `INSERT INTO orders
          VALUES ($1::uuid, $2, $3::text, $4)`,
        values: [{ is: 'order' }, { is: 'sale' }, { is: 'customer' }, { is: 'fixed', text: '900' }],
      },
      { text: 'COMMIT;', values: [] },
    ] as const;
    expect(pgbenchScript(statements, 3, 'uuidv7()').trim().split('\n')).toEqual([
      '\\set sale 3',
      '\\set fixed1 900',
      '\\set customer random(1000000000000, 9000000000000000)',
      'BEGIN;',
      'INSERT INTO orders VALUES (uuidv7()::uuid, :sale, :customer::text, :fixed1);',
      'COMMIT;',
    ]);
    const unknown = [{ text: 'SELECT $1', values: [{ is: 'fixed', text: '{a,b}' }] }] as const;
    expect(() => pgbenchScript(unknown, 1, 'x')).toThrow('cannot be given the value {a,b}');
  });
});

const result = (
  cell: string,
  round: number,
  perSecond: number,
  more: Partial<CellResult> = {},
): CellResult => ({
  cell,
  round,
  how: 'wrk',
  counted: perSecond * 4,
  measuredMs: 4_000,
  perSecond,
  others: 0,
  unanswered: 0,
  latencyMs: { p50: 1, p99: 2 },
  processors: [0.9, 0.5],
  busyBefore: 0.05,
  findings: cell === 'bare' ? null : [],
  ...more,
});
const results = [
  result('lua-durable', 2, 60),
  result('bare', 1, 100),
  result('bare', 2, 200),
  result('lua-durable', 1, 50),
  result('bare', 3, 100),
  result('lua-durable', 3, 20),
];
const cells = ratioCells.filter(({ name }) => ['bare', 'lua-durable', 'sold-out'].includes(name));

describe('the summary', () => {
  it('divides within a round, and takes the median of that', () => {
    const [row] = ratioRows(ratioGoals, cells, results);
    expect(row).toMatchObject({
      of: 'lua-durable',
      by: 'bare',
      rounds: [
        { round: 1, value: 0.5 },
        { round: 2, value: 0.3 },
        { round: 3, value: 0.2 },
      ],
      spread: { median: 0.3, min: 0.2, max: 0.5 },
      verdict: 'missed',
    });
    expect(ratioRows(ratioGoals, cells, results.slice(0, 4))[0]).toMatchObject({ verdict: 'reached' });
  });

  it('has a row for each goal whose cells were asked for, and says what was missed', () => {
    const rows = ratioRows(ratioGoals, cells, results);
    expect(rows.map(({ of, by, verdict }) => [of, by, verdict])).toEqual([
      ['lua-durable', 'bare', 'missed'],
      ['sold-out', 'bare', 'not measured'],
    ]);
    expect(missedGoals(rows)).toEqual([
      'lua-durable ÷ bare is 0.30 (0.20 … 0.50); the goal is at least 0.40',
      'sold-out ÷ bare was not measured; the goal is at least 0.90',
    ]);
    const within: Goal = { of: 'lua-durable', by: 'bare', what: '', atLeast: 0.1, atMost: 0.25 };
    expect(missedGoals(ratioRows([within], cells, results))[0]).toContain('the goal is 0.10 to 0.25');
    expect(missedGoals(ratioRows([{ ...within, atMost: 0.3 }], cells, results))).toEqual([]);
  });

  it('does not count what failed its audit', () => {
    const failed = results.map((one) =>
      one.cell === 'lua-durable' && one.round === 3 ? { ...one, findings: ['lost'] } : one,
    );
    expect(ratioRows(ratioGoals, cells, failed)[0]!.rounds).toHaveLength(2);
    expect(cellRows(cells, failed).map(({ cell, audit }) => [cell, audit])).toEqual([
      ['bare', null],
      ['lua-durable', 'fail'],
    ]);
    expect(shortcomings(failed, [])).toEqual(['lua-durable: the audit of round 3 failed: lost']);
    expect(shortcomings(results, [])).toEqual([]);
    expect(shortcomings(results, [{ cell: 'express', round: 1, reason: 'gone' }])).toEqual([
      'express: round 1 failed: gone',
    ]);
    expect(shortcomings([], [])).toEqual(['nothing could be measured']);
  });

  it('does not count what was mostly turned down', () => {
    const busy = results.map((one) =>
      one.cell === 'lua-durable' && one.round === 1 ? { ...one, others: one.counted, unanswered: 2 } : one,
    );
    expect(ratioRows(ratioGoals, cells, busy)[0]!.rounds.map(({ round }) => round)).toEqual([2, 3]);
    expect(cellRows(cells, busy)[1]).toMatchObject({ audit: 'pass', others: 200, unanswered: 2 });
    expect(notes(busy)).toEqual([expect.stringContaining('lua-durable: of the answers of round 1 50 %')]);
    expect(shortcomings(busy, [])).toEqual([]);
    expect(notes(results.map((one) => ({ ...one, others: Math.floor(one.counted / 10) })))).toEqual([]);
  });
});

const header: RunHeader = {
  schema: 1,
  startedAt: '2026-11-21T07:38:00.000Z',
  finishedAt: '2026-11-21T07:40:00.000Z',
  partial: false,
  commit: 'abc',
  machine: { cpu: 'x', cores: 2, memoryBytes: 2 ** 30, os: 'o', node: 'n', postgres: '18', redis: '7' },
  generator: 'wrk 4, 1 thread',
  pin: layoutOf('split', { processors: [0, 1], taskset: true }),
};

describe('the report', () => {
  const ratios = ratioRows(ratioGoals, cells, results);
  const report: CellsResults = {
    ...header,
    kind: 'ratios',
    plan: { rounds: 3, durationMs: 4_000, warmupMs: 2_000, connections: 64, restMs: 0, cells: [] },
    results,
    ratios,
    cells: cellRows(cells, results),
    failures: [],
    notes: ['a note'],
    missed: missedGoals(ratios),
    shortcomings: ['something'],
  };

  it('tells goals, spread, rounds, and how it was measured', () => {
    const text = toMarkdown(report);
    for (const part of [
      '# Stampede against the limits of its platform',
      '| lua-durable ÷ bare | at least 0.40 | 0.30 | 0.20 | 0.50 | 3 | missed |',
      '- sold-out ÷ bare was not measured; the goal is at least 0.90',
      '- **something**',
      '## Rates that do not count\n\n- a note',
      '| bare | 100 | 100 | 200 | answers | 1.00 | 2.00 | 90% 50% | 0 | – |',
      '| lua-durable, per second | 50 | 60 | 20 |',
      '- load: wrk 4, 1 thread',
      '- processors: what is measured on 0, the load on 1, the stores on 1',
    ]) {
      expect(text).toContain(part);
    }
    expect(toMarkdown({ ...report, partial: true })).toContain('**Partial:** the run was interrupted.');
  });

  it('of the memory compares the first step with the last', () => {
    expect([stepOf(5_000_000), stepOf(20_000_000), stepOf(5_000)]).toEqual([1_000_000, 1_000_000, 1_000]);
    const readings = [50, 100, 104, 130].map((mebibytes, index) => ({
      attempts: index * 1_000_000,
      residentBytes: mebibytes * 2 ** 20,
      atMs: index * 1_000,
    }));
    const options = { attempts: 3_000_000, variant: 'mixed', connections: 64 } as const;
    const numbers = {
      durationMs: 6_000,
      answers: 3_000_000,
      refused: 2_400_000,
      unanswered: 0,
      latencyMs: null,
    };
    const flat = memoryResults(options, readings.slice(0, 3), numbers, []);
    expect(flat).toMatchObject({
      growth: { flat: true },
      missed: [],
      accepted: 600_000,
      plan: { stock: 600_000 },
    });
    expect(growthText(flat)).toBe('From 1,000,000 to 2,000,000 attempts: 4.0 MiB (4%) more: flat.');
    const grown = memoryResults(options, readings, numbers, []);
    expect(grown.missed).toEqual([expect.stringContaining('30.0 MiB (30%) more: **not flat**')]);
    const text = toMarkdown({ ...header, ...grown });
    expect(text).toContain('| 3,000,000 | 130.0 | 3.0 |');
    expect(text).toContain('600,000 attempts were accepted, 2,400,000 refused, 500,000 a second.');
  });

  it('can be the one that is committed', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'stampede-bench-limits-canonical-'));
    try {
      await writeCanonical(report, folder);
      await writeCanonical({ ...report, kind: 'flat' }, folder);
      expect(readdirSync(folder).sort()).toEqual([
        'limits-flat.json',
        'limits-flat.md',
        'limits.json',
        'limits.md',
      ]);
      expect(JSON.parse(readFileSync(join(folder, 'limits.json'), 'utf8'))).toEqual(report);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
