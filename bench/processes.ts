/** Processes of the bench's own: programs and tools. None of them outlives the bench. */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const loader = import.meta.resolve('tsx');
const errorLines = 12;
const readyMs = 60_000;
const exitMs = 5_000;

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export interface Started extends AsyncDisposable {
  readonly pid: number;
  /** Resolves with words for how it ended, and its last lines of errors. */
  readonly ended: Promise<string>;
  /** Fires when it ends before it was told to. */
  readonly died: AbortSignal;
  signal(name: NodeJS.Signals): void;
}

/** A program of bench/ that talks over a channel; it ends when the channel does. */
export interface Program<To, From> extends Started {
  tell(message: To): void;
  /** Waits for a message that `wanted` picks. @throws when the process ends, or nothing comes in time */
  hear<M extends From>(
    wanted: (message: From) => message is M,
    options?: { readonly withinMs?: number; readonly signal?: AbortSignal },
  ): Promise<M>;
  /** Called for every message. */
  onMessage(take: (message: From) => void): void;
}

/**
 * @param path from bench/, such as "limits/servers/bare.ts"
 * @param nodeOptions of the node that runs it
 */
export function startProgram<To extends object, From>(
  path: string,
  nodeOptions: readonly string[] = [],
): Program<To, From> {
  // Its own process group: Ctrl-C in the terminal is for the bench, which then ends what it started.
  const child = fork(fileURLToPath(new URL(path, import.meta.url)), [], {
    execArgv: [...nodeOptions, '--import', loader],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { ...process.env, NODE_ENV: 'production' },
    detached: true,
  });
  const started = watch(child, path);
  return {
    ...started,
    tell: (message) => void child.send(message, () => {}),
    hear: (wanted, { withinMs = readyMs, signal } = {}) =>
      new Promise((resolve, reject) => {
        const done = (outcome: () => void): void => {
          clearTimeout(timer);
          child.off('message', hear);
          signal?.removeEventListener('abort', abort);
          outcome();
        };
        const fail = (why: string): void => done(() => reject(new Error(why)));
        const hear = (message: unknown): void => {
          if (wanted(message as From)) done(() => resolve(message as never));
        };
        const abort = (): void => fail('interrupted');
        const timer = setTimeout(() => fail(`${path} was silent for ${withinMs} ms`), withinMs);
        child.on('message', hear);
        signal?.addEventListener('abort', abort, { once: true });
        if (signal?.aborted) abort();
        void started.ended.then((how) => fail(`${path} ${how}`));
      }),
    onMessage: (take) => void child.on('message', (message) => take(message as From)),
  };
}

export interface ToolOptions {
  readonly command: readonly string[];
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly onLine?: (line: string) => void;
}

/** @throws nothing: a tool that cannot be started ends at once, and says why */
export function startTool({ command, env = {}, onLine }: ToolOptions): Started {
  const [program = '', ...args] = command;
  const child = spawn(program, args, {
    stdio: ['ignore', onLine === undefined ? 'ignore' : 'pipe', 'pipe'],
    env: { ...process.env, ...env },
    detached: true,
  });
  if (child.stdout !== null && onLine !== undefined) {
    createInterface({ input: child.stdout }).on('line', onLine);
  }
  return watch(child, program);
}

function watch(child: ChildProcess, name: string): Started {
  running.add(child);
  const lines: string[] = [];
  if (child.stderr !== null) {
    createInterface({ input: child.stderr }).on('line', (line) => {
      lines.push(line);
      if (lines.length > errorLines) lines.shift();
    });
  }
  let ending = false;
  const died = new AbortController();
  const ended = new Promise<string>((resolve) => {
    const end = (how: string): void => {
      running.delete(child);
      const text = `${how}${lines.map((line) => `\n${line}`).join('')}`;
      if (!ending) died.abort(new Error(`${name} ${text}`));
      resolve(text);
    };
    child.once('error', (error) => end(`could not be run: ${error.message}`));
    // 'close', not 'exit': what it wrote last has then been read.
    child.once('close', (code, signal) => end(`ended with ${signal ?? `code ${code}`}`));
  });
  return {
    pid: child.pid ?? -1,
    ended,
    died: died.signal,
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
