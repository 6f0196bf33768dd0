/** The folder of a test run, and the guard that ends with it what the run started: see run-guard.ts. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../../bench/kit/temporary-folder.ts';

export interface RunFolder {
  readonly path: string;
  /** Stops the processes of the run, and removes the folder. */
  end(): Promise<void>;
}

/** Makes the folder, `TMPDIR` of what this process starts from now on. */
export async function openRunFolder(): Promise<RunFolder> {
  const path = await temporaryFolder('stampede-test-');
  const program = fileURLToPath(new URL('run-guard.ts', import.meta.url));
  // In its own session: Ctrl-C in a terminal reaches vitest only.
  const guard = spawn(process.execPath, ['--import', 'tsx', program, path], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
  });
  guard.unref();
  process.env.TMPDIR = path;
  return {
    path,
    async end() {
      const ended = once(guard, 'exit');
      guard.ref();
      guard.stdin.end();
      await ended;
    },
  };
}
