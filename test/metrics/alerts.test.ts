/** The alerts and the dashboard, as Prometheus's own promtool reads them. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ops = (file: string) => fileURLToPath(new URL(`../../ops/${file}`, import.meta.url));
const promtool = (...args: string[]) => {
  const { status, stdout, stderr, error } = spawnSync('promtool', args, { encoding: 'utf8' });
  return { status, error, output: `${stdout}${stderr}` };
};
const isMissing = promtool('--version').error !== undefined;

describe.skipIf(isMissing)(`promtool${isMissing ? ' (missing: install the package prometheus)' : ''}`, () => {
  it.each([
    ['check', 'config', 'prometheus.yml'],
    ['check', 'rules', 'alerts.yml'],
    ['test', 'rules', 'alerts.test.yml'],
  ])('%s %s %s', (...args) => {
    const file = args.pop()!;
    const { status, output } = promtool(...args, ops(`prometheus/${file}`));
    expect(status, output).toBe(0);
  });

  it('reads every query of the dashboard', () => {
    const dashboard = JSON.parse(readFileSync(ops('grafana/stampede.json'), 'utf8')) as {
      panels: { title: string; targets?: { expr: string }[] }[];
    };
    const queries = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    expect(queries.length).toBeGreaterThan(30);
    const rules = queries.map((expr, n) => ({
      record: `query_${n}`,
      expr: expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.*'),
    }));
    const folder = mkdtempSync(join(tmpdir(), 'stampede-promtool-'));
    try {
      const file = join(folder, 'queries.yml'); // JSON is YAML
      writeFileSync(file, JSON.stringify({ groups: [{ name: 'queries', rules }] }));
      const { status, output } = promtool('check', 'rules', file);
      expect(status, output).toBe(0);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
