/**
 * Configuration from the environment, and from the files that it names, parsed once. An invalid value is an error, never replaced by
 * the default. All mistakes are reported together.
 */
import * as z from 'zod';
import { type EventType, eventTypes } from '../domain/task.ts';
import {
  type AuthConfig,
  adminToken,
  authMistakes,
  paymentSecret,
  subnet,
  ticketKey,
  webhookSecret,
} from './access.ts';
import { ConfigError } from './errors.ts';
import { limits } from './limits.ts';
import { parseDatabaseUrl } from './urls/database.ts';
import { parseRedisUrl } from './urls/redis.ts';
import { fileVariables, valuesOfFiles } from './value-files.ts';
import {
  currencyCode,
  either,
  hostAndPorts,
  integer,
  listOf,
  NONE,
  oneOf,
  parsedBy,
  privateUrl,
  receiver,
  redlockUrls,
  share,
  someOf,
  url,
} from './values.ts';
import { misspeltNames, unknownNames } from './variable-names.ts';

/** The valid names, passed in by the composition root because configuration must not import the registries. */
export interface Choices {
  readonly strategies: readonly string[];
  readonly locks: readonly string[];
  /** Those that run on Postgres alone. */
  readonly withoutRedis: Pick<Choices, 'strategies' | 'locks'>;
}

type Variable = readonly [name: string, valid: z.ZodType<unknown, string>, unset: unknown];

