/**
 * `npm run explore`: plays schedules of the order pipeline, each from a seed, in two processes, and reports what breaks a promise.
 *
 *   npm run explore -- --minutes 10 --strategies lua,group-commit          explores
 *   npm run explore -- --strategies lua --seed 42 --schedules 1            plays one schedule, and prints its events
 */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { onStopSignals } from '../../src/config/stop-signals.ts';
import { startProgram } from '../kit/processes.ts';
import { clock, number, quantity } from '../kit/text.ts';
import { nameOf, SALES } from './case.ts';
import type { Target } from './process.ts';
import type { Explore, Finding, FromExplorer } from './protocol.ts';
import { CONTROL, targetsOf } from './targets.ts';

/** Its worker and the servers share one processor, so threads that collect garbage beside it save nothing. */
const NODE_OPTIONS = ['--max-semi-space-size=64', '--single-threaded-gc'];

const HELP = `Plays schedules of the order pipeline: whole pipelines in one process, on real stores, in an order that a seed chooses.

  --minutes M         how long (1)
  --schedules N       how many at least, instead of a time: a seed has ${SALES}, one for each sale of a world
  --strategies a,b    which; "all" but unsafe by default
  --confirm C         durable, accepted, or both (both)
  --lock L            redis, postgres-row, or both, for strategies with a lock (both)
  --seed N            the first seed (1); with --schedules 1 its events are printed
  --workers N         processes that play (2)
  --exhaustive N      every schedule of a small case with at most N events out of order, instead of seeds
  --first             ends with the first finding`;

interface Options {
  readonly targets: readonly Target[];
  readonly minutes: number;
  readonly schedules: number | null;
  readonly seed: number;
  readonly workers: number;
  readonly exhaustive: number | null;
  readonly isFirstOnly: boolean;
}

function refuse(message: string): never {
  process.stderr.write(`${message}\nnpm run explore -- --help explains the options.\n`);
  process.exit(2);
}

function parse(args: readonly string[]): Options {
  const text = { type: 'string' } as const;
  const names = ['minutes', 'schedules', 'strategies', 'confirm', 'lock', 'seed', 'workers', 'exhaustive'];
  const options = {
    ...Object.fromEntries(names.map((name) => [name, text])),
    help: { type: 'boolean' },
    first: { type: 'boolean' },
  } as const;
  let values: Record<string, string | boolean | undefined>;
  try {
    ({ values } = parseArgs({ args: [...args], options }));
  } catch (error) {
    return refuse((error as Error).message);
  }
  if (values.help) {
    process.stdout.write(`${HELP}\n`);
    process.exit(0);
  }
  const whole = (name: string, otherwise: number, min = 1): number => {
    const given = values[name];
    if (given === undefined) return otherwise;
    const isWhole = /^\d+(\.\d+)?$/.test(String(given)) && Number(given) >= min;
    return isWhole ? Number(given) : refuse(`--${name} must be a number from ${min}, not "${given}"`);
  };
  const targets = targetsOf({
    strategies: values.strategies === undefined ? null : String(values.strategies).split(','),
    confirm: String(values.confirm ?? 'both'),
    lock: String(values.lock ?? 'both'),
  });
  if (typeof targets === 'string') return refuse(targets);
  return {
    targets,
    minutes: whole('minutes', values.exhaustive === undefined ? 1 : Number.POSITIVE_INFINITY, 0),
    schedules: values.schedules === undefined ? null : whole('schedules', 1),
    seed: whole('seed', 1, 0),
    workers: whole('workers', 2),
    exhaustive: values.exhaustive === undefined ? null : whole('exhaustive', 0, 0),
    isFirstOnly: values.first === true,
  };
}

type Explorer = ReturnType<typeof startProgram<Explore, FromExplorer>>;

async function run({
  targets,
  minutes,
  schedules,
  seed,
  workers: wanted,
  exhaustive,
  isFirstOnly,
}: Options): Promise<number> {
  const worlds = schedules === null ? null : Math.ceil(schedules / SALES);
  const workers = Math.min(wanted, worlds ?? wanted);
  const explorers: Explorer[] = Array.from({ length: workers }, (_, n) => {
    process.env.STAMPEDE_EXPLORER_CPU = String(n % availableParallelism());
    return startProgram('explorer', NODE_OPTIONS);
  });
  const end = () => Promise.all(explorers.map((explorer) => explorer[Symbol.asyncDispose]()));
  const report = new Report(worlds === 1);
  const stopped = new Promise<void>((resolve) => {
    onStopSignals(process, { first: () => resolve(), later: () => process.exit(1) });
  });
  try {
    const isReady = (message: FromExplorer): message is { readonly kind: 'ready' } =>
      message.kind === 'ready';
    await Promise.all(explorers.map((explorer) => explorer.receive(isReady)));
    report.begin();
    const done = explorers.map((explorer, n) => {
      explorer.onMessage((message) => report.take(message, n));
      const share = worlds === null ? null : Math.floor((worlds + workers - 1 - n) / workers);
      explorer.send({ kind: 'explore', targets, seed: seed + n, stride: workers, count: share, exhaustive });
      return new Promise<void>((resolve, reject) => {
        explorer.onMessage(({ kind }) => kind === 'done' && resolve());
        explorer.died.addEventListener('abort', () => reject(explorer.died.reason));
      });
    });
    const time = new Promise<void>((resolve) => {
      if (schedules === null && Number.isFinite(minutes)) setTimeout(resolve, minutes * 60_000);
    });
    const found = new Promise<void>((resolve) => {
      for (const explorer of explorers)
        explorer.onMessage(({ kind }) => isFirstOnly && kind === 'finding' && resolve());
    });
    await Promise.race([Promise.all(done), time, stopped, found]);
  } finally {
    await end();
  }
  return report.end();
}

