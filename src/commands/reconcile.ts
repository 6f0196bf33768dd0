/**
 * `npm run reconcile`: compares Redis with Postgres for every sale, and repairs drift. With `--check` it only prints the
 * differences, and exits with 1 when there are any. The service may run meanwhile; its reservation reaper does the same.
 */
import { readArguments } from '../config/arguments.ts';
import { type Config, parseEnv } from '../config/env.ts';
import { loadEnvFile } from '../config/env-file.ts';
import { ConfigError } from '../config/errors.ts';
import { limits } from '../config/limits.ts';
import { LOCAL_FOLDER, readStoreUrls } from '../local/urls.ts';
import { createInstruments } from '../metrics/instruments.ts';
import { backgroundHealth } from '../metrics/loop-health.ts';
import { compare, compareSale, repair } from '../orders/drift.ts';
import { Closers, type Core, choices, openCore, type Reports } from '../service/core.ts';
import type { StoreUrls } from '../service/startup.ts';
import { storeFailure } from '../store/failures/any-store.ts';
import { isAnswer } from '../store/failures/postgres.ts';
import { cellsOf, databaseUrlOf, runCommand, say } from './command.ts';

const HELP = `npm run reconcile [-- --check]
  DATABASE_URL, CELL_DATABASE_URLS, REDIS_URL, STRATEGY, SEGMENTS: as for the service, which must run if its stores are local`;

/** @returns the exit code */
async function main(): Promise<number> {
  const { values } = readArguments({ check: { type: 'boolean' }, help: { type: 'boolean' } });
  if (values.help) {
    say(HELP);
    return 0;
  }
  const { config, urls } = storesOf(parse({}, loadEnvFile()));
  const closers = new Closers();
  const reports = reportsOf();
  try {
    const found = { different: 0, unread: 0, uncommitted: 0, isMirrored: false };
    for (const { databaseUrl } of cellsOf(config)) {
      const core = await openCore(config, { ...urls, databaseUrl }, reports, closers);
      await reconcile(core, reports, values.check === true, found);
    }
    const { different, unread, uncommitted, isMirrored } = found;
    const agreement = isMirrored ? 'Redis agrees with Postgres.' : 'Postgres agrees with itself.';
    if (uncommitted > 0) say(`${uncommitted} reservations in Redis are not committed yet.`);
    if (unread > 0) say(`${unread} sales could not be compared.`);
    if (different > 0 || unread === 0) say(different === 0 ? agreement : `${different} sales differ.`);
    const why =
      urls.redisUrl === null ? 'REDIS_URL names none' : `STRATEGY=${config.strategy} decides in Postgres`;
    if (!isMirrored) say(`Redis was not compared: ${why}.`);
    return unread > 0 ? 2 : Math.sign(different);
  } finally {
    await closers.close((error) => reports.onError('stop', error));
  }
}

/** Compares the sales of one Postgres. @param found to which its sales are added */
async function reconcile(
  { sales, orders, strategy: { mirror }, outbox }: Core,
  { instruments }: Reports,
  checksOnly: boolean,
  found: { different: number; unread: number; uncommitted: number; isMirrored: boolean },
): Promise<void> {
  const context = { mirror, sales, orders };
  found.isMirrored = mirror !== null;
  for await (const page of sales.recent(limits.scanBatch))
    for (const listed of page) {
      const saleId = listed.id;
      const verdict = await compareSale(context, listed).catch((error) => {
        const isOfSale = isAnswer(error) || storeFailure(error).kind === 'defect';
        if (!isOfSale) throw error; // the stores do not answer: nor would they for the next sale
        say(`could not compare sale ${saleId}: ${error.message}`);
        found.unread++;
      });
      if (verdict === undefined) continue;
      const { differences, uncommitted } = verdict;
      found.uncommitted += uncommitted;
      for (const difference of differences) say(`sale ${saleId}: ${difference}`);
      if (differences.length === 0) continue;
      found.different++;
      if (checksOnly || mirror === null || outbox === null) continue;
      while ((await outbox.publish()) > 0);
      const sale = (await sales.get(saleId))!;
      const repairing = { ...context, mirror, instruments, log: () => {} };
      await repair(repairing, saleId, await mirror.digest(saleId));
      if ((await compare(context, sale)).differences.size > 0) continue;
      say(`sale ${saleId}: repaired`);
      found.different--;
    }
}

/** The stores of the service; those of a service with local stores are in its file. */
function storesOf(config: Config): { readonly config: Config; readonly urls: StoreUrls } {
  const local = readStoreUrls(LOCAL_FOLDER);
  const databaseUrl = databaseUrlOf(config);
  const { redisUrl, postgresAlone, localRedisFor } = config;
  if (redisUrl !== null || process.env.REDIS_URL === 'none')
    return { config, urls: { databaseUrl, redisUrl } };
  if (local.redisUrl !== null) {
    const urls = { databaseUrl, redisUrl: local.redisUrl };
    return { config: parse({ REDIS_URL: urls.redisUrl }), urls };
  }
  if (postgresAlone) return { config, urls: { databaseUrl, redisUrl } };
  const needs = `REDIS_URL must name the Redis of the service, for ${localRedisFor.join(', ')}`;
  throw new ConfigError([`${needs}; local stores are found while it runs`]);
}

/** The lock takes no part in a comparison: its server need not run, and Redis need not allow what it sends. */
const parse = (changes: object, fileNames: readonly string[] = []): Config =>
  parseEnv({ ...process.env, LOCK: 'postgres-row', ...changes }, choices, fileNames);

/** Failures go to the terminal. */
function reportsOf(): Reports {
  const instruments = createInstruments();
  const onError = (doing: string, error: unknown) => say(`could not ${doing}: ${(error as Error).message}`);
  const background = backgroundHealth(instruments.registry, { failing: onError, recovered: () => {} });
  return { instruments, background, onError, onDefect: (error) => onError('continue', error) };
}

runCommand(main);
