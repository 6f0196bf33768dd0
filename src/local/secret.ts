/**
 * The password of a folder's servers: generated once, stored beside the data, readable by its owner only. The file is written
 * elsewhere and linked into place, so it is never partial, even when two processes create it at once.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { LocalStoreError, systemCode } from './errors.ts';

/** Reads `folder/secret`, or creates it. Hexadecimal, so that it needs no quoting anywhere. */
export function readOrCreateSecret(folder: string): string {
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
    `${path} is damaged: it should contain the password of the data in ${folder}. Restore the file, or delete ${folder} to start with empty stores.`,
  );
}

/** A password for one use, from which the secret does not follow. Hexadecimal as well. */
export const passwordFor = (use: string, secret: string): string =>
  createHmac('sha256', secret).update(use).digest('hex').slice(0, 48);
