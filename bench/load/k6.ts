/**
 * k6 as the generator: a process that runs bench/load/k6/purchase.ts. k6 writes its console, unbuffered, into a file
 * for `readLines`. Times are those of k6's clock, which follows corrections of the machine's time.
 *
 * k6 uses the network for the load alone: no usage report, extensions, API server, dashboard or proxy. Neither a
 * configuration file nor K6_ variables of the user change what the script does.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findProgram, isProgram } from '../../lab/kit/processes.ts';
import type { OpenLoad } from './open.ts';
import { oneUnit, unitsField } from './purchase.ts';
import { type Recorded, readLines } from './recorder.ts';
import { runTool } from './tool.ts';

export interface K6Load
  extends Pick<OpenLoad, 'url' | 'saleId' | 'users' | 'quantities' | 'connections' | 'requestTimeoutMs'> {
  /** `fixed`: all attempts, as fast as they are answered. `rush`: arrivals that grow to the rate, then hold. */
  readonly script: 'rush' | 'fixed';
  /** Arrivals a second in a rush. */
  readonly ratePerSecond: number;
  /** No attempt begins after this; at least 1,000, k6's minimum. */
  readonly durationMs: number;
  /** A temporary folder is made in it, and removed. */
  readonly folder: string;
  /** Ends the load at once. */
  readonly signal: AbortSignal;
}

export interface K6Result extends Recorded {
  /** Attempts that k6 should have begun and did not: no virtual user was free, or time was up for a fixed list. */
  readonly dropped: number;
  /** "stampede_latency p(99)<1000", and whether it was met; empty if k6 was ended early. */
  readonly thresholds: readonly { readonly name: string; readonly passed: boolean }[];
  readonly cpuS: number | null;
}

export const k6Hint =
  'k6 was not found in $K6, on PATH, or in the bin folder of $GOPATH (~/go). Install it with `go install go.k6.io/k6@latest`, ' +
  'or from the packages of Grafana: https://grafana.com/docs/k6/latest/set-up/install-k6/';

/** The path of k6; null: there is none. A program that $K6 names is never replaced. */
export function findK6(): string | null {
  const { K6: named, GOPATH } = process.env;
  if (named) return isProgram(named) ? named : null;
  const folders = (GOPATH || join(homedir(), 'go')).split(delimiter).map((folder) => join(folder, 'bin'));
  return findProgram('k6') ?? findProgram('k6', folders);
}

/** Extra time to make virtual users, read the sale and write the result. */
const aroundMs = 120_000;
/** How k6 ends complete runs: in order, or with missed thresholds. */
const endedWell = ['ended with code 0', 'ended with code 99'];

/** @throws when k6 is missing, or fails; missed thresholds and an abort are not failures */
export async function runK6(load: K6Load): Promise<K6Result> {
  const { users, saleId, quantities = oneUnit, signal } = load;
  const program = findK6();
  if (program === null) throw new Error(k6Hint);
  const nothing = { history: [], strangeAnswers: [], dropped: 0, thresholds: [], cpuS: null };
  if (signal.aborted || users.length === 0) return nothing;
  // k6 resolves relative paths from its script.
  const folder = await mkdtemp(join(resolve(load.folder), 'k6-'));
  const file = (name: string): string => join(folder, name);
  try {
    const files = { 'config.json': '{}', 'users.json': JSON.stringify(users), 'lines.txt': '' };
    for (const [name, text] of Object.entries(files)) await writeFile(file(name), text);
    const { how, cpuS, tail } = await runTool({
      command: [program, ...k6Arguments(load, file)],
      env: k6Environment(),
      signal,
      durationMs: null,
      withinMs: load.durationMs + load.requestTimeoutMs + aroundMs,
    });
    if (!signal.aborted && !endedWell.includes(how)) throw new Error([`k6 ${how}`, ...tail].join('\n'));
    const result = await readFile(file('result.json'), 'utf8').catch((error: unknown) => {
      if (signal.aborted) return '{}';
      throw error;
    });
    const recorded = await readLines([file('lines.txt')], (n) => {
      const userId = users[n] ?? '';
      return { saleId, userId, ...unitsField(userId, quantities) };
    });
    return { ...nothing, ...(JSON.parse(result) as Partial<K6Result>), ...recorded, cpuS };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function k6Arguments(load: K6Load, file: (name: string) => string): string[] {
  const {
    script,
    url,
    saleId,
    quantities = oneUnit,
    connections,
    durationMs,
    ratePerSecond,
    requestTimeoutMs,
  } = load;
  const given = {
    ...{ SCRIPT: script, URL: url, SALE_ID: saleId, VUS: connections, RATE: ratePerSecond },
    ...{ DURATION_S: durationMs / 1_000, TIMEOUT_MS: requestTimeoutMs },
    ...{ USERS: file('users.json'), RESULT: file('result.json') },
    QUANTITY: `${quantities.least}-${quantities.most}`,
  };
  const alone = ['--config', file('config.json'), '--include-system-env-vars=false', '--no-usage-report'];
  const output = ['--quiet', '--no-color', '--log-format', 'raw', '--console-output', file('lines.txt')];
  const variables = Object.entries(given).flatMap(([name, value]) => ['-e', `${name}=${value}`]);
  const path = fileURLToPath(new URL('k6/purchase.ts', import.meta.url));
  return ['run', '--address', '', ...alone, ...output, ...variables, path];
}

function k6Environment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('K6_'));
  const own = { NO_PROXY: '*', no_proxy: '*', K6_AUTO_EXTENSION_RESOLUTION: 'false' };
  return { ...Object.fromEntries(kept), ...own };
}
