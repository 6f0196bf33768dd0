import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parseEnv, unreadNames, variableNames } from '../../src/config/env.ts';
import { ConfigError } from '../../src/config/errors.ts';
import { COMPOSE_VARIABLES } from '../../src/config/variable-names.ts';
import { choices } from '../../src/service/core.ts';

type Env = Record<string, string>;

const problemsOf = (env: Env, inFile: readonly string[] = []) => {
  try {
    parseEnv(env, choices, inFile);
    return [];
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as ConfigError).problems;
  }
};
const secretOf = (bytes: number) => `whsec_${Buffer.alloc(bytes, 's').toString('base64')}`;
const secret = secretOf(24);
const [newer, older] = ['n', 'o'].map((letter) => Buffer.alloc(32, letter)) as [Buffer, Buffer];
const issuer = { AUTH_JWKS_URL: 'https://id.example/jwks', AUTH_ISSUER: 'https://id.example' };
const open = { HOST: '0.0.0.0', AUTH: 'jwt', ...issuer, AUTH_AUDIENCE: 'shop' };
const DATABASE_URL = 'postgresql://db/shop';
const MIGRATION_DATABASE_URL = 'postgresql://owner:secret@db/shop';
const EVENT_WEBHOOK_URL = 'https://shop.example/events';
const alone = { postgresAlone: true, redisUrl: null };

it.each<[Env, object]>([
  [
    { STRATEGY: '', DATABASE_URL: '' },
    { strategy: 'group-commit', databaseUrl: null },
  ], // empty: absent
  [{ OTEL_TRACES_SAMPLER_ARG: '.5' }, { traceRatio: 0.5 }],
  [
    { EVENTS: 'order.paid, sale.sold-out', EVENT_WEBHOOK_URL },
    { events: ['order.paid', 'sale.sold-out'], eventWebhookUrl: EVENT_WEBHOOK_URL },
  ],
  [{ EVENTS: 'all', EVENT_WEBHOOK_URL }, { events: { length: 10 } }],
  [{ DATABASE_URL, MIGRATION_DATABASE_URL }, { migrationDatabaseUrl: MIGRATION_DATABASE_URL }],
  [
    { DATABASE_URL, CELL_DATABASE_URLS: `${DATABASE_URL}2, ${DATABASE_URL}3` },
    { cellDatabaseUrls: { length: 2 } },
  ],
  [
    { PAYMENT_WEBHOOK_SECRETS: `${secret}, stripe:${secret}`, TASK_WEBHOOK_SECRET: secret },
    {
      paymentWebhookSecrets: [
        { provider: null, secret },
        { provider: 'stripe', secret },
      ],
      taskWebhookSecret: secret,
    },
  ],
  [{ HOST: '127.0.0.2' }, { auth: null }],
  [{ HOST: '::' }, { host: '::' }],
  [
    open,
    {
      auth: { jwksUrl: issuer.AUTH_JWKS_URL, issuer: issuer.AUTH_ISSUER, audience: 'shop' },
      ...{ addressRate: 100, customerRate: 5 },
    },
  ],
  [
    { HOST: '::1', ADMIN_PORT: '3100' },
    { adminPort: 3100, adminHost: '::1' },
  ],
  [
    {
      TICKET_SECRETS: `${newer.toString('base64')}, ${older.toString('base64')}`,
      TRUSTED_PROXIES: '10.0.0.0/8,2001:db8::1',
      ADMIN_TOKEN: 'ann:0123456789abcdef,fedcba9876543210',
    },
    {
      ticketKeys: [newer, older],
      trustedProxies: ['10.0.0.0/8', '2001:db8::1'],
      adminTokens: [
        { name: 'ann', token: '0123456789abcdef' },
        { name: 'admin', token: 'fedcba9876543210' },
      ],
    },
  ],
  [{ TASK_WEBHOOK_URL: 'http://[::1]/x' }, { taskWebhookUrl: 'http://[::1]/x' }],
  // Tasks wait for a receiver, except those of a local Postgres and with `none`.
  [{}, { taskWebhookUrl: 'none', eventWebhookUrl: 'none' }],
  [{ DATABASE_URL }, { taskWebhookUrl: null, eventWebhookUrl: null }],
  [
    { DATABASE_URL, TASK_WEBHOOK_URL: 'none' },
    { taskWebhookUrl: 'none', eventWebhookUrl: null },
  ],
  // Only what needs Redis gets one.
  [{}, { ...alone, strategy: 'group-commit', lock: 'postgres-row' }],
  [{ STRATEGY: 'for-update' }, { ...alone, strategy: 'for-update' }],
  [{ REDIS_URL: 'none' }, { ...alone, strategy: 'group-commit', lock: 'postgres-row' }],
  [{ REDIS_URL: 'redis://cache' }, { strategy: 'lua', lock: 'redis', localRedisFor: [] }],
  [{ STRATEGY: 'lua' }, { postgresAlone: false, redisUrl: null, localRedisFor: ['STRATEGY=lua'] }],
  [{ LOCK: 'redis-fair' }, { postgresAlone: false, strategy: 'lua', localRedisFor: ['LOCK=redis-fair'] }],
  [
    { CONFIRM: 'accepted', REDIS_WAIT: '1' },
    { strategy: 'lua', localRedisFor: ['CONFIRM=accepted', 'REDIS_WAIT=1'] },
  ],
  [
    { REDIS_URL: 'none', STRATEGY: 'skip-locked', LOCK: 'zookeeper' },
    { ...alone, strategy: 'skip-locked', lock: 'zookeeper' },
  ],
])('%j is valid', (env, expected) => {
  const host = env.HOST === '::' ? { ...env, AUTH: 'none' } : env;
  expect(parseEnv(host, choices)).toMatchObject(expected);
});

