/** A real service process, as `npm start` runs it but for the port. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));

export interface TestService extends AsyncDisposable {
  readonly url: string;
  readonly process: ChildProcess;
  /** Everything that it logged. */
  readonly log: readonly string[];
  /** SIGKILL, and waits for the end. */
  kill(): Promise<void>;
  /** SIGTERM, and waits for the end. @returns the exit code */
  stop(): Promise<number | null>;
}

/** Starts a service and waits until it listens. @throws with its log when it does not. */
export async function startService(env: Readonly<Record<string, string>>): Promise<TestService> {
  const child = spawn(process.execPath, ['--import', 'tsx', `${root}src/main.ts`], {
    cwd: `${root}src`, // not where a file .env may be
    env: { PATH: process.env.PATH, PORT: '0', LOG_LEVEL: 'info', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const log: string[] = [];
  const ended = once(child, 'exit');
  child.stderr.on('data', (chunk) => log.push(String(chunk)));
  const port = await new Promise<number>((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      log.push(line);
      if (line.includes('"msg":"listening"')) resolve((JSON.parse(line) as { port: number }).port);
    });
    void ended.then(() => reject(new Error(`the service ended before it listened:\n${log.join('\n')}`)));
  });
  const end = async (signal: NodeJS.Signals) => {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal);
    await ended;
  };
  return {
    url: `http://127.0.0.1:${port}`,
    process: child,
    log,
    kill: () => end('SIGKILL'),
    async stop() {
      await end('SIGTERM');
      return child.exitCode;
    },
    [Symbol.asyncDispose]: () => end('SIGKILL'),
  };
}
