/** Runs one overload by itself: `node --import tsx bench/limits/overload-main.ts --strategy lua`, after a build. */
import { writeFile } from 'node:fs/promises';
import { exitCodes, refuse, runCommand, say } from '../command.ts';
import { describeCommit, describeMachine } from '../kit/machine.ts';
import { numberOption, optionLines, readOptions } from '../command-line.ts';
import { openStores } from '../kit/stores.ts';
import { type OverloadOptions, type OverloadReport, runOverload } from './overload.ts';

const specs = {
  strategy: { type: 'string', value: 'name', help: 'which strategy (for-update)' },
  lock: { type: 'string', value: 'name', help: "for a strategy that uses one (the service's default)" },
  duration: { type: 'string', value: 's', help: 'how long the overload lasts (60)' },
  times: { type: 'string', value: 'n', help: 'how many times the capacity (10)' },
  most: { type: 'string', value: 'n', help: 'attempts a second that are sent at most (10000)' },
  connections: {
    type: 'string',
    value: 'n',
    help: 'of the overload; who comes when all are busy is dropped (1024)',
  },
  seed: { type: 'string', value: 'n', help: 'of the arrivals (1)' },
  out: { type: 'string', value: 'file', help: 'write the figures there, as JSON' },
  help: { type: 'boolean', help: 'show this' },
} as const;

const help = `Sends many times its capacity to a service, and tells what becomes of it.

${optionLines(specs, 22)}

Stores as for npm run bench. Exit code: 0 every goal reached; 1 not; 2 bad options; 130 interrupted.
`;

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  const mistakes: string[] = [];
  const given = readOptions(specs, args, mistakes);
  if (given.has('help') && mistakes.length === 0) {
    process.stdout.write(help);
    return exitCodes.success;
  }
  const number = (name: keyof typeof specs, fallback: number, min: number, whole = false): number =>
    numberOption(given, name, fallback, { min, max: 1_000_000, whole }, mistakes);
  const options: OverloadOptions = {
    strategy: given.get('strategy') ?? 'for-update',
    lock: given.get('lock') ?? null,
    durationMs: number('duration', 60, 1) * 1_000,
    times: number('times', 10, 0.1),
    mostPerSecond: number('most', 10_000, 1),
    connections: number('connections', 1_024, 1, true),
    seed: number('seed', 1, 0, true),
  };
  if (mistakes.length > 0) return refuse(mistakes);
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
  const report = await runOverload(options, { stores, signal, onStep });
  process.stdout.write(textOf(report));
  const out = given.get('out');
  if (out !== undefined) {
    const commit = await describeCommit();
    const machine = describeMachine(stores.versions);
    await writeFile(
      out,
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