it.each<[Env, ...string[]]>([
  [{ OTEL_TRACES_SAMPLER_ARG: '1.5' }, 'OTEL_TRACES_SAMPLER_ARG="1.5" must be a number from 0 to 1'],
  [{ EVENTS: 'all', EVENT_WEBHOOK_URL: 'none' }, 'EVENTS="all" needs EVENT_WEBHOOK_URL, which receives them'],
  [{ EVENTS: 'all,order.paid', EVENT_WEBHOOK_URL }, 'must be all, or some of order.placed, '],
  [{ MIGRATION_DATABASE_URL }, 'MIGRATION_DATABASE_URL="…@db/shop" needs DATABASE_URL: a local Postgres'],
  [{ DATABASE_URL, MIGRATION_DATABASE_URL: 'db' }, 'MIGRATION_DATABASE_URL='],
  [{ DATABASE_URL: `${DATABASE_URL}?schema=a`, MIGRATION_DATABASE_URL }, 'must name the same schema as'],
  [
    { CELL_DATABASE_URLS: DATABASE_URL },
    'CELL_DATABASE_URLS="postgresql://db/shop" needs DATABASE_URL, the first',
  ],
  [
    { DATABASE_URL, CELL_DATABASE_URLS: 'postgresql://u:hunter2@db,redis://db' },
    'CELL_DATABASE_URLS="…@db,redis://db"',
  ],
  ...[{ REDIS_URL: 'redis://cache' }, { STRATEGY: 'lua' }, { CONFIRM: 'accepted' }].map(
    (env): [Env, string] => [
      { DATABASE_URL, CELL_DATABASE_URLS: MIGRATION_DATABASE_URL, ...env },
      'CELL_DATABASE_URLS="…@db/shop" needs a strategy that decides in Postgres, and no REDIS_URL: what Redis has',
    ],
  ),
  [{ CURRENCY: 'XYZ' }, 'must be a code of ISO 4217'],
  [
    { PAYMENT_WEBHOOK_SECRETS: secretOf(23), ADMIN_TOKEN: 'short' },
    'PAYMENT_WEBHOOK_SECRETS="…" must be whsec_',
    'ADMIN_TOKEN="…" must be tokens',
  ],
  [{ PAYMENT_WEBHOOK_SECRETS: `Stripe:${secret}` }, 'must be whsec_'],
  [{ TASK_WEBHOOK_SECRET: `stripe:${secret}` }, 'TASK_WEBHOOK_SECRET="…" must be whsec_'],
  [{ TASK_WEBHOOK_URL: 'ftp://a.example/in?key=hunter2' }, 'TASK_WEBHOOK_URL="ftp://a.example/in?…"'],
  [{ TASK_WEBHOOK_URL: 'ftp://ann:pass/word@host/x' }, 'TASK_WEBHOOK_URL="…@host/x" must be a URL starting'],
  [{ TASK_WEBHOOK_URL: 'http://127.attacker.example/x' }, 'must start with https:// unless its host is'],
  [{ HOST: '0.0.0.0' }, 'needs AUTH: with AUTH=jwt'],
  [{ HOST: '127.0.0.1.example' }, 'needs AUTH: with AUTH=jwt'],
  [{ ADMIN_PORT: '3100', ADMIN_HOST: '::' }, 'ADMIN_HOST="::" needs AUTH'],
  [{ ADMIN_PORT: '3000' }, 'ADMIN_PORT="3000" must not be PORT'],
  [{ AUTH: 'jwt', ...issuer }, 'AUTH_AUDIENCE is missing: AUTH=jwt needs AUTH_JWKS_URL, AUTH_ISSUER, AUTH_'],
  [{ ...open, AUTH_JWKS_URL: 'http://id.example/jwks' }, 'AUTH_JWKS_URL='],
  [
    { TICKET_SECRETS: 'c2hvcnQ=', TRUSTED_PROXIES: '10.0.0.0/33', ADMIN_TOKEN: 'Ann:short' },
    ...['TICKET_SECRETS=', 'TRUSTED_PROXIES=', 'ADMIN_TOKEN='],
  ],
  [
    { STRATEGY: 'luaa', PORT: '70000', DATABASE_URL: 'mysql://x', CONFIRM: 'maybe' },
    'STRATEGY="luaa" must be one of unsafe, global-lock',
    'PORT="70000" must be an integer from 0 to 65535',
    ...['DATABASE_URL=', 'CONFIRM='],
  ],
  [{ STRATEGY: 'GROUP_COMMIT' }, 'did you mean group-commit?'],
  [{ LOCK: 'redis-wait', REDIS_WAIT: '0' }, 'LOCK="redis-wait" needs REDIS_WAIT'],
  [
    { REDIS_URL: 'none', STRATEGY: 'lua', LOCK: 'redis', CONFIRM: 'accepted', REDIS_WAIT: '1' },
    'STRATEGY="lua" needs Redis, and there is none: these decide in Postgres: for-update, for-update-prisma, unique-key, conditional-update, optimistic, advisory-lock, skip-locked, group-commit',
    'LOCK="redis" needs Redis, and there is none: these locks do without: redlock, zookeeper, postgres-row, postgres-advisory',
    'CONFIRM="accepted" needs Redis, and there is none: a 202 follows the reservation there',
    'REDIS_WAIT="1" needs Redis, and there is none: it counts replicas of Redis',
  ],
  [{ SEGMENTS: '12abc' }, 'SEGMENTS='],
  [{ SEGMENTS: '-1' }, 'SEGMENTS='],
])('%j has as many mistakes as sentences, each of them named', (env, ...sentences) => {
  const found = problemsOf(env);
  expect(found).toEqual(sentences.map((sentence) => expect.stringContaining(sentence)));
  expect(found.join()).not.toMatch(/hunter2|word|secret|whsec_[A-Za-z]{9}/);
});

