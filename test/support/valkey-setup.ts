/** For the project `valkey`, whose PATH starts with Valkey 9's folder: fetches it, and starts the server that its files share. */
import path from 'node:path';
import type { TestProject } from 'vitest/node';
import { findValkey } from '../../lab/servers/valkey.ts';
import { startSharedRedis } from './global-setup.ts';
import { openRunFolder } from './run-folder.ts';

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const program = await findValkey().catch((error: Error) => error);
  if (program instanceof Error) {
    process.stdout.write(`The project valkey is skipped: ${program.message}\n`);
    project.config.testNamePattern = /(?!)/;
    return async () => {};
  }
  const run = await openRunFolder();
  const folder = path.join(run.path, 'valkey'); // beside the shared Redis
  project.provide('redisUrl', (await startSharedRedis(folder, program)).url);
  return run.end;
}
