/** The whole command, small: real servers, a real service, and the tools that are installed. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CellsResults, MemoryResults } from '../../bench/limits/results.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));

describe('npm run bench:limits', () => {
  const out = mkdtempSync(join(tmpdir(), 'stampede-bench-limits-out-'));
  afterAll(() => rmSync(out, { recursive: true, force: true }));
  beforeAll(() => promisify(execFile)('npm', ['run', '--silent', 'build'], { cwd: root }));
  const bench = (...args: string[]) =>
    promisify(execFile)(
      process.execPath,
      ['--import', 'tsx', 'bench/limits/main.ts', '--out', out, ...args],
      {
        cwd: root,
      },
    );

  it('measures the service and what is under it, and audits it', async () => {
    const small = ['--rounds', '1', '--duration', '1', '--warmup', '0.3', '--connections', '8'];
    const { stdout } = await bench(
      '--cells',
      'bare,redis-script,redis-batched,pgbench,lua-durable,sold-out',
      ...small,
    );
    expect(stdout).toContain('lua-durable ÷ bare');
    expect(stdout).not.toContain('WARNING');
    const [folder] = readdirSync(join(out, 'limits'));
    expect(readdirSync(join(out, 'limits', folder!)).sort()).toEqual(['report.md', 'results.json']);
    const text = readFileSync(join(out, 'limits', folder!, 'results.json'), 'utf8');
    const told = JSON.parse(text) as CellsResults;
    expect(told).toMatchObject({ kind: 'ratios', partial: false, failures: [], shortcomings: [] });
    expect(told.results.map(({ cell }) => cell)).toEqual(told.plan.cells);
    for (const { cell, perSecond, findings } of told.results) {
      expect(perSecond, cell).toBeGreaterThan(0);
      expect(findings, cell).toEqual(cell === 'bare' ? null : []);
    }
    expect(told.ratios.map(({ of, rounds }) => [of, rounds.length])).toEqual([
      ['lua-durable', 1],
      ['sold-out', 1],
      ['redis-batched', 1],
    ]);
    expect(text).not.toMatch(/redis:\/\/|postgres(ql)?:\/\//);
  }, 300_000);

  it('reads the memory of the service while it sells, with autocannon and without pinning too', async () => {
    const { stdout } = await bench(
      ...['--only', 'memory', '--attempts', '2000', '--connections', '8'],
      ...['--generator', 'autocannon', '--pin', 'none'],
    );
    expect(stdout).toContain('From 400 to 2,000 attempts');
    const folder = readdirSync(join(out, 'limits')).sort().at(-1)!;
    const told = JSON.parse(
      readFileSync(join(out, 'limits', folder, 'results.json'), 'utf8'),
    ) as MemoryResults;
    expect(told).toMatchObject({ kind: 'memory', shortcomings: [], accepted: 400, plan: { stock: 400 } });
    expect(told.readings.map(({ attempts }) => attempts)).toEqual([0, 400, 800, 1_200, 1_600, 2_000]);
    for (const { residentBytes } of told.readings) expect(residentBytes).toBeGreaterThan(20 * 2 ** 20);
    expect(told).toMatchObject({ generator: expect.stringContaining('autocannon'), pin: { kind: 'none' } });
  }, 300_000);

  it('refuses what it does not understand, before anything starts', async () => {
    const refused = await bench('--cells', 'bear', '--rounds', '1').catch((error) => error);
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toContain('there is no cell "bear"; did you mean "bare"?');
  });
});
