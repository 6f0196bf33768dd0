/**
 * k6 as the load generator: a process that runs one of the scripts of bench/load/k6. The history comes from the file
 * into which its console goes: `n µs` when attempt n begins, `n µs status outcome order` when it was answered, with the
 * body as JSON behind it where the answer is strange. k6 writes each line at once, so that the file is whole whatever
 * ends k6. Times are those of k6's clock: µs since its test began, by the wall clock, which a correction of the
 * machine's time moves.
 *
 * k6 has the machine's network for nothing but the load: no usage report, no extensions from elsewhere, no API server, no
 * dashboard, no proxy. Neither a configuration file nor K6_ variables of the user change what a script does.
 */
import { execFile } from 'node:child_process';
import { type FileHandle, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type AttemptOutcome, type HistoryRecord, resultOf } from '../history.ts';
import { findProgram, isProgram, type Started, startTool } from '../processes.ts';
import type { LoadResult } from './closed.ts';
import type { StrangeAnswer } from './recorder.ts';

export interface K6Load {
  /** Where the service answers, without a path. */
  readonly url: string;
  readonly saleId: number;
  /** Who attempts, in order. */
  readonly users: readonly string[];
  /** `fixed`: all attempts, as fast as they are answered. `rush`: as many as arrive; the list must be long enough. */
  readonly script: 'rush' | 'fixed';
  /** Virtual users; each has a connection of its own. */
  readonly connections: number;
  /** What a rush grows to; `fixed` does not look at it. */
  readonly ratePerSecond: number;
  /** No attempt is begun after this; at least 1,000, k6 takes no less. */
  readonly durationMs: number;
  /** An attempt without an answer after this is `unknown`. */
  readonly requestTimeoutMs: number;
  /** A folder for temporary files is made in it, and removed. */
  readonly folder: string;
  /** Ends the load at once: the service is gone, or the user wants to stop. */
  readonly signal?: AbortSignal;
  /** Called a few times a second with the attempts answered so far. */
  readonly onProgress?: (completed: number) => void;
}

export interface K6Result extends LoadResult {
  /**
   * Attempts that k6 should have begun and did not: no virtual user was free, or time was up for a fixed list. Arrivals of
   * a rush that k6 itself was too late for are not among them. 0 when k6 was ended before it could tell.
   */
  readonly dropped: number;
  /** "stampede_latency p(99)<1000", and whether it was kept; none when k6 was ended before it could tell. */
  readonly thresholds: readonly Threshold[];
  /** "v1.8.1". */
  readonly version: string;
}

export interface Threshold {
  readonly name: string;
  readonly passed: boolean;
}

/** How to get k6, in words for a person. */
export const k6Hint =
  'k6 was not found in $K6, on PATH, or in the bin folder of $GOPATH (~/go). Install it with `go install go.k6.io/k6@latest`, ' +
  'or from the packages of Grafana: https://grafana.com/docs/k6/latest/set-up/install-k6/';

/** The path of k6; null: there is none. What $K6 names is not replaced by another. */
export function findK6(): string | null {
  const named = process.env.K6;
  if (named) return isProgram(named) ? named : null;
  const goPath = process.env.GOPATH || join(homedir(), 'go');
  const goBins = goPath.split(delimiter).map((folder) => join(folder, 'bin'));
  return findProgram('k6') ?? findProgram('k6', goBins);
}

const progressEveryMs = 200;
/** After an interrupt k6 may take so long to end in order. */
const interruptMs = 3_000;
/** Beyond the load and its last answers: virtual users made, the sale read, the result written. */
const aroundMs = 120_000;
/** k6's exit codes for runs that came to their end: in order, with missed thresholds. */
const endedWell = [0, 99];
const strangeKept = 3;

