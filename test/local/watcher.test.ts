import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { identify } from '../../src/local/processes.ts';
import { Watcher } from '../../src/local/watcher.ts';
import { temporaryFolder } from './support.ts';

const CLAIMANT = fileURLToPath(new URL('./claimant.ts', import.meta.url));

test('a claim never has two holders, and every waiter gets it', async () => {
  const folder = temporaryFolder();
  const contend = () => promisify(execFile)(process.execPath, ['--import', 'tsx', CLAIMANT, folder]);
  await Promise.all([1, 2, 3].map(contend));
});

test('the next claim ends the shell of a dead service that is late', async () => {
  const path = temporaryFolder();
  const holder = spawn(process.execPath, ['--import', 'tsx', CLAIMANT, path, 'hold']);
  const [line] = (await once(holder.stdout, 'data')) as [Buffer];
  const shell = Number(line);
  process.kill(shell, 'SIGSTOP');
  holder.kill('SIGKILL');
  await once(holder, 'exit');
  const inUse = (pid: number) => `held for ${pid}`;
  const next = await Watcher.claim({ path, cwd: path, waitMs: 60_000, refusal: () => null, inUse });
  expect(identify(shell)).toBeNull();
  await next.end();
});
