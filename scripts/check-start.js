/**
 * Run by `npm start` before the first build, which takes a while: checks the configuration, the port and what the local stores need,
 * and installs a missing Redis where that needs no confirmation. Later builds are short, and the service checks the same.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

if (!existsSync('dist/commands/start.js') && existsSync('node_modules/tsx')) {
  const { status } = spawnSync(process.execPath, ['--import', 'tsx', 'src/commands/start.ts', '--check'], {
    stdio: 'inherit',
  });
  process.exitCode = status ?? 1;
}
