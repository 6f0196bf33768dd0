/** Processes that the bench starts: programs of bench/, and tools. None of them outlives the bench. */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const loader = import.meta.resolve('tsx');
const keptLines = 40;
const readyMs = 60_000;

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export interface Started extends AsyncDisposable {
  readonly pid: number;
  /** Resolves with "ended with code 0", or what it was instead. */
  readonly ended: Promise<string>;
  /** Fires when it ends before it was disposed of; the reason shows its last lines. */
  readonly died: AbortSignal;
  /** The last lines of its output, the oldest first. */
  tail(): readonly string[];
  signal(name: NodeJS.Signals): void;
}

/** A program of bench/ that talks over a channel; it ends when the channel does. */
export interface Program<To, From> extends Started {
  send(message: To): void;
  /** Waits for a message. @throws when the process ends, the signal fires, or nothing comes in time */
  receive<M extends From>(
    wanted: (message: From) => message is M,
    options?: { readonly withinMs?: number; readonly signal?: AbortSignal },
  ): Promise<M>;
  onMessage(take: (message: From) => void): void;
}

/**
 * @param path from bench/, such as "kit/link-proxy.ts"
 * @param nodeOptions of the node that runs it
 */
export function startProgram<To extends object, From>(
  path: string,
  nodeOptions: readonly string[] = [],
): Program<To, From> {
  // Another process group: Ctrl-C in the terminal is for the bench, which then ends what it started.
  const child = fork(fileURLToPath(new URL(`../${path}`, import.meta.url)), [], {
    execArgv: [...nodeOptions, '--import', loader],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { ...process.env, NODE_ENV: 'production' },
    detached: true,
  });
  const started = watch(child, path, 5_000);
  return {
    ...started,
    send: (message) => void child.send(message, () => {}),
    onMessage: (take) => void child.on('message', (message) => take(message as From)),
    receive: (wanted, { withinMs = readyMs, signal } = {}) =>
      new Promise((resolve, reject) => {
        const done = (outcome: () => void): void => {
          clearTimeout(timer);
          child.off('message', take);
          signal?.removeEventListener('abort', abort);
          outcome();
        };
        const fail = (why: string): void => done(() => reject(new Error(why)));
        const take = (message: unknown): void => {
          if (wanted(message as From)) done(() => resolve(message as never));
        };
        const abort = (): void => fail('interrupted');
        const timer = setTimeout(() => fail(`${path} was silent for ${withinMs} ms`), withinMs);
        child.on('message', take);
        signal?.addEventListener('abort', abort, { once: true });
        if (signal?.aborted) abort();
        void started.ended.then((how) => fail([`${path} ${how}`, ...started.tail()].join('\n')));
      }),
  };
}

export interface ToolOptions {
  readonly command: readonly string[];
  readonly cwd?: string;
  /** All of the environment; left out: that of the bench. */
  readonly env?: NodeJS.ProcessEnv;
  /** Between SIGTERM and SIGKILL when it is disposed of. */
  readonly exitMs?: number;
  readonly onLine?: (line: string) => void;
}

/** Never throws: a tool that cannot be started ends at once and says why. */
export function startTool({ command, cwd, env = process.env, exitMs = 5_000, onLine }: ToolOptions): Started {
  const [program = '', ...args] = command;
  const child = spawn(program, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  return watch(child, program, exitMs, onLine);
}

function watch(child: ChildProcess, name: string, exitMs: number, onLine?: (line: string) => void): Started {
  running.add(child);
  const lines: string[] = [];
  // Read for as long as the process runs: a full pipe would block it.
  const keep = (line: string): void => {
    lines.push(line);
    if (lines.length > keptLines) lines.shift();
  };
  if (child.stderr !== null) createInterface({ input: child.stderr }).on('line', keep);
  if (child.stdout !== null) {
    createInterface({ input: child.stdout }).on('line', (line) => {
      keep(line);
      onLine?.(line);
    });
  }
  let ending = false;
  const died = new AbortController();
  const ended = new Promise<string>((resolve) => {
    const end = (how: string): void => {
      running.delete(child);
      if (!ending) died.abort(new Error([`${name} ${how}`, ...lines.slice(-12)].join('\n')));
      resolve(how);
    };
    child.once('error', (error) => end(`could not be run: ${error.message}`));
    // 'close', not 'exit': its last lines have then been read.
    child.once('close', (code, signal) => end(`ended with ${signal ?? `code ${code}`}`));
  });
  return {
    pid: child.pid ?? -1,
    ended,
    died: died.signal,
    tail: () => [...lines],
    signal: (name) => void child.kill(name),
    async [Symbol.asyncDispose]() {
      ending = true;
      if (!running.has(child)) return;
      child.kill('SIGTERM');
      const kill = setTimeout(() => child.kill('SIGKILL'), exitMs);
      await ended;
      clearTimeout(kill);
    },
  };
}

/** The path of a program that can be run: in one of `folders`, else on PATH; null: there is none. */
export function findProgram(name: string, folders: readonly string[] = []): string | null {
  const places = [...folders, ...(process.env.PATH ?? '').split(delimiter)].filter((folder) => folder !== '');
  return places.map((folder) => join(folder, name)).find(isProgram) ?? null;
}

export function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
