/** The build: what it makes follows the sources, and what keeps it from being made is named. */
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { copySources } from './support/service.ts';

const SCRIPT = 'scripts/build.js';
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
let folder: string;
const inFolder = (name: string) => path.join(folder, name);
const requireNode = (node: string) =>
  writeFileSync(inFolder('package.json'), JSON.stringify({ type: 'module', engines: { node } }));
function createDist(mode: number) {
  mkdirSync(inFolder('dist'));
  writeFileSync(inFolder('dist/start.js'), '');
  chmodSync(inFolder('dist'), mode);
}

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'stampede-test-build-'));
  chmodSync(folder, 0o755);
  mkdirSync(inFolder('scripts'));
  copyFileSync(new URL(`../${SCRIPT}`, import.meta.url), inFolder(SCRIPT));
  requireNode('>=20.19');
  // It is not run: all of these builds are refused.
  mkdirSync(inFolder('node_modules/esbuild'), { recursive: true });
  writeFileSync(inFolder('node_modules/esbuild/index.js'), '');
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Runs the script; if the tests run as root, as a user who does not own the folder. */
function check() {
  const user = isRoot ? { uid: NOBODY, gid: NOBODY } : {};
  const { status, stderr } = spawnSync(process.execPath, [SCRIPT], {
    cwd: folder,
    encoding: 'utf8',
    ...user,
  });
  return { status, stderr };
}

const denied = (place: string) =>
  `This user cannot write the built service to ${place} (EACCES). Change the owner with sudo chown -R ` +
  `${NOBODY}:${NOBODY} '${place}', or copy the project to a folder of your own and run it there.\n`;
const refusals: [string, () => void, () => string][] = [
  ['no esbuild', () => rmSync(inFolder('node_modules'), { recursive: true }), () => 'dist/commands/start.js'],
  ['an old Node.js', () => requireNode('>=99.1'), () => 'is too old: Stampede needs >=99.1.\n'],
  ['a project of another user', () => {}, () => denied(folder)],
  ['a folder of another user', () => createDist(0o755), () => denied(inFolder('dist'))],
  ['a file of another user', () => createDist(0o777), () => denied(inFolder('dist'))],
];

it.each(refusals.filter(([what]) => isRoot || !what.includes('another user')))(
  '%s: one line that names it and says what to do',
  (_what, prepare, sentence) => {
    prepare();
    const { status, stderr } = check();
    expect(status).toBe(1);
    expect(stderr).toMatch(/^.+\n$/);
    expect(stderr).toContain(sentence());
  },
);

it('builds what a changed source needs, and nothing when none has changed', async () => {
  await using copy = await copySources();
  const build = () => spawnSync(process.execPath, [SCRIPT], { cwd: copy.folder, encoding: 'utf8' });
  const start = path.join(copy.folder, 'dist/commands/start.js');
  const builtMs = () => statSync(start).mtimeMs;
  const help = () =>
    spawnSync(process.execPath, ['--enable-source-maps', start, '--help'], { encoding: 'utf8' });
  expect(build()).toMatchObject({ status: 0, stderr: '' });
  const firstMs = builtMs();
  expect(build()).toMatchObject({ status: 0 });
  expect(builtMs()).toBe(firstMs);

  appendFileSync(path.join(copy.folder, 'src/config/arguments.ts'), "throw new Error('here');\n");
  expect(build()).toMatchObject({ status: 0 });
  // A stack names the source, also where dependencies are in the same file.
  expect(help().stderr).toMatch(/src\/config\/arguments\.ts:\d+/);
  appendFileSync(path.join(copy.folder, 'src/config/arguments.ts'), '!\n');
  expect(build()).toMatchObject({ status: 1, stderr: expect.stringContaining('src/config/arguments.ts') });
});
