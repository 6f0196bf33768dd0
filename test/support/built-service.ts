/**
 * The compiled service, for tests that start it again and again: a compiled one starts in less than half the time. It
 * is compiled into a folder of the test's own, so that nobody else's build gets in its way.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../../', import.meta.url));

export interface BuiltService extends AsyncDisposable {
  /** Runs it. The process may end before it listens: see `Run`. */
  start(env: Readonly<Record<string, string>>): Run;
  /** Its working directory, where a file `.env` would be. */
  readonly folder: string;
  /** Another program that was compiled with it. */
  entry(name: 'reconcile'): string;
}

/** One process. */
export interface Run {
  readonly process: ChildProcess;
  /** Where it answers; null when the process ended before it listened. */
  readonly url: Promise<string | null>;
  /** Everything that it logged. */
  readonly log: readonly string[];
  readonly ended: Promise<unknown>;
}

export async function buildService(): Promise<BuiltService> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-built-'));
  const compiler = path.join(root, 'node_modules', '.bin', 'tsc');
  const to = ['--outDir', path.join(folder, 'dist'), '--tsBuildInfoFile', path.join(folder, 'build-info')];
  await promisify(execFile)(compiler, ['-p', 'tsconfig.build.json', ...to], { cwd: root });
  // What the program looks for beside itself.
  await copyFile(path.join(root, 'package.json'), path.join(folder, 'package.json'));
  for (const part of ['lua', 'prisma', 'node_modules']) {
    await symlink(path.join(root, part), path.join(folder, part));
  }
  const entry = (name: string) => path.join(folder, 'dist', `${name}.js`);
  return {
    start: (env) => run(entry('main'), env, folder),
    entry,
    folder,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  };
}

function run(entry: string, env: Readonly<Record<string, string>>, cwd: string): Run {
  const child = spawn(process.execPath, [entry], {
    cwd,
    env: { PATH: process.env.PATH, PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'exit');
  const log: string[] = [];
  child.stderr.on('data', (chunk) => log.push(String(chunk)));
  const url = new Promise<string | null>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      log.push(line);
      const port = /"port":(\d+).*"msg":"listening"/.exec(line)?.[1];
      if (port !== undefined) resolve(`http://127.0.0.1:${port}`);
    });
    void ended.then(() => resolve(null));
  });
  return { process: child, url, log, ended };
}
