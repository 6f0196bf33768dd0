/** A run of the tests itself: how it is refused, and that it leaves no process and no folder, whatever ends it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { expect, it } from 'vitest';
import { processesOn, temporaryFolder } from './local/support.ts';

const root = fileURLToPath(new URL('../', import.meta.url));
/** A busy machine needs minutes to begin a run. */
const slowly = { timeout: 600_000 };

/** @param npm stands for the build, which must not write into `dist` while other tests run it */
function run(npm: string, name: string) {
  const [folder, bin] = [temporaryFolder(), temporaryFolder()];
  writeFileSync(path.join(bin, 'npm'), `#!/bin/sh\n${npm}\n`, { mode: 0o755 });
  const env = { PATH: `${bin}:${process.env.PATH}`, TMPDIR: folder };
  const args = ['node_modules/vitest/vitest.mjs', 'run', '--project', 'quick', name];
  const vitest = spawn(process.execPath, args, { cwd: root, env });
  const runFolders = () => readdirSync(folder).filter((one) => one.startsWith('stampede-'));
  return { vitest, folder, runFolders, ended: once(vitest, 'exit') };
}

const BUILD_FAILED = /^RUN .*\n\n(Preparing .*\n)?The build failed \(npm run build\):\na\.ts\(1,1\): error$/;
const ELSEWHERE =
  /^RUN .*\n\nNo test file of quick .*\nRun it .*: npx vitest run test\/locks\/black-hole\.test\.ts$/;
it.each([
  ['a failed build', 'echo "a.ts(1,1): error"; exit 2', 'test/domain', BUILD_FAILED],
  ['a file of another project', 'exit 0', 'test/locks/black-hole', ELSEWHERE],
])('of %s, prints the cause and nothing else', slowly, async (_what, npm, name, expected) => {
  const { vitest, runFolders, ended } = run(npm, name);
  const said = await Promise.all([text(vitest.stdout), text(vitest.stderr)]);
  expect(stripVTControlCharacters(said.join('')).trim()).toMatch(expected);
  expect((await ended)[0]).toBe(1);
  expect(runFolders()).toEqual([]);
});

it.each(['SIGINT', 'SIGKILL'] as const)('leaves nothing after %s to vitest alone', slowly, async (signal) => {
  const { vitest, folder, runFolders, ended } = run('exit 0', 'test/contract/lock-redis.test.ts');
  const ofATest = () =>
    processesOn('stampede-test-group-').filter((pid) => processesOn(folder).includes(pid));
  await expect.poll(ofATest, { timeout: 300_000 }).not.toEqual([]);
  vitest.kill(signal);
  await ended;
  await expect.poll(() => processesOn(folder)).toEqual([]);
  await expect.poll(runFolders).toEqual([]);
});
