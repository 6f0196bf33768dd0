/** `npm run bench`: the only file of the bench that reads the command line, the environment and signals. */
import { access } from 'node:fs/promises';
import { type Catalogue, readCatalogue } from './admin.ts';
import { exitCodes, refuse, runCommand, say } from './command.ts';
import { compareCommand } from './compare.ts';
import { describeMachine } from './kit/machine.ts';
import { type BenchStores, openStores } from './kit/stores.ts';
import { findK6, k6Hint } from './load/k6.ts';
import { warmGeneratorUp } from './load/warm-up.ts';
import { rushConnections } from './loads.ts';
import { missingLockServers } from './lock-servers.ts';
import { type BenchOptions, helpText, parseOptions } from './options.ts';
import { type Contender, contenders } from './plan.ts';
import { reportCommand } from './report/again.ts';
import { runPlan } from './run.ts';
import { serviceEntry, startService, tunable } from './service.ts';
import { runTrial } from './trial.ts';

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  const [first, ...rest] = args;
  if (first === '--compare') return compareCommand(rest);
  if (first === '--report') return reportCommand(rest);
  const parsed = parseOptions(args);
  if (parsed.kind === 'help') {
    process.stdout.write(helpText());
    return exitCodes.success;
  }
  if (parsed.kind === 'mistakes') return refuse(parsed.mistakes);
  const { options } = parsed;
  const missing = missingLockServers(options.locks, process.env);
  if (missing.length > 0) return refuse(missing);
  if (options.load.includes('k6') && findK6() === null) return refuse([`--load k6: ${k6Hint}`]);
  await access(serviceEntry).catch((cause: unknown) => {
    throw new Error(`${serviceEntry} is not there: run the bench with npm run bench, which builds it`, {
      cause,
    });
  });

  await using stores = await openStores({
    databaseUrl: process.env.DATABASE_URL || undefined,
    redisUrl: process.env.REDIS_URL || undefined,
    keep: options.keep,
    mayDelete: options.yes,
    say,
  });
  signal.throwIfAborted();
  const { rows, mistakes } = await rowsOf(options, stores, signal);
  if (mistakes.length > 0) return refuse(mistakes);
  if (options.load.includes('open')) {
    say('warming the load generator up');
    await warmGeneratorUp(rushConnections, signal);
    signal.throwIfAborted();
  }
  // Awaited here: the stores live as long as this function.
  return await runPlan({
    options,
    contenders: rows,
    machine: describeMachine(stores.versions),
    serviceEnv: tunedEnv(),
    out: process.stdout,
    signal,
    runTrial: (trial, { folder, onStep }) => runTrial(trial, { options, stores, folder, signal, onStep }),
  });
}

/** Asks a service which strategies there are, and whether it knows every lock that will be used. */
async function rowsOf(
  options: BenchOptions,
  stores: BenchStores,
  signal: AbortSignal,
): Promise<{ readonly rows: readonly Contender[]; readonly mistakes: readonly string[] }> {
  await using empty = await stores.fresh('catalogue');
  const catalogue = await askService({ strategy: null, lock: null, ...empty }, signal);
  const { rows, mistakes } = contenders(options, catalogue.strategies);
  const wrongLocks: string[] = [];
  for (const { strategy, lock } of firstOfEachLock(rows)) {
    if (lock === catalogue.lock) continue;
    try {
      await askService({ strategy, lock, ...empty }, signal);
    } catch (error) {
      signal.throwIfAborted();
      wrongLocks.push(`--locks: ${lock} cannot be used: ${error instanceof Error ? error.message : error}`);
    }
  }
  return { rows, mistakes: [...mistakes, ...wrongLocks] };
}

function firstOfEachLock(rows: readonly Contender[]): Contender[] {
  const locks = new Set(rows.map(({ lock }) => lock).filter((lock) => lock !== null));
  return [...locks].flatMap((lock) => rows.find((row) => row.lock === lock) ?? []);
}

async function askService(
  settings: Parameters<typeof startService>[0],
  signal: AbortSignal,
): Promise<Catalogue> {
  await using service = await startService(settings, { signal });
  return await readCatalogue(service.url);
}

function tunedEnv(): Record<string, string> {
  return Object.fromEntries(
    tunable.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])),
  );
}

await runCommand(main, 'finished rounds are kept');
