/** The alerts, as Prometheus's own promtool reads them. */
import { spawnSync } from 'node:child_process';
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
});
