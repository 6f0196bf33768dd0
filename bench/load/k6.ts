/**
 * k6 as the load generator: a process that runs bench/load/k6/purchase.ts. Its console goes into a file of lines.ts's
 * lines, which k6 writes at once. Times are those of k6's clock, which a correction of the machine's time moves.
 *
 * k6 uses the network for nothing but the load: no usage report, no extensions, no API server, no dashboard, no proxy.
 * Neither a configuration file nor K6_ variables of the user change what the script does.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cpuSeconds } from '../kit/cpu.ts';
import type { HistoryRecord } from '../kit/history.ts';
import { findProgram, isProgram, startTool } from '../kit/processes.ts';
import { readLines } from './lines.ts';
import type { StrangeAnswer } from './recorder.ts';

export interface K6Load {
  /** Where the service answers, without a path. */
  readonly url: string;
  readonly saleId: number;
  /** The customer of each attempt, in order. */
  readonly users: readonly string[];
  /** `fixed`: all attempts, as fast as they are answered. `rush`: arrivals that grow to the rate, then hold. */
  readonly script: 'rush' | 'fixed';
  /** Virtual users; each has a connection. */
  readonly connections: number;
  /** Of a rush. */
  readonly ratePerSecond: number;
  /** No attempt begins after this; at least 1,000, k6 takes no less. */
  readonly durationMs: number;
  /** An attempt without an answer after this is `unknown`. */
  readonly requestTimeoutMs: number;
  /** A folder for temporary files is made in it, and removed. */
  readonly folder: string;
  /** Ends the load at once: the service is gone, or the user wants to stop. */
  readonly signal: AbortSignal;
}

export interface K6Result {
  readonly history: readonly HistoryRecord[];
  readonly strangeAnswers: readonly StrangeAnswer[];
  /** Attempts that k6 should have begun and did not: no virtual user was free, or time was up for a fixed list. */
  readonly dropped: number;
  /** "stampede_latency p(99)<1000", and whether it was kept; empty when k6 was ended before. */
  readonly thresholds: readonly { readonly name: string; readonly passed: boolean }[];
  readonly cpuS: number | null;
}

/** How to install k6. */
export const k6Hint =
  'k6 was not found in $K6, on PATH, or in the bin folder of $GOPATH (~/go). Install it with `go install go.k6.io/k6@latest`, ' +
  'or from the packages of Grafana: https://grafana.com/docs/k6/latest/set-up/install-k6/';

/** The path of k6; null: there is none. What $K6 names is not replaced by another. */
export function findK6(): string | null {
  const named = process.env.K6;
  if (named) return isProgram(named) ? named : null;
  const goPath = process.env.GOPATH || join(homedir(), 'go');
  return (
    findProgram('k6') ??
    findProgram(
      'k6',
      goPath.split(delimiter).map((folder) => join(folder, 'bin')),
    )
  );
}

/** After an interrupt k6 may take so long to end in order. */
const interruptMs = 3_000;
/** Beyond the load and its last answers: virtual users made, the sale read, the result written. */
const aroundMs = 120_000;
/** The CPU time of a process is gone with it: it is read so often. */
const cpuEveryMs = 200;
/** k6's exit codes for runs that came to their end: in order, with missed thresholds. */
const endedWell = ['ended with code 0', 'ended with code 99'];

/** @throws when k6 is missing, or fails; missed thresholds and an abort are no failures */
export async function runK6(load: K6Load): Promise<K6Result> {
  const program = findK6();
  if (program === null) throw new Error(k6Hint);
  const nothing = { history: [], strangeAnswers: [], dropped: 0, thresholds: [], cpuS: null };
  if (load.signal.aborted || load.users.length === 0) return nothing;
  // k6 takes a relative path for one that begins at its script.
  const folder = await mkdtemp(join(resolve(load.folder), 'k6-'));
  try {
    const file = (name: string): string => join(folder, name);
    await writeFile(file('config.json'), '{}');
    await writeFile(file('users.json'), JSON.stringify(load.users));
    await writeFile(file('lines.txt'), '');
    const cpuS = await follow([program, ...k6Arguments(load, file)], load);
    const result = await readFile(file('result.json'), 'utf8').catch(() => null);
    if (result === null && !load.signal.aborted) throw new Error('k6 ended in order, but reported no result');
    const { users, saleId } = load;
    const lines = await readLines([file('lines.txt')], { user: (n) => users[n] ?? '', sale: () => saleId });
    return {
      ...nothing,
      ...(result === null ? {} : (JSON.parse(result) as Partial<K6Result>)),
      ...lines,
      cpuS,
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function k6Arguments(load: K6Load, file: (name: string) => string): string[] {
  const given: Readonly<Record<string, string | number>> = {
    SCRIPT: load.script,
    URL: load.url,
    SALE_ID: load.saleId,
    USERS: file('users.json'),
    VUS: load.connections,
    DURATION_S: load.durationMs / 1_000,
    RATE: load.ratePerSecond,
    TIMEOUT_MS: load.requestTimeoutMs,
    RESULT: file('result.json'),
  };
  return [
    ...[
      'run',
      '--quiet',
      '--no-color',
      '--no-usage-report',
      '--address',
      '',
      '--config',
      file('config.json'),
    ],
    ...['--log-format', 'raw', '--console-output', file('lines.txt'), '--include-system-env-vars=false'],
    ...Object.entries(given).flatMap(([name, value]) => ['-e', `${name}=${value}`]),
    fileURLToPath(new URL('k6/purchase.ts', import.meta.url)),
  ];
}

/** Waits for k6's end, and ends it when it must. @returns its CPU time */
async function follow(
  command: readonly string[],
  { signal, durationMs, requestTimeoutMs }: K6Load,
): Promise<number | null> {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('K6_')); // they would win
  const env = {
    ...Object.fromEntries(kept),
    NO_PROXY: '*',
    no_proxy: '*',
    K6_AUTO_EXTENSION_RESOLUTION: 'false',
  };
  await using k6 = startTool({ command, env });
  let cpuS: number | null = null;
  let kill: NodeJS.Timeout | undefined;
  const abort = (): void => {
    k6.signal('SIGINT');
    kill = setTimeout(() => k6.signal('SIGKILL'), interruptMs);
  };
  const late = setTimeout(() => k6.signal('SIGKILL'), durationMs + requestTimeoutMs + aroundMs);
  const cpu = setInterval(() => {
    cpuS = cpuSeconds(k6.pid) ?? cpuS;
  }, cpuEveryMs);
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  try {
    const how = await k6.ended;
    if (!signal.aborted && !endedWell.includes(how)) throw new Error([`k6 ${how}`, ...k6.tail()].join('\n'));
    return cpuS;
  } finally {
    clearInterval(cpu);
    clearTimeout(late);
    clearTimeout(kill);
    signal.removeEventListener('abort', abort);
  }
}