/** Every variable: its property in the configuration, its name, its valid values, and its value when it is not set. */
function variables({ strategies, locks }: Choices) {
  return {
    strategy: ['STRATEGY', oneOf(strategies), null],
    lock: ['LOCK', oneOf(locks), null],
    port: ['PORT', integer(0, 65_535), 3000],
    /** Port of administrative routes; null: they are on `port`. */
    adminPort: ['ADMIN_PORT', integer(0, 65_535), null],
    adminHost: ['ADMIN_HOST', z.string(), null],
    host: ['HOST', z.string(), '127.0.0.1'],
    /** null: the service starts a local Postgres. */
    databaseUrl: ['DATABASE_URL', parsedBy(parseDatabaseUrl), null],
    /** The URL of the role that migrates; null: the role of `databaseUrl` does. */
    migrationDatabaseUrl: ['MIGRATION_DATABASE_URL', parsedBy(parseDatabaseUrl), null],
    /** Further Postgres over which sales are dealt, each a cell: store/postgres/cells.ts. */
    cellDatabaseUrls: ['CELL_DATABASE_URLS', listOf(parsedBy(parseDatabaseUrl)), [] as readonly string[]],
    redisUrl: ['REDIS_URL', parsedBy((text) => text === NONE || parseRedisUrl(text)), null],
    /** Whether a missing Redis may be installed through the package manager. */
    localRedis: ['LOCAL_REDIS', either('auto', 'never'), 'auto'],
    /** Whether a start applies migrations; `never`: it only checks that none is missing. */
    migrate: ['MIGRATE', either('auto', 'never'), 'auto'],
    /** At least three independent Redis servers, for LOCK=redlock. */
    redlockUrls: ['REDLOCK_URLS', redlockUrls, []],
    /** `host:port,host:port`, for LOCK=zookeeper; null: not configured. */
    zookeeperUrl: ['ZOOKEEPER_URL', hostAndPorts, null],
    /** `durable`: 201 after the Postgres commit. `accepted`: 202 after Redis decided. */
    confirm: ['CONFIRM', either('durable', 'accepted'), 'durable'],
    /** Replicas that must have a reservation before a 202, or a lease of LOCK=redis-wait, counts; 0: none. */
    redisWait: ['REDIS_WAIT', integer(0, 10), 0],
    segments: ['SEGMENTS', integer(1, 10_000), 100],
    lockTtlMs: ['LOCK_TTL_MS', integer(100, 600_000), 10_000],
    lockWaitMs: ['LOCK_WAIT_MS', integer(0, 60_000), 500],
    paymentWindowS: ['PAYMENT_WINDOW_S', integer(1, limits.maxPaymentWindowS), 900],
    /** How long after it was placed an order may stay unpaid at most when its deadline is extended, seconds. */
    maxHoldS: ['MAX_HOLD_S', integer(1, limits.maxPaymentWindowS), 3_600],
    /** The currency of sales that name none, by its ISO 4217 code. */
    currency: ['CURRENCY', currencyCode, 'USD'],
    /** Age at which old rows are deleted, days; 0: never. */
    retentionDays: ['RETENTION_DAYS', integer(0, limits.retention.maxDays), 30],
    taskWebhookUrl: ['TASK_WEBHOOK_URL', receiver, null],
    /** Signs the tasks; null: they are not signed. */
    taskWebhookSecret: ['TASK_WEBHOOK_SECRET', webhookSecret, null],
    /** The types of events that are published. */
    events: ['EVENTS', someOf(eventTypes), [] as readonly EventType[]],
    eventWebhookUrl: ['EVENT_WEBHOOK_URL', receiver, null],
    eventWebhookSecret: ['EVENT_WEBHOOK_SECRET', webhookSecret, null],
    /** Newest first; empty: payment notifications are an administrative route. */
    paymentWebhookSecrets: ['PAYMENT_WEBHOOK_SECRETS', listOf(paymentSecret), []],
    /** Response-time target of an admitted attempt, milliseconds; attempts that cannot meet it are rejected as `busy`. */
    admissionMs: ['ADMISSION_MS', integer(20, 60_000), 100],
    /** Worker processes that share the port. */
    workers: ['WORKERS', integer(1, 64), 1],
    /** Time between "not ready" and the close of the port, milliseconds. */
    shutdownDelayMs: ['SHUTDOWN_DELAY_MS', integer(0, limits.maxShutdownDelayMs), 0],
    auth: ['AUTH', either('none', 'jwt'), 'none'],
    authJwksUrl: ['AUTH_JWKS_URL', privateUrl, null],
    authIssuer: ['AUTH_ISSUER', z.string(), null],
    authAudience: ['AUTH_AUDIENCE', z.string(), null],
    /** Keys of purchase tickets, newest first; empty: the service generates one. */
    ticketKeys: ['TICKET_SECRETS', listOf(ticketKey), []],
    /** What a customer has to prove before a ticket is issued. */
    botCheck: ['BOT_CHECK', either('none', 'proof-of-work'), 'none'],
    addressRate: ['ADDRESS_RATE', integer(0, 1_000_000), null],
    customerRate: ['CUSTOMER_RATE', integer(0, 1_000_000), null],
    addressConnections: ['ADDRESS_CONNECTIONS', integer(0, 1_000_000), null],
    /** Addresses and subnets of proxies whose X-Forwarded-For is trusted. */
    trustedProxies: ['TRUSTED_PROXIES', listOf(subnet), []],
    /** Empty: administrative routes accept loopback clients only. */
    adminTokens: ['ADMIN_TOKEN', listOf(adminToken), []],
    logLevel: ['LOG_LEVEL', oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']), 'info'],
    /** Where traces are exported by OTLP over HTTP; null: no tracing. */
    otlpEndpoint: ['OTEL_EXPORTER_OTLP_ENDPOINT', url('http:', 'https:'), null],
    /** `name=value,name=value`: headers of each export. */
    otlpHeaders: ['OTEL_EXPORTER_OTLP_HEADERS', z.string(), null],
    /** Ratio of requests without a `traceparent` that are traced, 0 to 1. */
    traceRatio: ['OTEL_TRACES_SAMPLER_ARG', share, 1],
  } as const satisfies Record<string, Variable>;
}

type Variables = ReturnType<typeof variables>;
/** The value of each variable by itself. */
type Values = {
  readonly [Property in keyof Variables]: z.output<Variables[Property][1]> | Variables[Property][2];
};
/** Undefined: the value is invalid. */
type Parsed = { readonly [Property in keyof Values]: Values[Property] | undefined };
export type Config = Readonly<ReturnType<typeof configOf>> & {
  /** The variables whose values came from files, as they would be in the environment. */
  readonly fromFiles: Readonly<Record<string, string>>;
};

/**
 * Parses an environment, and reads the files that it names. An empty value counts as unset, as in `STRATEGY= npm start`.
 * @param fileNames the names that the file `.env` has
 * @throws ConfigError with every invalid variable and its valid values, and every misspelt name
 */
export function parseEnv(
  env: Readonly<Record<string, string | undefined>>,
  choices: Choices,
  fileNames: readonly string[] = [],
): Config {
  const notEmpty = Object.fromEntries(Object.entries(env).filter(([, value]) => value));
  const mistakes = new Set<string>();
  const fromFiles = valuesOfFiles(notEmpty, variableNames, (mistake) => mistakes.add(mistake));
  const given = { ...notEmpty, ...fromFiles };
  const reject = (name: string, message: string) => {
    const shown = SECRET_NAME.test(name) ? '…' : withoutSecrets(given[name] ?? '');
    const source = name in fromFiles ? ` in ${notEmpty[`${name}_FILE`]}` : '';
    mistakes.add(`${name}=${JSON.stringify(shown)}${source} ${message}`);
  };
  const table = variables(choices);
  const values = Object.entries<Variable>(table).map(([property, [name, valid, unset]]) => {
    if (given[name] === undefined) return [property, unset];
    if (given[name] === '') return [property, undefined]; // its file cannot be used
    const { data, error } = valid.safeParse(given[name]);
    for (const { message } of error?.issues ?? []) reject(name, message);
    return [property, data];
  });
  const parsed: Parsed = Object.fromEntries(values);
  checkTogether(parsed, choices.withoutRedis, (property, message) => reject(table[property][0], message));
  for (const mistake of authMistakes(given)) mistakes.add(mistake);
  for (const mistake of misspeltNames(env, fileNames, knownNames)) mistakes.add(mistake);
  if (mistakes.size > 0) throw new ConfigError([...mistakes]);
  return { ...configOf(parsed as Values, choices), fromFiles };
}

/** Variables whose values no message shows. */
const SECRET_NAME = /TOKEN|SECRET/;

/** An invalid URL cannot be parsed to remove its secrets, so everything before the last @ is masked, and the query. */
const withoutSecrets = (text: string) => text.replace(/^.*@/s, '…@').replace(/\?.*$/s, '?…');

/** Reports values that are valid by themselves and do not go together. */
function checkTogether(
  values: Parsed,
  withoutRedis: Choices['withoutRedis'],
  mistake: (property: keyof Values, message: string) => void,
): void {
  const { lock, port, adminPort, adminHost, databaseUrl, migrationDatabaseUrl, eventWebhookUrl } = values;
  const isGiven = <T>(value: T | null | undefined): value is T => value !== undefined && value !== null;
  if (isGiven(migrationDatabaseUrl) && databaseUrl === null)
    mistake('migrationDatabaseUrl', 'needs DATABASE_URL: a local Postgres has its own roles');
  if (isGiven(migrationDatabaseUrl) && databaseUrl !== undefined)
    if (schemaOf(databaseUrl) !== schemaOf(migrationDatabaseUrl))
      mistake('migrationDatabaseUrl', 'must name the same schema as DATABASE_URL');
  if (isGiven(adminPort) && adminPort === port && port !== 0) mistake('adminPort', 'must not be PORT');
  if (isGiven(adminHost) && adminPort === null) mistake('adminHost', 'needs ADMIN_PORT');
  if (values.events?.length !== 0 && (eventWebhookUrl === null || eventWebhookUrl === NONE))
    mistake('events', 'needs EVENT_WEBHOOK_URL, which receives them');
  if (lock === 'redis-wait' && values.redisWait === 0 && values.redisUrl !== NONE)
    mistake('lock', 'needs REDIS_WAIT, the number of replicas that must have a lease');
  if (values.cellDatabaseUrls && values.cellDatabaseUrls.length > 0) {
    if (databaseUrl === null) mistake('cellDatabaseUrls', 'needs DATABASE_URL, the first Postgres');
    if ((values.redisUrl ?? NONE) !== NONE || needsOfRedis(values, withoutRedis).length > 0)
      mistake(
        'cellDatabaseUrls',
        'needs a strategy that decides in Postgres, and no REDIS_URL: what Redis has belongs to one Postgres',
      );
  }
  if (values.redisUrl !== NONE) return;
  for (const [property, why] of needsOfRedis(values, withoutRedis))
    mistake(property, `needs Redis, and there is none: ${why}`);
}

type Need = readonly [property: 'strategy' | 'lock' | 'confirm' | 'redisWait', why: string];

/** What needs Redis, and why. */
function needsOfRedis(
  { strategy, lock, confirm, redisWait }: Parsed,
  { strategies, locks }: Choices['withoutRedis'],
): readonly Need[] {
  const needs: Need[] = [];
  if (strategy && !strategies.includes(strategy))
    needs.push(['strategy', `these decide in Postgres: ${strategies.join(', ')}`]);
  if (lock && !locks.includes(lock)) needs.push(['lock', `these locks do without: ${locks.join(', ')}`]);
  if (confirm === 'accepted') needs.push(['confirm', 'a 202 follows the reservation there']);
  if (redisWait) needs.push(['redisWait', 'it counts replicas of Redis']);
  return needs;
}

/** The schema that a Postgres URL names; null: none. */
function schemaOf(url: string | null): string | null {
  const address = parseDatabaseUrl(url ?? '');
  return typeof address === 'string' ? null : address.schema;
}

const DEFAULTS = {
  withRedis: { strategy: 'lua', lock: 'redis' },
  alone: { strategy: 'group-commit', lock: 'postgres-row' },
} as const;
const NO_LIMITS = { addressRate: 0, customerRate: 0, addressConnections: 0 };

/** The configuration: valid values, with the defaults that depend on other values. */
function configOf(given: Values, choices: Choices) {
  const { authJwksUrl, authIssuer, authAudience, ...values } = given;
  const { redisUrl, databaseUrl, host } = values;
  const needs = redisUrl === null ? needsOfRedis(given, choices.withoutRedis) : [];
  const postgresAlone = redisUrl === NONE || (redisUrl === null && needs.length === 0);
  const { strategy, lock } = postgresAlone ? DEFAULTS.alone : DEFAULTS.withRedis;
  const auth: AuthConfig | null =
    values.auth === 'none' ? null : { jwksUrl: authJwksUrl!, issuer: authIssuer!, audience: authAudience! };
  const { addressRate, customerRate, addressConnections } = auth === null ? NO_LIMITS : limits.clients;
  const noReceiver = databaseUrl === null ? NONE : null;
  return {
    ...values,
    strategy: values.strategy ?? strategy,
    lock: values.lock ?? lock,
    adminHost: values.adminHost ?? host,
    /** null: the service starts a local Redis, unless it runs on Postgres alone. */
    redisUrl: postgresAlone ? null : redisUrl,
    /** No Redis: nothing needs it, or REDIS_URL=none. */
    postgresAlone,
    /** The settings for which the service starts a local Redis, as `STRATEGY=lua`. */
    localRedisFor: needs.map(([property]) => `${variables(choices)[property][0]}=${given[property]}`),
    /** Receives tasks by POST; `none`: tasks are logged and done, the default with a local Postgres; null: they wait. */
    taskWebhookUrl: values.taskWebhookUrl ?? noReceiver,
    /** The same for events. */
    eventWebhookUrl: values.eventWebhookUrl ?? noReceiver,
    /** Who the customers are; null: callers are trusted to name them. */
    auth,
    /** Requests a second of one address, and purchase attempts a second of one customer; 0: no limit. */
    addressRate: values.addressRate ?? addressRate,
    customerRate: values.customerRate ?? customerRate,
    /** Connections of one address at once; 0: no limit. */
    addressConnections: values.addressConnections ?? addressConnections,
  };
}

/** The names of all variables. */
export const variableNames = Object.values<Variable>(
  variables({ strategies: [], locks: [], withoutRedis: { strategies: [], locks: [] } }),
).map(([name]) => name);

/** With those that name files. */
const knownNames = [...variableNames, ...fileVariables(variableNames)];

/** Names in `.env` that nothing reads, and that are not misspelt: those are mistakes. */
export const unreadNames = (fileNames: readonly string[]): string[] =>
  unknownNames(fileNames, knownNames).filter((name) => !name.startsWith('OTEL_EXPORTER_OTLP_')); // read by the exporter