it.each([
  ['STRATEGI', [], 'STRATEGI is unknown; did you mean STRATEGY?'],
  ['workers', [], 'workers is unknown; did you mean WORKERS?'],
  ['STRATEGI', ['STRATEGI'], 'STRATEGI in .env is unknown; did you mean STRATEGY?'],
  ['PORTS', ['PORTS'], 'PORTS in .env is unknown; did you mean PORT?'],
  ['PORTS', [], null],
  ['SHOP_NAME', ['SHOP_NAME'], null],
])('reports the name %s, with %j in .env: %s', (name, inFile, problem) => {
  const expected = problem === null ? [] : [expect.stringContaining(problem)];
  expect(problemsOf({ [name]: 'lua' }, inFile)).toEqual(expected);
  // If the right name is set too, the other one belongs to another program.
  const right = { STRATEGY: '', DATABASE_URL: '', WORKERS: '' };
  if (inFile.length === 0)
    expect(problemsOf({ ...(process.env as Env), [name]: 'lua', ...right })).toEqual([]);
});

describe('a variable in a file', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'stampede-test-env-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const file = (name: string, content: string): string => {
    writeFileSync(path.join(folder, name), content);
    return path.join(folder, name);
  };
  const isSecret = /URL|SECRET|TOKEN|OTLP_(ENDPOINT|HEADERS)/;

  it('is as in the environment: every secret and URL, without one newline at the end', () => {
    const values = {
      ...{ DATABASE_URL, MIGRATION_DATABASE_URL, REDIS_URL: 'none', ZOOKEEPER_URL: 'zk:2181' },
      CELL_DATABASE_URLS: 'postgresql://db2/shop,postgresql://db3/shop',
      REDLOCK_URLS: 'redis://a,redis://b,redis://c',
      AUTH_JWKS_URL: issuer.AUTH_JWKS_URL,
      ...{ TASK_WEBHOOK_URL: EVENT_WEBHOOK_URL, TASK_WEBHOOK_SECRET: secret },
      ...{ EVENT_WEBHOOK_URL, EVENT_WEBHOOK_SECRET: secret, PAYMENT_WEBHOOK_SECRETS: `stripe:${secret}` },
      ...{ TICKET_SECRETS: newer.toString('base64'), ADMIN_TOKEN: 'ann:0123456789abcdef' },
      ...{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://otel:4318', OTEL_EXPORTER_OTLP_HEADERS: 'key=hunter2' },
    };
    expect(Object.keys(values).sort()).toEqual(variableNames.filter((name) => isSecret.test(name)).sort());
    const files = Object.entries(values).map(([name, value], n) => [
      `${name}_FILE`,
      file(name, value + ['', '\n', '\r\n'][n % 3]),
    ]);
    const found = parseEnv(Object.fromEntries(files), choices);
    expect(found).toEqual({ ...parseEnv(values, choices), fromFiles: values });
    expect(unreadNames([...files.map(([name]) => name!), 'PORT_FILE'])).toEqual(['PORT_FILE']);
    expect(problemsOf({ DATABASE_URI_FILE: 'x' })).toEqual([
      expect.stringContaining('did you mean DATABASE_URL_FILE?'),
    ]);
  });

  it('a file that cannot be used is a mistake that names it and what to do', () => {
    const missing = path.join(folder, 'missing');
    const problems = problemsOf({
      ...{ DATABASE_URL_FILE: missing, MIGRATION_DATABASE_URL, AUTH: 'jwt', ...issuer, AUTH_AUDIENCE: 'a' },
      ...{ REDIS_URL_FILE: folder, ADMIN_TOKEN_FILE: file('empty', '\n'), STRATEGY: 'luaa' },
      ...{ TASK_WEBHOOK_URL_FILE: file('url', 'ftp://ann:hunter2@a.example'), AUTH_JWKS_URL: '' },
      ...{ AUTH_JWKS_URL_FILE: missing, TASK_WEBHOOK_SECRET: secret, TASK_WEBHOOK_SECRET_FILE: missing },
    });
    const sentences = [
      `DATABASE_URL_FILE="${missing}" cannot be used: there is no such file: write the value to it`,
      `REDIS_URL_FILE="${folder}" cannot be used: it is a folder: name the file in it`,
      'TASK_WEBHOOK_SECRET and TASK_WEBHOOK_SECRET_FILE are both set: remove one of them',
      `AUTH_JWKS_URL_FILE="${missing}" cannot be used: there is no such file`,
      `ADMIN_TOKEN_FILE="${folder}/empty" cannot be used: it is empty: write the value to it`,
      'STRATEGY="luaa" must be one of',
      `TASK_WEBHOOK_URL="…@a.example" in ${folder}/url must be a URL starting with`,
    ];
    expect(problems).toEqual(sentences.map((sentence) => expect.stringContaining(sentence)));
    expect(problems.join()).not.toMatch(/hunter2|whsec_/);
  });

  it.skipIf(process.getuid?.() === 0)('a file of another user is one, too', () => {
    const closed = file('closed', secret);
    chmodSync(closed, 0);
    expect(problemsOf({ TASK_WEBHOOK_SECRET_FILE: closed })).toEqual([
      expect.stringMatching(/user \d+ may not read it: change its owner or its mode/),
    ]);
  });
});

