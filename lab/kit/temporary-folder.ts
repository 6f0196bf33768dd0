import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** A name with characters that are special in URLs, shells and configuration files. */
export const ODD_NAME = `stampede test #%41 "q" $HOME é's`;

/** A new folder that other accounts may enter: servers that root starts run as another account. */
export async function temporaryFolder(prefix: string, within: string = tmpdir()): Promise<string> {
  const folder = await mkdtemp(join(within, prefix));
  await chmod(folder, 0o755);
  return folder;
}

/**
 * Removes a folder whose servers have ended, with the shared memory of each Postgres that was killed. The kernel keeps that otherwise, and
 * after 4,096 of them no Postgres starts on the machine.
 */
export async function removeFolder(folder: string): Promise<void> {
  const found = await readdir(folder, { recursive: true }).catch(() => []);
  for (const path of found.filter((path) => path.endsWith('postmaster.pid'))) {
    const lines = (await readFile(join(folder, path), 'utf8').catch(() => '')).split('\n');
    const id = lines[6]?.trim().split(/\s+/)[1];
    if (id !== undefined) await promisify(execFile)('ipcrm', ['-m', id]).catch(() => {}); // another one has removed it
  }
  await rm(folder, { recursive: true, force: true, maxRetries: 10 });
}