/** A schedule takes a tenth of a second, and making one smaller some ten seconds: a process that is silent for so long probably hangs. */
const SILENT_MS = 60_000;

/** What is printed. */
class Report {
  readonly #schedules = new Map<string, number>();
  readonly #faults = new Map<string, number>();
  readonly #findings: Finding[] = [];
  readonly #isPrinted: boolean;
  /** When each explorer last said something. */
  readonly #heardMs: number[] = [];
  #events = 0;
  #begunMs = 0;
  #reportedMs = 0;

  /** @param isPrinted whether the events of a schedule without a finding are printed */
  constructor(isPrinted: boolean) {
    this.#isPrinted = isPrinted;
  }

  begin(): void {
    this.#begunMs = performance.now();
    this.#reportedMs = this.#begunMs;
  }

  get #count(): number {
    return [...this.#schedules.values()].reduce((sum, n) => sum + n, 0);
  }

  get #rate(): string {
    const seconds = (performance.now() - this.#begunMs) / 1_000;
    return number(Math.round(this.#count / seconds));
  }

  /** @param n of the explorer */
  take(message: FromExplorer, n: number): void {
    this.#heardMs[n] = performance.now();
    if (message.kind === 'finding') {
      this.#findings.push(message);
      process.stdout.write(`\n${describe(message)}\n\n`);
    }
    if (message.kind !== 'progress') return;
    add(this.#schedules, message.schedules);
    add(this.#faults, message.faults);
    this.#events += message.events;
    if (this.#isPrinted && message.timeline !== undefined)
      process.stdout.write(`${message.timeline.join('\n')}\n`);
    if (performance.now() - this.#reportedMs < 5_000) return;
    this.#reportedMs = performance.now();
    const elapsed = clock(this.#reportedMs - this.#begunMs);
    const findings = quantity(this.#findings.length, 'finding');
    const silent = this.#heardMs.filter((heardMs) => this.#reportedMs - heardMs > SILENT_MS).length;
    const also =
      silent === 0 ? '' : `; ${quantity(silent, 'process', 'processes')} played nothing for a minute`;
    process.stdout.write(
      `${elapsed}  ${number(this.#count)} schedules, ${this.#rate} a second, ${findings}${also}\n`,
    );
  }

  /** @returns the exit code */
  end(): number {
    const lines = ['', 'schedules by target:'];
    for (const [name, count] of [...this.#schedules].sort())
      lines.push(`  ${name.padEnd(36)} ${number(count).padStart(9)}`);
    lines.push('', 'worlds with each fault:');
    for (const [name, count] of [...this.#faults].sort(([, a], [, b]) => b - a))
      lines.push(`  ${name.padEnd(36)} ${number(count).padStart(9)}`);
    const counted = this.#findings.filter(({ target }) => target.strategy !== CONTROL);
    const control = this.#findings.length - counted.length;
    lines.push('', `${number(this.#events)} events`);
    if (control > 0)
      lines.push(`${quantity(control, 'finding')} of ${CONTROL}, the control, which must have some`);
    lines.push(
      `${number(this.#count)} schedules, ${this.#rate} a second, ${quantity(counted.length, 'finding')}`,
    );
    process.stdout.write(`${lines.join('\n')}\n`);
    return counted.length > 0 ? 1 : 0;
  }
}

function add(to: Map<string, number>, more: Readonly<Record<string, number>>): void {
  for (const [name, count] of Object.entries(more)) to.set(name, (to.get(name) ?? 0) + count);
}

function describe({ target, seed, what, timeline, size }: Finding): string {
  const { strategy, confirm, lock } = target;
  const again = `npm run explore -- --strategies ${strategy} --confirm ${confirm} --lock ${lock} --seed ${seed} --schedules 1`;
  return [
    `FINDING  ${nameOf(target)}, seed ${seed}: ${what.join('; ')}`,
    `the smallest one has ${quantity(size.sales, 'sale')}, ${quantity(size.faults, 'fault')}, ${quantity(size.requests, 'request')} and ${quantity(size.deviations, 'event')} out of order:`,
    ...timeline.map((line) => `  ${line}`),
    `again: ${again}`,
  ].join('\n');
}

process.exit(await run(parse(process.argv.slice(2))));
