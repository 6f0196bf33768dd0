/** The file `.env` in the working directory, for `npm start` and `npm run reconcile`. */
import { statSync } from 'node:fs';
import { ConfigError } from './env.ts';

const FILE = '.env';

/**
 * Adds the file's variables to the environment, if there is a file. A variable that the environment has wins, also an
 * empty one.
 * @throws ConfigError when there is one that cannot be read
 */
export function loadEnvFile(): void {
  if (statSync(FILE, { throwIfNoEntry: false }) === undefined) return;
  try {
    process.loadEnvFile(FILE);
  } catch (error) {
    throw new ConfigError([`${FILE} cannot be read: ${(error as Error).message}`]);
  }
}