/** @throws when k6 is missing, or fails; missed thresholds and an abort are no failures */
export async function runK6(load: K6Load): Promise<K6Result> {
  const program = findK6();
  if (program === null) throw new Error(k6Hint);
  const version = await versionOf(program);
  const nothing = { history: [], strangeAnswers: [], utilization: null, dropped: 0, thresholds: [], version };
  if (load.signal?.aborted || load.users.length === 0) return nothing;

  // k6 takes a relative path for one that begins at its script.
  const folder = await mkdtemp(join(resolve(load.folder), 'k6-'));
  try {
    const files = filesIn(folder);
    await writeFile(files.config, '{}');
    await writeFile(files.users, JSON.stringify(load.users));
    await using tail = await HistoryTail.open(files.history, load.users.length);
    const command = [...shielded(process.env), program, ...k6Arguments(load, files)];
    await follow(startTool({ command, env: { NO_PROXY: '*', no_proxy: '*' } }), load, tail);
    await tail.read();
    const told = await readResult(files.result);
    if (told === null && !load.signal?.aborted) throw new Error('k6 ended in order, but told no result');
    return {
      ...nothing,
      ...told,
      history: tail.records(load),
      strangeAnswers: tail.strangeAnswers,
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

type Files = Readonly<Record<'config' | 'users' | 'history' | 'result', string>>;

function filesIn(folder: string): Files {
  return {
    config: join(folder, 'config.json'),
    users: join(folder, 'users.json'),
    history: join(folder, 'history.txt'),
    result: join(folder, 'result.json'),
  };
}

/** The beginning of a command that hides the user's K6_ variables: they would go before what the script says. */
function shielded(env: NodeJS.ProcessEnv): string[] {
  const hidden = Object.keys(env).filter((name) => name.startsWith('K6_'));
  return ['env', ...hidden.flatMap((name) => ['-u', name]), 'K6_AUTO_EXTENSION_RESOLUTION=false'];
}

function k6Arguments(load: K6Load, files: Files): string[] {
  const given: Readonly<Record<string, string | number>> = {
    URL: load.url,
    SALE_ID: load.saleId,
    USERS: files.users,
    VUS: load.connections,
    DURATION_S: load.durationMs / 1_000,
    RATE: load.ratePerSecond,
    TIMEOUT_MS: load.requestTimeoutMs,
    RESULT: files.result,
  };
  return [
    ...['run', '--quiet', '--no-color', '--no-usage-report', '--address', '', '--config', files.config],
    ...['--log-format', 'raw', '--console-output', files.history, '--include-system-env-vars=false'],
    ...Object.entries(given).flatMap(([name, value]) => ['-e', `${name}=${value}`]),
    fileURLToPath(new URL(`k6/${load.script}.ts`, import.meta.url)),
  ];
}

/** Waits for k6's end, and ends it when it must. */
async function follow(started: Started, load: K6Load, tail: HistoryTail): Promise<void> {
  await using k6 = started;
  let kill: NodeJS.Timeout | undefined;
  const abort = (): void => {
    k6.signal('SIGINT');
    kill = setTimeout(() => k6.signal('SIGKILL'), interruptMs);
  };
  let late = false;
  const patience = setTimeout(
    () => {
      late = true;
      k6.signal('SIGKILL');
    },
    load.durationMs + load.requestTimeoutMs + aroundMs,
  );
  // A malformed line is thrown by the last read.
  const look = (): void => void tail.read().then(load.onProgress, () => {});
  const progress = setInterval(look, progressEveryMs);
  load.signal?.addEventListener('abort', abort, { once: true });
  if (load.signal?.aborted) abort();
  try {
    const how = await k6.ended;
    if (late) throw new Error(`k6 did not end: it ${how}`);
    const code = Number(/^ended with code (\d+)/.exec(how)?.[1] ?? Number.NaN);
    if (!load.signal?.aborted && !endedWell.includes(code)) throw new Error(`k6 failed: it ${how}`);
  } finally {
    clearInterval(progress);
    clearTimeout(patience);
    clearTimeout(kill);
    load.signal?.removeEventListener('abort', abort);
  }
}

interface Seen {
  readonly begunUs: number;
  /** Null: no answer so far. */
  answer: {
    readonly us: number;
    readonly status: number;
    readonly outcome: AttemptOutcome;
    readonly orderId: string | null;
  } | null;
}

const chunkBytes = 1 << 18;
const newline = 0x0a;

/** Reads k6's history while it grows; the end of it that is no whole line yet stays for the next time. */
class HistoryTail implements AsyncDisposable {
  readonly strangeAnswers: StrangeAnswer[] = [];
  readonly #file: FileHandle;
  readonly #seen: (Seen | undefined)[];
  readonly #chunk = Buffer.alloc(chunkBytes);
  #position = 0;
  #rest = Buffer.alloc(0);
  #completed = 0;
  #reading: Promise<number> = Promise.resolve(0);

  static async open(path: string, attempts: number): Promise<HistoryTail> {
    return new HistoryTail(await open(path, 'w+'), attempts);
  }

  private constructor(file: FileHandle, attempts: number) {
    this.#file = file;
    this.#seen = new Array<Seen | undefined>(attempts);
  }

  /** Reads what was written since the last time. Resolves with the attempts answered so far. */
  read(): Promise<number> {
    this.#reading = this.#reading.then(() => this.#readOn());
    return this.#reading;
  }

  async #readOn(): Promise<number> {
    for (;;) {
      const { bytesRead } = await this.#file.read(this.#chunk, 0, chunkBytes, this.#position);
      if (bytesRead === 0) return this.#completed;
      this.#position += bytesRead;
      const bytes = Buffer.concat([this.#rest, this.#chunk.subarray(0, bytesRead)]);
      const end = bytes.lastIndexOf(newline) + 1;
      this.#rest = bytes.subarray(end);
      for (const line of bytes.toString('utf8', 0, end).split('\n')) {
        if (line !== '') this.#take(line);
      }
    }
  }

  #take(line: string): void {
    const [n = '', us = '', status, outcome = '', orderId = '', ...body] = line.split(' ');
    const at = Number(n);
    const time = Number(us);
    if (!(at < this.#seen.length) || Number.isNaN(time))
      throw new Error(`k6's history has the line "${line}"`);
    if (status === undefined) {
      this.#seen[at] = { begunUs: time, answer: null };
      return;
    }
    const seen = this.#seen[at];
    if (seen === undefined || seen.answer !== null || !isOutcome(outcome)) {
      throw new Error(`k6's history has the line "${line}" where it cannot be`);
    }
    seen.answer = { us: time, status: Number(status), outcome, orderId: orderId === '-' ? null : orderId };
    this.#completed += 1;
    if (body.length > 0 && this.strangeAnswers.length < strangeKept) {
      this.strangeAnswers.push({ status: Number(status), body: JSON.parse(body.join(' ')) as string });
    }
  }

  /** Every attempt that k6 began, in the order of the list; those without an answer are `unknown`. */
  records({ saleId, users }: K6Load): HistoryRecord[] {
    return this.#seen.flatMap((seen, id): HistoryRecord[] => {
      if (seen === undefined) return [];
      const { begunUs, answer } = seen;
      const outcome = answer?.outcome ?? 'unknown';
      return [
        {
          id,
          op: 'purchase',
          saleId,
          userId: users[id] ?? '',
          invokedUs: begunUs,
          completedUs: answer?.us ?? null,
          result: resultOf[outcome],
          outcome,
          orderId: answer?.orderId ?? null,
          status: answer?.status ?? null,
        },
      ];
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#reading.catch(() => {});
    await this.#file.close();
  }
}

function isOutcome(text: string): text is AttemptOutcome {
  return Object.hasOwn(resultOf, text);
}

/** What `handleSummary` of the script wrote; null: k6 was ended before. */
async function readResult(path: string): Promise<Pick<K6Result, 'dropped' | 'thresholds'> | null> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
  return text === null ? null : (JSON.parse(text) as Pick<K6Result, 'dropped' | 'thresholds'>);
}

async function versionOf(program: string): Promise<string> {
  const { stdout } = await promisify(execFile)(program, ['version'], { timeout: 20_000 });
  return /\bv\d\S*/.exec(stdout)?.[0] ?? stdout.trim();
}
