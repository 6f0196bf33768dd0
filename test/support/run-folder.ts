/** The folder of a test run, and the guard that ends what the run started: see run-guard.ts. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';

export interface RunFolder {
  readonly path: string;
  /** Stops the processes of the run, and removes the folder. */
  end(): Promise<void>;
}

/** Names the process whose run has a folder, so that a second setup uses the same one: a socket's path has at most 107 bytes. */
const OWNER = 'STAMPEDE_TEST_RUN';

/** Makes the folder, and sets `TMPDIR` to it for what this process starts later. */
export async function openRunFolder(): Promise<RunFolder> {
  const { env } = process;
  if (env[OWNER] === String(process.pid)) return { path: env.TMPDIR!, end: async () => {} };
  const path = await temporaryFolder('stampede-test-');
  const program = fileURLToPath(new URL('run-guard.ts', import.meta.url));
  // In its own session: Ctrl-C in a terminal reaches vitest only.
  const guard = spawn(process.execPath, ['--import', 'tsx', program, path], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
  });
  guard.unref();
  env.TMPDIR = path;
  env[OWNER] = String(process.pid);
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
