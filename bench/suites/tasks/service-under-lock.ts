/** The service, but with one claim of due tasks at a time, under the lock named by LOCK. */
import { parseEnv } from '../../../src/config/env.ts';
import { createLogger } from '../../../src/metrics/logger.ts';
import { choices } from '../../../src/service/core.ts';
import { createService } from '../../../src/service/service.ts';
import { migrateStores } from '../../../src/service/startup.ts';
import { claimsUnderLock } from './claims-under-lock.ts';

const config = parseEnv(process.env, choices);
const { databaseUrl, migrationDatabaseUrl, redisUrl } = config;
const urls = { databaseUrl: databaseUrl!, migrationDatabaseUrl, redisUrl };
const log = await createLogger({ level: config.logLevel, worker: null, terminal: null });
await migrateStores(urls, config, log);
const service = await createService({ config, urls, log, aroundClaims: claimsUnderLock(config) });
process.once('SIGTERM', () => service.close());
const { port } = await service.listen();
log.info({ port }, 'listening');
