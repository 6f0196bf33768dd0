import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { test } from 'vitest';
import { temporaryFolder } from './support.ts';

const CLAIMANT = fileURLToPath(new URL('./claimant.ts', import.meta.url));

test('a claim never has two holders, and every waiter gets it', async () => {
  const folder = temporaryFolder();
  const contend = () => promisify(execFile)(process.execPath, ['--import', 'tsx', CLAIMANT, folder]);
  await Promise.all([1, 2, 3].map(contend));
});
