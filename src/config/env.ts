/**
 * Configuration from the environment, parsed once by a pure function. An invalid value is an error, never replaced by the
 * default. All mistakes are reported together.
 */
import * as z from 'zod';
import { type EventType, eventTypes } from '../domain/task.ts';
import {
  type AdminToken,
  type AuthConfig,
  authMistakes,
  authOf,
  Mistake,
  parseAdminToken,
  parseSubnet,
  parseTicketKey,
} from './access.ts';
import { ConfigError } from './errors.ts';
import { limits } from './limits.ts';
import { nearest } from './suggest.ts';
import { parseDatabaseUrl } from './urls/database.ts';
import { parseRedisUrl } from './urls/redis.ts';
import { misspeltNames, unknownNames } from './variable-names.ts';
import { parseWebhookSecret, parseWebhookSecrets, type WebhookSecret } from './webhook-secret.ts';

export interface Config {
  readonly strategy: string;
  readonly lock: string;
  readonly port: number;
  readonly host: string;
  /** Port of administrative routes; null: they are on `port`. */
  readonly adminPort: number | null;
  readonly adminHost: string;
  /** null: the service starts a local Postgres. */
  readonly databaseUrl: string | null;
  /** The URL of the role that migrates; null: the role of `databaseUrl` does. */
  readonly migrationDatabaseUrl: string | null;
  /** null: the service starts a local Redis, unless it runs on Postgres alone. */
  readonly redisUrl: string | null;
  /** REDIS_URL=none: no Redis. */
  readonly postgresAlone: boolean;
  /** Whether a missing Redis may be installed through the package manager. */
  readonly localRedis: 'auto' | 'never';
  /** At least three independent Redis servers, for LOCK=redlock. */
  readonly redlockUrls: readonly string[];
  /** `host:port,host:port`, for LOCK=zookeeper; null: not configured. */
  readonly zookeeperUrl: string | null;
  /** `durable`: 201 after the Postgres commit. `accepted`: 202 after Redis decided. */
  readonly confirm: 'durable' | 'accepted';
  /** Replicas that must have a reservation before a 202, or a lease of LOCK=redis-wait, counts; 0: none. */
  readonly redisWait: number;
  readonly segments: number;
  readonly lockTtlMs: number;
  readonly lockWaitMs: number;
  readonly paymentWindowS: number;
  /** The currency of all prices, by its ISO 4217 code; null: the pages show amounts without one. */
  readonly currency: string | null;
  /** Age at which old rows are deleted, days; 0: never. */
  readonly retentionDays: number;
  /** Receives tasks by POST; `none`: tasks are logged and done, the default with a local Postgres; null: they wait. */
  readonly taskWebhookUrl: string | null;
  /** Signs the tasks; null: they are not signed. */
  readonly taskWebhookSecret: string | null;
  /** The types of events that are published. */
  readonly events: readonly EventType[];
  /** The same for events. */
  readonly eventWebhookUrl: string | null;
  readonly eventWebhookSecret: string | null;
  /** Newest first; empty: payment notifications are an administrative route. */
  readonly paymentWebhookSecrets: readonly WebhookSecret[];
  /** How concurrent task workers avoid the same tasks; `lock`: one claim at a time, under the lock named by LOCK. */
  readonly taskPick: 'skip-locked' | 'lock';
  /** How a repeated award of points is recognized; `lock`: by a read under the lock named by LOCK. */
  readonly pointsGuard: 'unique-key' | 'lock';
  /** Response-time target of an admitted attempt, milliseconds; attempts that cannot meet it are rejected as `busy`. */
  readonly admissionMs: number;
  /** Worker processes that share the port. */
  readonly workers: number;
  /** Who the customers are; null: callers are trusted to name them. */
  readonly auth: AuthConfig | null;
  /** Keys of purchase tickets, newest first; empty: the service generates one. */
  readonly ticketKeys: readonly Buffer[];
  /** What a customer has to prove before a ticket is issued. */
  readonly botCheck: 'none' | 'proof-of-work';
  /** Requests a second of one address, and purchase attempts a second of one customer; 0: no limit. */
  readonly addressRate: number;
  readonly customerRate: number;
  /** Connections of one address at once; 0: no limit. */
  readonly addressConnections: number;
  /** Addresses and subnets of proxies whose X-Forwarded-For is trusted. */
  readonly trustedProxies: readonly string[];
  /** Empty: administrative routes accept loopback clients only. */
  readonly adminTokens: readonly AdminToken[];
  readonly logLevel: string;
  /** Where traces are exported by OTLP over HTTP; null: no tracing. */
  readonly otlpEndpoint: string | null;
  /** Ratio of requests without a `traceparent` that are traced, 0 to 1. */
  readonly traceRatio: number;
}

