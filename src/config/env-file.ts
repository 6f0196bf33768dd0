/** The optional file `.env` in the working directory, for `npm start` and the commands beside it. */
import { readFileSync, statSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { ConfigError } from './errors.ts';

const FILE = '.env';

/**
 * Adds the file's variables to the environment. A variable that is already set keeps its value, even an empty one.
 * @returns the names in the file
 * @throws ConfigError when the file exists and cannot be read
 */
export function loadEnvFile(): string[] {
  if (statSync(FILE, { throwIfNoEntry: false }) === undefined) return [];
  try {
    process.loadEnvFile(FILE);
    return Object.keys(parseEnv(readFileSync(FILE, 'utf8')));
  } catch (cause) {
    throw new ConfigError([`${FILE} cannot be read: ${(cause as Error).message}`], { cause });
  }
}
