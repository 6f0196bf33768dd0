/** Child processes: programs of this repository, and tools. None of them outlives its parent. */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const keptLines = 40;

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** The limits of a wait. */
export interface Wait {
  /** 60 s by default. */
  readonly withinMs?: number;
  readonly signal?: AbortSignal;
}

export interface Started extends AsyncDisposable {
  readonly pid: number;
  /** Resolves with "ended with code 0", or how else it ended. */
  readonly ended: Promise<string>;
  /** Fires if the process ends before its disposal; the reason shows its last lines. */
  readonly died: AbortSignal;
  /** The last lines of its output, the oldest first. */
  tail(): readonly string[];
  signal(name: NodeJS.Signals): void;
  /** Resolves when `watch` calls back. @throws when the process ends, the signal fires, or nothing comes in time */
  until<T>(watch: (found: (value: T) => void) => void, wait?: Wait): Promise<T>;
}

/** Part of every message of a program. A message without a kind belongs to another protocol, such as that of `node --watch`. */
interface Message {
  readonly kind: string;
}
const isMessage = (message: unknown): boolean => typeof (message as Message | null)?.kind === 'string';

/** A program of this repository that talks over a channel; it ends when the channel does. */
export interface Program<To, From extends Message> extends Started {
  send(message: To): void;
  /** Waits for a message. @throws as `until` does */
  receive<M extends From>(wanted: (message: From) => message is M, wait?: Wait): Promise<M>;
  onMessage(take: (message: From) => void): void;
}

/** The built file of a program. @param name as in scripts/build.js, such as "proxy-process" */
export const programEntry = (name: string): string =>
  fileURLToPath(new URL(`../../dist/programs/${name}.js`, import.meta.url));

/**
 * @param name as `programEntry` has it
 * @param nodeOptions of the node that runs it
 */
export function startProgram<To extends object, From extends Message>(
  name: string,
  nodeOptions: readonly string[] = [],
): Program<To, From> {
  // Another process group: Ctrl-C in the terminal is for the bench, which then ends what it started.
  const child = fork(programEntry(name), [], {
    execArgv: ['--enable-source-maps', ...nodeOptions],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { ...process.env, NODE_ENV: 'production' },
    detached: true,
  });
  const started = watched(child, { name });
  return {
    ...started,
    send: (message) => void child.send(message, () => {}),
    onMessage: (take) => void child.on('message', (message) => isMessage(message) && take(message as From)),
    async receive<M extends From>(wanted: (message: From) => message is M, wait?: Wait) {
      let take = (_message: unknown): void => {};
      const watch = (found: (message: M) => void): void => {
        take = (message) => isMessage(message) && wanted(message as From) && found(message as M);
        child.on('message', take);
      };
      return started.until(watch, wait).finally(() => child.off('message', take));
    },
  };
}

interface Watched {
  /** Name in messages; by default the program. */
  readonly name?: string;
  /** Time between SIGTERM and SIGKILL at its disposal. */
  readonly exitMs?: number;
  readonly onLine?: (line: string) => void;
}

export interface ToolOptions extends Watched {
  readonly command: readonly string[];
  readonly cwd?: string;
  /** The whole environment; by default that of the bench. */
  readonly env?: NodeJS.ProcessEnv;
  /** The end of its standard input ends it, not SIGTERM. */
  readonly endsWithInput?: boolean;
}

/** Never throws: a tool that cannot be started ends at once and says why. */
export function startTool({
  command,
  cwd,
  env = process.env,
  endsWithInput,
  ...watch
}: ToolOptions): Started {
  const [program = '', ...args] = command;
  const input = endsWithInput ? 'pipe' : 'ignore';
  const child = spawn(program, args, { cwd, env, stdio: [input, 'pipe', 'pipe'], detached: true });
  child.stdin?.on('error', () => {}); // it has ended
  return watched(child, { name: program, ...watch });
}

function watched(child: ChildProcess, { name, exitMs = 5_000, onLine }: Watched): Started {
  running.add(child);
  const lines: string[] = [];
  // Read for as long as the process runs: a full pipe would block it.
  const read = (input: NodeJS.ReadableStream | null, take?: (line: string) => void): void => {
    if (input === null) return;
    createInterface({ input }).on('line', (line) => {
      lines.push(line);
      if (lines.length > keptLines) lines.shift();
      take?.(line);
    });
  };
  read(child.stderr);
  read(child.stdout, onLine);
  let ending = false;
  const died = new AbortController();
  const failure = (how: string): Error => new Error([`${name} ${how}; its last lines:`, ...lines].join('\n'));
  const ended = new Promise<string>((resolve) => {
    const end = (how: string): void => {
      running.delete(child);
      if (!ending) died.abort(failure(how));
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
    signal: (signal) => void child.kill(signal),
    until: (watch, { withinMs = 60_000, signal } = {}) =>
      new Promise((resolve, reject) => {
        const fail = (error: unknown): void => {
          settle();
          reject(error);
        };
        const timer = setTimeout(() => fail(failure(`was silent for ${withinMs} ms`)), withinMs);
        const abort = (): void => fail(signal?.reason);
        const settle = (): void => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', abort);
        };
        void ended.then((how) => fail(failure(how)));
        watch((value) => {
          settle();
          resolve(value);
        });
        signal?.addEventListener('abort', abort);
        if (signal?.aborted) abort();
      }),
    async [Symbol.asyncDispose]() {
      ending = true;
      if (!running.has(child)) return;
      if (child.stdin === null) child.kill('SIGTERM');
      else child.stdin.end();
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
