/** The explorer: it is repeatable, finds what the control does wrong, and finds nothing in the others. */
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { nameOf } from '../../lab/explore/case.ts';
import type { Target } from '../../lab/explore/process.ts';
import type { Explore, Finding, FromExplorer } from '../../lab/explore/protocol.ts';
import { startProgram } from '../../lab/kit/processes.ts';
import { removeFolder, temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { buildClock } from '../../lab/servers/open.ts';
import { startPostgres } from '../../lab/servers/postgres-folder.ts';
import { opened } from '../support/opened.ts';

interface Explored {
  readonly findings: readonly Finding[];
  readonly timeline: readonly string[];
  readonly schedules: number;
}

/** One process, which plays what it is asked for, one request after the other. */
class Explorer {
  readonly #program = startProgram<Explore, FromExplorer>('explorer');
  #take: (message: FromExplorer) => void = () => {};

  static async open(): Promise<Explorer> {
    const explorer = new Explorer();
    await explorer.#program.receive((message) => message.kind === 'ready');
    explorer.#program.onMessage((message) => explorer.#take(message));
    return explorer;
  }

  async explore(
    target: Target,
    seed: number,
    count: number | null,
    exhaustive: number | null = null,
  ): Promise<Explored> {
    const findings: Finding[] = [];
    let timeline: readonly string[] = [];
    let schedules = 0;
    const isDone = (message: FromExplorer) => message.kind === 'done';
    this.#take = (message) => {
      if (message.kind === 'finding') findings.push(message);
      if (message.kind !== 'progress') return;
      timeline = message.timeline ?? timeline;
      schedules += message.schedules[nameOf(target)] ?? 0;
    };
    this.#program.send({ kind: 'explore', targets: [target], seed, stride: 1, count, exhaustive });
    await this.#program.receive(isDone, { withinMs: 600_000 });
    return { findings, timeline, schedules };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#program[Symbol.asyncDispose]());
  }
}

/** A seed whose world has extras: see lab/explore/extras.ts. */
const WITH_EXTRAS = 11;

const target = (strategy: string): Target => ({ strategy, confirm: 'durable', lock: 'redis' });

/**
 * Each has a finding when what was mended is undone. A seed is one of the generator: after a change of what lab/explore chooses, or of the
 * requests of the service, `npm run explore -- --first` finds another one, with the same options and the mistake introduced again.
 */
const MENDED: [what: string, strategy: string, Target['confirm'], lock: string, seed: number][] = [
  ['an order is not closed twice', 'group-commit', 'durable', 'redis', 110],
  ['a commit without an answer may exist', 'lua', 'durable', 'redis', 91098],
  ['a late statement places nothing', 'group-commit', 'durable', 'redis', 12],
  ['a refusal comes from the last copy', 'lua', 'durable', 'redis', 50063],
  ['what a copy decided counts for its connection', 'global-lock', 'durable', 'redis', 50559],
  ['a claim that was taken over releases nothing', 'lua', 'durable', 'redis', 90059],
  ['a retry without a barrier is none', 'conditional-update', 'durable', 'redis', 127],
  ['a repeat waits for the standby', 'lua', 'durable', 'redis', 225],
  ['an attempt that finds its order waits for the standby', 'conditional-update', 'durable', 'redis', 56],
  ['a commit whose wait for the standby was cancelled is unknown', 'group-commit', 'durable', 'redis', 56],
  ['a late holder of a lock takes nothing', 'global-lock', 'accepted', 'redis', 141],
  ['an order that was closed before a load is not restored', 'lua', 'accepted', 'redis', 1339],
  [
    'a copy is the last one also where Postgres went back to before its load',
    'lua',
    'accepted',
    'redis',
    4000118,
  ],
  [
    'a change stays until its sale is loaded in the new Redis',
    'global-lock',
    'durable',
    'postgres-row',
    200103,
  ],
  ['a retry promises no order that a load has kept', 'segmented-lock', 'accepted', 'postgres-row', 41000193],
  ['a closed order is given no units', 'lua', 'accepted', 'redis', 43001478],
  ['a load into an empty Redis waits for a cut', 'global-lock', 'accepted', 'postgres-row', 42000118],
  ['sold out is known for one timeline of Postgres', 'conditional-update', 'durable', 'redis', 42000141],
  ['a customer with an order needs no code', 'for-update', 'durable', 'redis', 41000057],
  ['before the barrier no other order of the customer counts', 'skip-locked', 'durable', 'redis', 700034],
  ['an own order counts before another of the customer', 'group-commit', 'durable', 'redis', 556],
  [
    'an attempt of a task in progress is the last before a refund',
    'conditional-update',
    'durable',
    'redis',
    221,
  ],
  ['a refund ends a task that waits', 'group-commit', 'durable', 'redis', 19],
  ['an extended order expires by its new deadline', 'group-commit', 'durable', 'redis', 1027],
  ['an extension shortens no deadline', 'unique-key', 'durable', 'redis', 16],
  ['an extension has a bound', 'conditional-update', 'durable', 'redis', 38],
  ['the count of a limit goes with a transfer', 'unique-key', 'durable', 'redis', 34],
  ['a commit compares the limit of its customer', 'unique-key', 'durable', 'redis', 11],
  ['a unit that the waitlist holds is counted', 'for-update', 'durable', 'redis', 5],
  ['a code opens a sale to its customer alone, and with its group', 'group-commit', 'durable', 'redis', 16],
  ['a late payment took a unit again, whose order had expired', 'unique-key', 'durable', 'redis', 31000093],
  ['a cancelled statement that goes on may wait for the standby', 'unique-key', 'durable', 'redis', 35000020],
  ['the answer to a request may name the next order', 'segmented-lock', 'durable', 'redis', 36000275],
  ['a repeat promises no order that a load has kept', 'global-lock', 'accepted', 'postgres-row', 36000342],
  ['the first customer of a transferred order had it refunded', 'unique-key', 'durable', 'redis', 34000049],
  ['a use of a code is counted when it is taken', 'group-commit', 'durable', 'redis', 5],
];

