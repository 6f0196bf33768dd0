/** Runs one overload by itself: `node --import tsx bench/limits/overload-main.ts --strategy lua`, after a build. */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { exitCodes, refuse, runCommand, say } from '../command.ts';
import { describeCommit, describeMachine } from '../machine.ts';
import { openStores } from '../stores.ts';
import { type OverloadOptions, type OverloadReport, runOverload } from './overload.ts';

const help = `Sends many times its capacity to a service, and tells what becomes of it.

  --strategy name      which strategy (for-update)
  --lock name          for a strategy that uses one (the service's default)
  --duration s         how long the overload lasts (60)
  --times n            how many times the capacity (10)
  --most n             attempts a second that are sent at most (10000)
  --connections n      of the overload; who comes when all are busy is dropped (1024)
  --seed n             of the arrivals (1)
  --out file           write the figures there, as JSON

Stores as for npm run bench. Exit code: 0 every goal reached; 1 not; 2 bad options; 130 interrupted.
`;

const names = ['strategy', 'lock', 'duration', 'times', 'most', 'connections', 'seed', 'out'] as const;

/** All mistakes are told together. */
function readOptions(args: readonly string[]): {
  readonly options: OverloadOptions;
  readonly out: string | undefined;
  readonly mistakes: readonly string[];
} {
  const { values } = parseArgs({
    args: [...args],
    options: Object.fromEntries(names.map((name) => [name, { type: 'string' as const }])),
  });
  const mistakes: string[] = [];
  const number = (name: (typeof names)[number], fallback: number, least: number): number => {
    const value = Number(values[name] ?? fallback);
    if (!(value >= least && value <= 1_000_000))
      mistakes.push(`--${name} ${values[name]}: must be from ${least} to 1000000`);
    return value;
  };
  const options: OverloadOptions = {
    strategy: values.strategy ?? 'for-update',
    lock: values.lock ?? null,
    durationMs: number('duration', 60, 1) * 1_000,
    times: number('times', 10, 0.1),
    mostPerSecond: number('most', 10_000, 1),
    connections: Math.round(number('connections', 1_024, 1)),
    seed: Math.round(number('seed', 1, 0)),
  };
  return { options, out: values.out, mistakes };
}

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  if (args.includes('--help')) {
    process.stdout.write(help);
    return exitCodes.success;
  }
  let read: ReturnType<typeof readOptions>;
  try {
    read = readOptions(args);
  } catch (error) {
    return refuse([error instanceof Error ? error.message : String(error)]);
  }
  if (read.mistakes.length > 0) return refuse(read.mistakes);
  const startedAt = new Date().toISOString();
  await using stores = await openStores({
    databaseUrl: process.env.DATABASE_URL || undefined,
    redisUrl: process.env.REDIS_URL || undefined,
    keep: false,
    mayDelete: false,
    say,
  });
  let step = '';
  const onStep = (now: string): void => {
    const kind = now.replace(/:.*/, '');
    if (kind !== step) say(kind);
    step = kind;
  };
  const report = await runOverload(read.options, { stores, signal, onStep });
  process.stdout.write(textOf(report));
  if (read.out !== undefined) {
    const commit = await describeCommit();
    const machine = describeMachine(stores.versions);
    await writeFile(
      read.out,
      `${JSON.stringify({ schema: 1, startedAt, commit, machine, ...report }, null, 2)}\n`,
    );
  }
  return report.goals.every(({ reached }) => reached) ? exitCodes.success : exitCodes.failure;
}

function textOf({ capacityPerSecond, ratePerSecond, options, ...report }: OverloadReport): string {
  const { sending, overload, recovery, memory, goals, notes } = report;
  const rate = Math.round(ratePerSecond);
  const asked = Math.round(options.times * capacityPerSecond);
  const less =
    asked > rate ? ` (${options.times} × would be ${asked}: more than one generator may send)` : '';
  const ms = (value: number | null): string => (value === null ? '–' : value.toFixed(1));
  const columns = (cells: readonly (string | number)[]): string =>
    cells.map((cell) => String(cell).padStart(9)).join('');
  const lines = [
    `${options.strategy}: capacity ${Math.round(capacityPerSecond)}/s, load ${rate}/s for ${options.durationMs / 1_000} s${less}`,
    `sent ${sending.sent} of ${sending.scheduled}, dropped ${sending.dropped}, without connection ${sending.unconnected}; ` +
      `lag p50 ${ms(sending.lagMs.p50)}, p99 ${ms(sending.lagMs.p99)}, max ${ms(sending.lagMs.max)} ms; ` +
      `generator busy ${(sending.utilization * 100).toFixed(0)} %`,
    '',
    columns(['second', 'due', 'admitted', 'busy', 'other', 'unsent', 'lag p99', 'adm p99', 'busy p99']),
    ...overload.seconds.map(
      ({ second, due, admitted, busy, other, unsent, lagP99Ms, admittedP99Ms, busyP99Ms }) =>
        columns([second, due, admitted, busy, other, unsent, ms(lagP99Ms), ms(admittedP99Ms), ms(busyP99Ms)]),
    ),
    '',
    `accepted/s after the load, each 100 ms: ${recovery.acceptedPerSecond.join(' ')}`,
    `resident MB: ${memory.map((reading) => `${megabytes(reading.residentBytes)} at ${Math.round(reading.atMs / 1_000)} s`).join(', ')}`,
    '',
    ...goals.map(
      ({ what, found, goal, reached }) =>
        `${reached ? 'reached' : 'MISSED '}  ${what}: ${found} (goal: ${goal})`,
    ),
    ...notes,
  ];
  return `${lines.join('\n')}\n`;
}

function megabytes(bytes: number | null): string {
  return bytes === null ? '?' : (bytes / 1_048_576).toFixed(0);
}

await runCommand(main, 'nothing is kept');
