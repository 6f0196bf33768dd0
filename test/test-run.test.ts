/** A run of the tests itself: how it is refused, and that it leaves no process and no folder, whatever ends it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { expect, it } from 'vitest';
import { processesOn, temporaryFolder } from './local/support.ts';

const root = fileURLToPath(new URL('../', import.meta.url));

/** @param npm stands for the build, which must not write into `dist` while other tests run it */
function run(npm: string, ...args: string[]): { vitest: ChildProcess; folder: string } {
  const folder = temporaryFolder();
  const bin = temporaryFolder();
  writeFileSync(path.join(bin, 'npm'), `#!/bin/sh\n${npm}\n`, { mode: 0o755 });
  const env = { PATH: `${bin}:${process.env.PATH}`, TMPDIR: folder };
  const vitest = spawn(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...args], {
    cwd: root,
    env,
  });
  return { vitest, folder };
}

const runFoldersIn = (folder: string) => readdirSync(folder).filter((name) => name.startsWith('stampede-'));

it.each([
  [
    'a failed build',
    'echo "a.ts(1,1): error"; exit 2',
    'test/domain',
    /^RUN .*\n\n(Preparing .*\n)?The build failed \(npm run build\):\na\.ts\(1,1\): error$/,
  ],
  [
    'a file of another project',
    'exit 0',
    'test/locks/black-hole',
    /^RUN .*\n\nNo test file of quick .*\nRun it .*: npx vitest run test\/locks\/black-hole\.test\.ts$/,
  ],
])('of %s, prints the cause and nothing else', async (_what, npm, name, expected) => {
  const { vitest, folder } = run(npm, '--project', 'quick', name);
  const [out, error, [code]] = await Promise.all([
    text(vitest.stdout!),
    text(vitest.stderr!),
    once(vitest, 'exit'),
  ]);
  expect(stripVTControlCharacters(out + error).trim()).toMatch(expected);
  expect(code).toBe(1);
  expect(runFoldersIn(folder)).toEqual([]);
});

it.each(['SIGINT', 'SIGKILL'] as const)('leaves nothing after %s to vitest alone', async (signal) => {
  const { vitest, folder } = run('exit 0', '--project', 'quick', 'test/contract/lock-redis.test.ts');
  const ended = once(vitest, 'exit');
  const ofATest = () =>
    processesOn('stampede-test-group-').filter((pid) => processesOn(folder).includes(pid));
  await expect.poll(ofATest).not.toEqual([]);
  vitest.kill(signal);
  await ended;
  await expect.poll(() => processesOn(folder)).toEqual([]);
  await expect.poll(() => runFoldersIn(folder)).toEqual([]);
});
