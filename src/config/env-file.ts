/** The optional file `.env` in the working directory, for `npm start` and `npm run reconcile`. */
import { statSync } from 'node:fs';
import { ConfigError } from './errors.ts';

const FILE = '.env';

/**
 * Adds the file's variables to the environment. A variable that is already set keeps its value, even an empty one.
 * @throws ConfigError when the file exists and cannot be read
 */
export function loadEnvFile(): void {
  if (statSync(FILE, { throwIfNoEntry: false }) === undefined) return;
  try {
    process.loadEnvFile(FILE);
  } catch (cause) {
    throw new ConfigError([`${FILE} cannot be read: ${(cause as Error).message}`], { cause });
  }
}
