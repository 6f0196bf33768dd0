/** A folder that cannot be written is named before the compiler runs. */
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { startLocalStores } from '../src/local/stores.ts';

const SCRIPT = 'check-build.js';
const NOBODY = 65_534;
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'stampede-test-build-'));
  chmodSync(folder, 0o755);
  copyFileSync(new URL(`../scripts/${SCRIPT}`, import.meta.url), path.join(folder, SCRIPT));
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module","engines":{"node":">=20.19"}}');
  mkdirSync(path.join(folder, 'node_modules/typescript'), { recursive: true });
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Runs the script; if the tests run as root, as a user who does not own the folder. */
function check() {
  const ids = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
  const { status, stderr } = spawnSync(process.execPath, [SCRIPT], { cwd: folder, encoding: 'utf8', ...ids });
  return { status, sentence: stderr };
}

it('an install without the compiler names the command that starts the compiled service', () => {
  rmSync(path.join(folder, 'node_modules'), { recursive: true });
  const { status, sentence } = check();
  expect(status).toBe(1);
  expect(sentence).toContain('dist/commands/start.js');
});

it.runIf(process.getuid?.() === 0).each([
  ['a folder of another user', () => mkdirSync(path.join(folder, 'dist')), 'dist'],
  ['a project of another user', () => {}, ''],
  [
    'a file of another user in it',
    () => {
      mkdirSync(path.join(folder, 'dist'));
      writeFileSync(path.join(folder, 'dist', '.tsbuildinfo'), '');
      chmodSync(path.join(folder, 'dist'), 0o777);
    },
    'dist',
  ],
])('%s: one sentence that names it and says what to do', (_name, prepare, named) => {
  prepare();
  const refused = path.join(folder, named);
  expect(check()).toEqual({
    status: 1,
    sentence:
      `This user cannot write the compiled service to ${refused.replace(/\/$/, '')} (EACCES). Change the owner with ` +
      `sudo chown -R ${NOBODY}:${NOBODY} '${refused.replace(/\/$/, '')}', or copy the project to a folder of your own and ` +
      'run it there.\n',
  });
});

it('a folder that can be written passes, and is made when missing; only the first build is announced', () => {
  chmodSync(folder, 0o777);
  expect(check()).toEqual({ status: 0, sentence: expect.stringContaining('for the first start only') });
  writeFileSync(path.join(folder, 'dist', '.tsbuildinfo'), '');
  chmodSync(path.join(folder, 'dist', '.tsbuildinfo'), 0o666);
  expect(check()).toEqual({ status: 0, sentence: '' });
});

it('an old Node.js is named before the compiler runs', () => {
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module","engines":{"node":">=99.1"}}');
  expect(check()).toEqual({
    status: 1,
    sentence: `Node.js ${process.versions.node} is too old: Stampede needs >=99.1.\n`,
  });
});

/** Skipped where the kernel does not let root mount, such as in an unprivileged container. */
it.runIf(process.getuid?.() === 0)(
  'a read-only file system: no advice to change the owner',
  async ({ skip }) => {
    const mount = (...args: string[]) => spawnSync('mount', args).status === 0;
    if (!mount('--bind', folder, folder)) return skip();
    try {
      if (!mount('-o', 'remount,ro,bind', folder)) return skip();
      expect(check().sentence).toContain('(EROFS). The file system is read-only: copy the project');
      const stores = startLocalStores({
        folder: path.join(folder, '.local'),
        postgres: true,
        redis: false,
        say: () => {},
      });
      await expect(stores).rejects.toMatchObject({
        code: 'folder-unusable',
        message: expect.stringMatching(/file system is read-only. Run a copy/),
      });
    } finally {
      spawnSync('umount', [folder]);
    }
  },
);