const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/, `must be an integer from ${min} to ${max}`)
    .transform(Number)
    .refine((n) => n >= min && n <= max, `must be an integer from ${min} to ${max}`);

/** A number from 0 to 1. */
const share = z
  .string()
  .regex(/^(0|1|0?\.\d+|1\.0+)$/, 'must be a number from 0 to 1')
  .transform(Number);

const currencyCode = z
  .string()
  .refine(
    (code) => Intl.supportedValuesOf('currency').includes(code),
    'must be a code of ISO 4217, such as EUR',
  );

/** One of two values, as its literal type. */
const either = <A extends string, B extends string>(a: A, b: B) =>
  z.string().refine((text): text is A | B => text === a || text === b, { error: `must be ${a} or ${b}` });

const oneOf = (names: readonly string[]) =>
  z.string().refine((name) => names.includes(name), {
    error: ({ input }) => {
      const near = nearest(String(input), names);
      const question = near === null ? '' : `; did you mean ${near}?`;
      return `must be one of ${names.join(', ')}${question}`;
    },
  });

/** `all`, or some of the names, separated by commas. */
const someOf = <N extends string>(names: readonly N[]) =>
  z
    .string()
    .transform((text) => (text === 'all' ? names : text.split(',').map((part) => part.trim())))
    .refine((given): given is readonly N[] => given.every((name) => names.includes(name as N)), {
      error: `must be all, or some of ${names.join(', ')}, separated by commas`,
    });

const url = (...protocols: string[]) =>
  z.string().refine((text) => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
    error: `must be a URL starting with ${protocols.map((p) => `${p}//`).join(' or ')}`,
  });

const redlockUrls = z
  .string()
  .transform((text) => text.split(',').map((part) => part.trim()))
  .refine(
    (urls) => urls.length >= 3 && urls.every((one) => url('redis:', 'rediss:').safeParse(one).success),
    { error: 'must be at least three comma-separated redis:// URLs' },
  );

/** Whether what is sent there cannot be read on the way. */
const isPrivate = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname);

/** Encrypted, or on this machine. */
const privateUrl = url('http:', 'https:').refine((text) => !URL.canParse(text) || isPrivate(new URL(text)), {
  error: 'must start with https:// unless its host is loopback',
});

/** @param parse returns what is wrong as a text */
const parsedBy = (parse: (text: string) => unknown) =>
  z.string().check(({ value, issues }) => {
    const result = parse(value);
    if (typeof result === 'string') issues.push({ code: 'custom', message: result, input: value });
  });

/** Where tasks or events are posted, or `none`. */
const receiver = parsedBy(
  (text) => text === NONE || (privateUrl.safeParse(text).error?.issues[0]?.message ?? null),
);

/** Values with commas between them. @param parse returns what is wrong with one of them as a text */
const listOf = <T>(parse: (text: string) => T | Mistake) =>
  z.string().transform((text, { issues }) =>
    text.split(',').map((one) => {
      const result = parse(one.trim());
      if (result instanceof Mistake) issues.push({ code: 'custom', message: result.text, input: text });
      return result as T;
    }),
  );

