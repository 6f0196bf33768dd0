/** A run of the tests itself leaves no process and no folder, whatever ends it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { processesOn, temporaryFolder } from './local/support.ts';

const root = fileURLToPath(new URL('../', import.meta.url));

it('leaves nothing after SIGKILL to vitest alone', { timeout: 600_000 }, async () => {
  const folder = temporaryFolder();
  const env = { PATH: process.env.PATH, TMPDIR: folder };
  const args = [
    'node_modules/vitest/vitest.mjs',
    'run',
    '--project',
    'quick',
    'test/contract/lock-redis.test.ts',
  ];
  const vitest = spawn(process.execPath, args, { cwd: root, env });
  const ended = once(vitest, 'exit');
  const ofATest = () =>
    processesOn('stampede-test-group-').filter((pid) => processesOn(folder).includes(pid));
  await expect.poll(ofATest, { timeout: 300_000 }).not.toEqual([]);
  vitest.kill('SIGKILL');
  await ended;
  await expect.poll(() => processesOn(folder)).toEqual([]);
  await expect.poll(() => readdirSync(folder).filter((one) => one.startsWith('stampede-'))).toEqual([]);
});
