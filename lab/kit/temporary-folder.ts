import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A name with characters that are special in URLs, shells and configuration files. */
export const ODD_NAME = `stampede test #%41 "q" $HOME é's`;

/** A new folder that other accounts may enter: servers that root starts run as another account. */
export async function temporaryFolder(prefix: string, within: string = tmpdir()): Promise<string> {
  const folder = await mkdtemp(join(within, prefix));
  await chmod(folder, 0o755);
  return folder;
}
