/** Finds the stores of a service: those that the configuration names, and local ones in place of the others. */
import type { Logger } from 'pino';
import type { Config } from './config/env.ts';
import { StartError } from './config/errors.ts';
import { serversOf } from './config/redis-url.ts';
import { startLocalStores } from './local/stores.ts';
import { LOCAL_FOLDER } from './local/urls.ts';
import { migrate } from './store/postgres/migrate.ts';

export interface StoreUrls {
  readonly databaseUrl: string;
  readonly redisUrl: string;
}

/**
 * Starts local stores where none are named.
 * @param onStarted receives what stops them
 */
export async function findStores(
  { databaseUrl, redisUrl, localRedis }: Config,
  log: Logger,
  onStarted: (stop: () => Promise<unknown>) => void,
): Promise<StoreUrls> {
  if (databaseUrl !== null && redisUrl !== null) return { databaseUrl, redisUrl };
  const local = await startLocalStores({
    folder: LOCAL_FOLDER,
    postgres: databaseUrl === null,
    redis: redisUrl === null,
    installRedis: localRedis,
    say: (line) => log.info(line),
  });
  onStarted(() => local.stop());
  return { databaseUrl: databaseUrl ?? local.databaseUrl!, redisUrl: redisUrl ?? local.redisUrl! };
}

/** Applies the migrations. @throws StartError */
export async function migrateStores({ databaseUrl }: StoreUrls, log: Logger): Promise<void> {
  const applied = await reach('Postgres', 'DATABASE_URL', databaseUrl, () => migrate(databaseUrl));
  if (applied.length > 0) log.info({ applied }, 'Applied database migrations');
}

/** @throws StartError naming the variable, without its password, when a store cannot be used */
export async function reach<T>(
  store: string,
  variable: string,
  url: string,
  connect: () => Promise<T>,
): Promise<T> {
  try {
    return await connect();
  } catch (cause) {
    const message = (cause as Error).message || String((cause as { code?: unknown }).code ?? cause);
    throw new StartError(
      `Cannot use ${store} at ${serversOf(url)}: ${message}\nCheck ${variable}, or leave it empty to start a local ${store}.`,
      { cause },
    );
  }
}