/** Without a C compiler there are no virtual clocks. */
const folder = await temporaryFolder('stampede-compiler-');
const clock = await buildClock(folder);
afterAll(() => removeFolder(folder));

describe.skipIf(clock === null)('explore', { timeout: 600_000 }, () => {
  const [first, second] = [opened(() => Explorer.open()), opened(() => Explorer.open())];

  it.each([
    ['lua', 7],
    ['group-commit', 7],
    ['for-update', 7],
    ['lua', WITH_EXTRAS],
    ['unique-key', WITH_EXTRAS],
  ])('plays the same schedule of %s for the same seed', async (strategy, seed) => {
    await first.explore(target(strategy), 1, 3);
    const { timeline } = await first.explore(target(strategy), seed, 1);
    expect(timeline.length).toBeGreaterThan(50);
    expect((await second.explore(target(strategy), seed, 1)).timeline).toEqual(timeline);
  });

  it('finds that the control oversells within a hundred schedules, and shrinks it', async () => {
    const { findings } = await first.explore(target('unsafe'), 1, 16);
    const oversold = findings.find(({ what }) => what.some((one) => one.includes('oversold')));
    expect(oversold?.timeline.length).toBeGreaterThan(20);
    expect(oversold?.size.deviations).toBeLessThan(20);
  });

  it('plays every schedule of a small case', async () => {
    const { findings, schedules } = await second.explore(target('conditional-update'), 0, null, 0);
    expect(findings).toEqual([]);
    expect(schedules).toBeGreaterThan(200);
  });

  it.each(MENDED)('finds nothing any more: %s', async (_, strategy, confirm, lock, seed) => {
    expect((await second.explore({ strategy, confirm, lock }, seed, 1)).findings).toEqual([]);
  });

  it('finds nothing in schedules of every strategy', async () => {
    expect(await explore('--schedules', '600', '--seed', '20000')).toMatch(
      /\n[\d,]+ schedules, [\d,]+ a second, 0 findings\n$/,
    );
  });

  it('ends no statement because real time passes', async () => {
    const file = join(folder, 'now');
    const isAt = async (seconds: number) => {
      const microseconds = Buffer.alloc(8);
      microseconds.writeBigInt64LE(BigInt(seconds) * 1_000_000n);
      await writeFile(file, microseconds, { flag: seconds === 0 ? 'w' : 'r+' });
    };
    await isAt(0);
    const environment = { LD_PRELOAD: clock!, STAMPEDE_VIRTUAL_CLOCK: file };
    const server = await startPostgres({ folder: join(folder, 'postgres'), environment });
    onTestFinished(() => server.stop());
    const url = server.url('postgres');
    const [holder, waiter] = [new pg.Client(url), new pg.Client(url)];
    await Promise.all([holder.connect(), waiter.connect()]);
    onTestFinished(() => Promise.all([holder.end(), waiter.end()]).then(() => {}));
    await holder.query('SELECT pg_advisory_lock(1)');
    await waiter.query(`SET statement_timeout = '1ms'`);
    const waiting = waiter.query('SELECT pg_advisory_lock(1)').then(
      () => 'locked',
      (error) => error.message,
    );
    while ((await holder.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount === 0);
    await isAt(60);
    await holder.query('SELECT count(*) FROM generate_series(1, 1000000)');
    await holder.query('SELECT pg_advisory_unlock(1)');
    expect(await waiting).toBe('locked');
  });

  it('ends its servers when the time is up in the middle of a schedule', async () => {
    await explore('--minutes', '0.05', '--strategies', 'lua');
  });
});

/** Runs the command. Its servers end with it, and their folders are gone. @returns what it prints */
async function explore(...options: readonly string[]): Promise<string> {
  const program = fileURLToPath(new URL('../../dist/commands/explore.js', import.meta.url));
  const folder = await temporaryFolder('stampede-explored-');
  const env = { ...process.env, TMPDIR: folder };
  const run = promisify(execFile)(process.execPath, [program, ...options], { env });
  const { stdout } = await run.catch((error) => error); // its exit code is 1 with a finding
  expect(readdirSync(folder)).toEqual([]);
  await rm(folder, { recursive: true });
  return stdout;
}