describe('files of the repository', () => {
  const text = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');

  it('the variables that docker-compose.yml and scripts/secrets.sh use in .env are known', () => {
    const names = [...text('docker-compose.yml').matchAll(/\$\{([A-Z_]+)/g)].map((match) => match[1]!);
    names.push(...[...text('scripts/secrets.sh').matchAll(/\b[A-Z]+_[A-Z_]+\b/g)].map((match) => match[0]));
    const given = [...names, 'COMPOSE_FILE', 'OTEL_EXPORTER_OTLP_HEADERS', 'SHOP_NAME'];
    expect(unreadNames(given)).toEqual(['SHOP_NAME']);
    for (const name of COMPOSE_VARIABLES) expect(names).toContain(name);
  });

  it('.env.example has every variable, with its default: read as it is, it changes nothing', () => {
    const example = text('.env.example');
    const listed = [...example.matchAll(/^#? ?([A-Z_]+)=/gm)].map((match) => match[1]!);
    expect(listed.sort()).toEqual([...variableNames].sort());
    const pairs = [...example.matchAll(/^# ([A-Z_]+)=(.*)$/gm)].map((m) => [m[1]!, m[2]!]);
    expect(parseEnv(Object.fromEntries(pairs), choices)).toEqual(parseEnv({}, choices));
  });
});