/** The valid names, passed in by the composition root because configuration must not import the registries. */
export interface Choices {
  readonly strategies: readonly string[];
  readonly locks: readonly string[];
  /** Those that run on Postgres alone. */
  readonly withoutRedis: Pick<Choices, 'strategies' | 'locks'>;
}

const DEFAULTS = {
  withRedis: { strategy: 'lua', lock: 'redis' },
  alone: { strategy: 'group-commit', lock: 'postgres-row' },
} as const;

/**
 * Parses an environment. An empty value counts as unset, as in `STRATEGY= npm start`.
 * @param fileNames the names that the file `.env` has
 * @throws ConfigError with every invalid variable and its valid values, and every misspelt name
 */
export function parseEnv(
  env: Readonly<Record<string, string | undefined>>,
  choices: Choices,
  fileNames: readonly string[] = [],
): Config {
  const given = Object.fromEntries(
    Object.entries(env).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = schema(choices).safeParse(given);
  const mistakes = (parsed.error?.issues ?? []).map((issue) => {
    const name = String(issue.path[0]);
    const shown = SECRET_NAME.test(name) ? '…' : withoutSecrets(given[name] ?? '');
    return `${name}=${JSON.stringify(shown)} ${issue.message}`;
  });
  mistakes.push(...authMistakes(given), ...misspeltNames(env, fileNames, NAMES));
  if (!parsed.success || mistakes.length > 0) throw new ConfigError(mistakes);
  const value = parsed.data;
  const isOpen = value.AUTH === 'jwt';
  const noReceiver = value.DATABASE_URL === undefined ? NONE : null;
  return {
    ...redisOf(value),
    port: value.PORT,
    host: value.HOST,
    adminPort: value.ADMIN_PORT ?? null,
    adminHost: value.ADMIN_HOST ?? value.HOST,
    databaseUrl: value.DATABASE_URL ?? null,
    migrationDatabaseUrl: value.MIGRATION_DATABASE_URL ?? null,
    localRedis: value.LOCAL_REDIS,
    redlockUrls: value.REDLOCK_URLS ?? [],
    zookeeperUrl: value.ZOOKEEPER_URL ?? null,
    confirm: value.CONFIRM,
    redisWait: value.REDIS_WAIT,
    segments: value.SEGMENTS,
    lockTtlMs: value.LOCK_TTL_MS,
    lockWaitMs: value.LOCK_WAIT_MS,
    paymentWindowS: value.PAYMENT_WINDOW_S,
    currency: value.CURRENCY ?? null,
    retentionDays: value.RETENTION_DAYS,
    taskWebhookUrl: value.TASK_WEBHOOK_URL ?? noReceiver,
    taskWebhookSecret: value.TASK_WEBHOOK_SECRET ?? null,
    events: value.EVENTS ?? [],
    eventWebhookUrl: value.EVENT_WEBHOOK_URL ?? noReceiver,
    eventWebhookSecret: value.EVENT_WEBHOOK_SECRET ?? null,
    paymentWebhookSecrets: (value.PAYMENT_WEBHOOK_SECRETS ?? []) as readonly WebhookSecret[],
    taskPick: value.TASK_PICK,
    pointsGuard: value.POINTS_GUARD,
    admissionMs: value.ADMISSION_MS,
    workers: value.WORKERS,
    auth: authOf(value),
    ticketKeys: (value.TICKET_SECRETS ?? []) as readonly Buffer[],
    botCheck: value.BOT_CHECK,
    addressRate: value.ADDRESS_RATE ?? (isOpen ? limits.clients.addressRate : 0),
    customerRate: value.CUSTOMER_RATE ?? (isOpen ? limits.clients.customerRate : 0),
    addressConnections: value.ADDRESS_CONNECTIONS ?? (isOpen ? limits.clients.addressConnections : 0),
    trustedProxies: (value.TRUSTED_PROXIES ?? []) as readonly string[],
    adminTokens: (value.ADMIN_TOKEN ?? []) as readonly AdminToken[],
    logLevel: value.LOG_LEVEL,
    otlpEndpoint: value.OTEL_EXPORTER_OTLP_ENDPOINT ?? null,
    traceRatio: value.OTEL_TRACES_SAMPLER_ARG,
  };
}

type Variables = z.infer<ReturnType<typeof variables>>;

/** Whether there is a Redis, and what depends on it. */
function redisOf({ REDIS_URL, STRATEGY, LOCK }: Variables) {
  const postgresAlone = REDIS_URL === NONE;
  const { strategy, lock } = postgresAlone ? DEFAULTS.alone : DEFAULTS.withRedis;
  const redisUrl = postgresAlone ? null : (REDIS_URL ?? null);
  return { redisUrl, postgresAlone, strategy: STRATEGY ?? strategy, lock: LOCK ?? lock };
}

/** Variables whose values no message shows. */
const SECRET_NAME = /TOKEN|SECRET/;

/** An invalid URL cannot be parsed to remove its secrets, so everything before the last @ is masked, and the query. */
const withoutSecrets = (text: string) => text.replace(/^.*@/s, '…@').replace(/\?.*$/s, '?…');

/** REDIS_URL of a service without Redis; TASK_WEBHOOK_URL of one whose tasks are only logged. */
export const NONE = 'none';

/** The schema that a Postgres URL names; null: none, or the URL is not valid. */
function schemaOf(url = ''): string | null {
  const address = parseDatabaseUrl(url);
  return typeof address === 'string' ? null : address.schema;
}

function schema(choices: Choices) {
  return variables(choices).check(({ value, issues }) => {
    const mistake = (name: keyof typeof value, message: string) =>
      issues.push({ code: 'custom', message, input: value[name], path: [name] });
    const { DATABASE_URL, MIGRATION_DATABASE_URL, PORT, ADMIN_PORT } = value;
    if (MIGRATION_DATABASE_URL !== undefined && DATABASE_URL === undefined)
      mistake('MIGRATION_DATABASE_URL', 'needs DATABASE_URL: a local Postgres has its own roles');
    const schemas = [DATABASE_URL, MIGRATION_DATABASE_URL].map(schemaOf);
    if (MIGRATION_DATABASE_URL !== undefined && schemas[0] !== schemas[1])
      mistake('MIGRATION_DATABASE_URL', 'must name the same schema as DATABASE_URL');
    if (ADMIN_PORT === PORT && PORT !== 0) mistake('ADMIN_PORT', 'must not be PORT');
    if (value.ADMIN_HOST !== undefined && ADMIN_PORT === undefined) mistake('ADMIN_HOST', 'needs ADMIN_PORT');
    if (value.EVENTS !== undefined && (value.EVENT_WEBHOOK_URL ?? NONE) === NONE)
      mistake('EVENTS', 'needs EVENT_WEBHOOK_URL, which receives them');
    if (value.LOCK === 'redis-wait' && value.REDIS_WAIT === 0 && value.REDIS_URL !== NONE)
      mistake('LOCK', 'needs REDIS_WAIT, the number of replicas that must have a lease');
    if (value.REDIS_URL !== NONE) return;
    const { strategies, locks } = choices.withoutRedis;
    const needsRedis = (why: string) => `needs Redis, and there is none: ${why}`;
    if (value.STRATEGY !== undefined && !strategies.includes(value.STRATEGY))
      mistake('STRATEGY', needsRedis(`these decide in Postgres: ${strategies.join(', ')}`));
    if (value.LOCK !== undefined && !locks.includes(value.LOCK))
      mistake('LOCK', needsRedis(`these locks do without: ${locks.join(', ')}`));
    if (value.CONFIRM === 'accepted') mistake('CONFIRM', needsRedis('a 202 follows the reservation there'));
    if (value.REDIS_WAIT > 0) mistake('REDIS_WAIT', needsRedis('it counts replicas of Redis'));
  });
}

function variables(choices: Choices) {
  return z.object({
    STRATEGY: oneOf(choices.strategies).optional(),
    LOCK: oneOf(choices.locks).optional(),
    PORT: integer(0, 65_535).default(3000),
    ADMIN_PORT: integer(0, 65_535).optional(),
    ADMIN_HOST: z.string().optional(),
    HOST: z.string().default('127.0.0.1'),
    DATABASE_URL: parsedBy(parseDatabaseUrl).optional(),
    MIGRATION_DATABASE_URL: parsedBy(parseDatabaseUrl).optional(),
    REDIS_URL: parsedBy((text) => (text === NONE ? null : parseRedisUrl(text))).optional(),
    LOCAL_REDIS: either('auto', 'never').default('auto'),
    REDLOCK_URLS: redlockUrls.optional(),
    ZOOKEEPER_URL: z
      .string()
      .regex(/^[^\s,:/]+:\d{1,5}(,[^\s,:/]+:\d{1,5})*$/, 'must be host:port, or several separated by commas')
      .optional(),
    CONFIRM: either('durable', 'accepted').default('durable'),
    REDIS_WAIT: integer(0, 10).default(0),
    SEGMENTS: integer(1, 10_000).default(100),
    LOCK_TTL_MS: integer(100, 600_000).default(10_000),
    LOCK_WAIT_MS: integer(0, 60_000).default(500),
    PAYMENT_WINDOW_S: integer(1, limits.maxPaymentWindowS).default(900),
    CURRENCY: currencyCode.optional(),
    RETENTION_DAYS: integer(0, limits.retention.maxDays).default(30),
    TASK_WEBHOOK_URL: receiver.optional(),
    TASK_WEBHOOK_SECRET: parsedBy(parseWebhookSecret).optional(),
    EVENTS: someOf(eventTypes).optional(),
    EVENT_WEBHOOK_URL: receiver.optional(),
    EVENT_WEBHOOK_SECRET: parsedBy(parseWebhookSecret).optional(),
    PAYMENT_WEBHOOK_SECRETS: parsedBy(parseWebhookSecrets)
      .transform((text) => parseWebhookSecrets(text))
      .optional(),
    TASK_PICK: either('skip-locked', 'lock').default('skip-locked'),
    POINTS_GUARD: either('unique-key', 'lock').default('unique-key'),
    ADMISSION_MS: integer(20, 60_000).default(100),
    WORKERS: integer(1, 64).default(1),
    AUTH: either('none', 'jwt').default('none'),
    AUTH_JWKS_URL: privateUrl.optional(),
    AUTH_ISSUER: z.string().optional(),
    AUTH_AUDIENCE: z.string().optional(),
    TICKET_SECRETS: listOf(parseTicketKey).optional(),
    BOT_CHECK: either('none', 'proof-of-work').default('none'),
    ADDRESS_RATE: integer(0, 1_000_000).optional(),
    CUSTOMER_RATE: integer(0, 1_000_000).optional(),
    ADDRESS_CONNECTIONS: integer(0, 1_000_000).optional(),
    TRUSTED_PROXIES: listOf(parseSubnet).optional(),
    ADMIN_TOKEN: listOf(parseAdminToken).optional(),
    LOG_LEVEL: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
    OTEL_EXPORTER_OTLP_ENDPOINT: url('http:', 'https:').optional(),
    OTEL_EXPORTER_OTLP_HEADERS: z.string().optional(), // its exporter reads the environment
    OTEL_TRACES_SAMPLER_ARG: share.default(1),
  });
}

const NAMES = Object.keys(
  variables({ strategies: [], locks: [], withoutRedis: { strategies: [], locks: [] } }).shape,
);

/** Names in `.env` that nothing reads, and that are not misspelt: those are mistakes. */
export const unreadNames = (fileNames: readonly string[]): string[] =>
  unknownNames(fileNames, NAMES).filter((name) => !name.startsWith('OTEL_EXPORTER_OTLP_')); // likewise
