/** The build: what it makes follows the sources, and what keeps it from being made is named. */
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  copyFileSync,
  mkdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { copySources } from './support/service.ts';

const SCRIPT = 'scripts/build.js';
const buildIn = (cwd: string) => spawnSync(process.execPath, [SCRIPT], { cwd, encoding: 'utf8' });

it.each([
  ['no esbuild', '>=20.19', 'dist/commands/start.js'],
  ['an old Node.js', '>=99.1', 'is too old: Stampede needs >=99.1.\n'],
])('%s: one line that names it and says what to do', async (_what, node, sentence) => {
  const folder = await temporaryFolder('stampede-test-build-');
  mkdirSync(path.join(folder, 'scripts'));
  copyFileSync(SCRIPT, path.join(folder, SCRIPT));
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ type: 'module', engines: { node } }));
  const { status, stderr } = buildIn(folder);
  expect(status).toBe(1);
  expect(stderr).toMatch(/^.+\n$/);
  expect(stderr).toContain(sentence);
});

it('builds what a changed source needs, and nothing when none has changed', async () => {
  await using copy = await copySources();
  const build = () => buildIn(copy.folder);
  const start = path.join(copy.folder, 'dist/commands/start.js');
  const builtMs = () => statSync(start).mtimeMs;
  const help = () =>
    spawnSync(process.execPath, ['--enable-source-maps', start, '--help'], { encoding: 'utf8' });
  expect(build()).toMatchObject({ status: 0, stderr: '' });
  const firstMs = builtMs();
  expect(build()).toMatchObject({ status: 0 });
  expect(builtMs()).toBe(firstMs);

  // npm prune removes esbuild, and writes this file.
  const modules = path.join(copy.folder, 'node_modules');
  rmSync(modules);
  mkdirSync(modules);
  writeFileSync(path.join(modules, '.package-lock.json'), '{}');
  expect(build()).toMatchObject({ status: 0, stderr: '' });
  expect(builtMs()).toBe(firstMs);
  appendFileSync(path.join(copy.folder, 'src/config/limits.ts'), '\n');
  expect(build()).toMatchObject({ status: 1, stderr: expect.stringContaining('run `npm ci` to build') });
  rmSync(modules, { recursive: true });
  symlinkSync(path.resolve('node_modules'), modules);

  appendFileSync(path.join(copy.folder, 'src/config/arguments.ts'), "throw new Error('here');\n");
  expect(build()).toMatchObject({ status: 0 });
  // A stack names the source, also where dependencies are in the same file.
  expect(help().stderr).toMatch(/src\/config\/arguments\.ts:\d+/);
  appendFileSync(path.join(copy.folder, 'src/config/arguments.ts'), '!\n');
  expect(build()).toMatchObject({ status: 1, stderr: expect.stringContaining('src/config/arguments.ts') });
});
