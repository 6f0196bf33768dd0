/**
 * The password of a folder's servers: made once, kept beside the data, readable by its owner only. It
 * appears whole or not at all (written aside, linked into place), also when two processes make it at once.
 */
import { randomBytes } from 'node:crypto';
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { LocalStoreError, systemCode } from './errors.ts';

/** The secret kept in `folder/secret`, made when missing. Hexadecimal, so that it needs no quoting anywhere. */
export function readOrMakeSecret(folder: string): string {
  const path = join(folder, 'secret');
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  writeFileSync(draft, randomBytes(24).toString('hex'), { mode: 0o600, flush: true });
  try {
    linkSync(draft, path);
  } catch (error) {
    if (systemCode(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  const secret = readFileSync(path, 'utf8').trim();
  if (/^[0-9a-f]{48}$/.test(secret)) return secret;
  throw new LocalStoreError(
    'folder-unusable',
    `${path} is damaged: it should hold the password of the data in ${folder}. Restore the file, or delete ${folder} to start from empty stores.`,
  );
}
