/**
 * `npm run reconcile`: compares Redis with Postgres for every sale, and repairs what differs. With `--check` it only
 * prints the differences, and exits with 1 when there are any. The service may run; its recovery does the same.
 */
import { parseArgs } from 'node:util';
import { parseEnv } from './config/env.ts';
import { loadEnvFile } from './config/env-file.ts';
import { ConfigError, OperatorError } from './config/errors.ts';
import { LOCAL_FOLDER, readStoreUrls } from './local/urls.ts';
import { locks } from './locks/registry.ts';
import { backgroundHealth } from './metrics/background.ts';
import { createInstruments } from './metrics/instruments.ts';
import { createOutboxRelay } from './orders/outbox-relay.ts';
import { compare, compareAll, repair } from './orders/reconcile.ts';
import { orderTable } from './store/postgres/orders.ts';
import { openPostgres } from './store/postgres/pool.ts';
import { saleTable } from './store/postgres/sales.ts';
import { openRedis } from './store/redis/connection.ts';
import { redisEpochs } from './store/redis/epochs.ts';
import { createSaleMirror } from './store/redis/sale-mirror.ts';
import { strategies } from './strategies/registry.ts';

const say = (line: string) => process.stdout.write(`${line}\n`);

/** @returns the exit code */
async function main(): Promise<number> {
  const { values } = parseArgs({ options: { check: { type: 'boolean' }, help: { type: 'boolean' } } });
  if (values.help) {
    say(
      'npm run reconcile [-- --check]\n  DATABASE_URL, REDIS_URL, STRATEGY, SEGMENTS: as for the service, which has to run if its stores are local',
    );
    return 0;
  }
  loadEnvFile();
  const config = parseEnv(process.env, { strategies: [...strategies.keys()], locks: [...locks.keys()] });
  const local = readStoreUrls(LOCAL_FOLDER);
  const databaseUrl = config.databaseUrl ?? local.databaseUrl;
  const redisUrl = config.redisUrl ?? local.redisUrl;
  if (databaseUrl === null || redisUrl === null) {
    throw new ConfigError([
      'DATABASE_URL and REDIS_URL must name the stores of the service, or the service that starts its own must run',
    ]);
  }
  const onError = (doing: string, error: unknown) => say(`could not ${doing}: ${(error as Error).message}`);
  const postgres = openPostgres(databaseUrl, (error) => onError('postgres-connection', error));
  const redis = await openRedis(redisUrl, (error) => onError('redis-connection', error));
  try {
    const [orders, sales] = [orderTable(postgres), saleTable(postgres)];
    const { store } = strategies.get(config.strategy)!.description;
    const segments = config.strategy === 'segmented-lock' ? config.segments : 0;
    const mirror =
      store === 'redis' ? createSaleMirror(redis, redisEpochs(redis, postgres), orders, segments) : null;
    const context = { mirror, sales, orders };
    const instruments = createInstruments();
    const background = backgroundHealth(instruments.registry, { failing: onError, recovered: () => {} });
    let different = 0;
    for await (const { saleId, differences } of compareAll(context)) {
      for (const difference of differences) say(`sale ${saleId}: ${difference}`);
      if (differences.length === 0) continue;
      different++;
      if (values.check || mirror === null) continue;
      const moves = createOutboxRelay({ postgres, mirror, background, onError });
      while ((await moves.tell()) > 0);
      const sale = (await sales.get(saleId))!;
      await repair({ mirror, sales, orders, instruments, log: () => {} }, sale);
      if ((await compare(context, sale)).differences.size > 0) continue;
      say(`sale ${saleId}: repaired`);
      different--;
    }
    say(different === 0 ? 'Redis agrees with Postgres.' : `${different} sales differ.`);
    return different === 0 ? 0 : 1;
  } finally {
    await redis.close();
    await postgres.close();
  }
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error) => {
    process.stderr.write(`${error instanceof OperatorError ? error.message : (error.stack ?? error)}\n`);
    process.exitCode = 2;
  },
);
