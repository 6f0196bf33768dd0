import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseEnv, unreadNames } from '../../src/config/env.ts';
import { ConfigError } from '../../src/config/errors.ts';
import { COMPOSE_VARIABLES } from '../../src/config/variable-names.ts';
import { choices } from '../../src/service/core.ts';

const problemsOf = (env: Record<string, string>) => {
  try {
    parseEnv(env, choices);
    return [];
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as ConfigError).problems;
  }
};

describe('the configuration', () => {
  it('has a default for everything', () => {
    expect(parseEnv({}, choices)).toEqual({
      strategy: 'lua',
      lock: 'redis',
      port: 3000,
      host: '127.0.0.1',
      adminPort: null,
      adminHost: '127.0.0.1',
      databaseUrl: null,
      migrationDatabaseUrl: null,
      redisUrl: null,
      postgresAlone: false,
      localRedis: 'auto',
      redlockUrls: [],
      zookeeperUrl: null,
      confirm: 'durable',
      redisWait: 0,
      segments: 100,
      lockTtlMs: 10_000,
      lockWaitMs: 500,
      paymentWindowS: 900,
      currency: null,
      retentionDays: 30,
      taskWebhookUrl: 'none',
      taskWebhookSecret: null,
      events: [],
      eventWebhookUrl: 'none',
      eventWebhookSecret: null,
      paymentWebhookSecrets: [],
      taskPick: 'skip-locked',
      pointsGuard: 'unique-key',
      admissionMs: 100,
      workers: 1,
      auth: null,
      ticketKeys: [],
      botCheck: 'none',
      addressRate: 0,
      customerRate: 0,
      addressConnections: 0,
      trustedProxies: [],
      adminTokens: [],
      logLevel: 'info',
      otlpEndpoint: null,
      traceRatio: 1,
    });
  });

  it('accepts a ratio from 0 to 1', () => {
    for (const [text, traceRatio] of Object.entries({ 0: 0, 1: 1, '0.01': 0.01, '.5': 0.5 }))
      expect(parseEnv({ OTEL_TRACES_SAMPLER_ARG: text }, choices)).toMatchObject({ traceRatio });
    for (const text of ['2', '-0.1', '1.5', '1e-3', 'half'])
      expect(problemsOf({ OTEL_TRACES_SAMPLER_ARG: text })).toEqual([
        `OTEL_TRACES_SAMPLER_ARG="${text}" must be a number from 0 to 1`,
      ]);
  });

  it('takes some types of events, or all, and where they go', () => {
    const at = { EVENT_WEBHOOK_URL: 'https://shop.example/events' };
    expect(parseEnv({ EVENTS: 'order.paid, sale.sold-out', ...at }, choices)).toMatchObject({
      events: ['order.paid', 'sale.sold-out'],
      eventWebhookUrl: at.EVENT_WEBHOOK_URL,
    });
    expect(parseEnv({ EVENTS: 'all', ...at }, choices).events).toHaveLength(7);
    expect(problemsOf({ EVENTS: 'order.paid' })[0]).toContain('needs EVENT_WEBHOOK_URL');
    for (const EVENTS of ['order.payed', 'all,order.paid', 'order.paid,'])
      expect(problemsOf({ EVENTS, ...at })[0]).toContain('must be all, or some of order.placed, ');
  });

  it('counts an empty value as absent', () => {
    expect(parseEnv({ STRATEGY: '', DATABASE_URL: '' }, choices)).toMatchObject({
      strategy: 'lua',
      databaseUrl: null,
    });
  });

  it('takes a role that migrates beside DATABASE_URL only', () => {
    const MIGRATION_DATABASE_URL = 'postgresql://owner:secret@db/shop';
    const both = parseEnv(
      { DATABASE_URL: 'postgresql://service:x@db/shop', MIGRATION_DATABASE_URL },
      choices,
    );
    expect(both.migrationDatabaseUrl).toBe(MIGRATION_DATABASE_URL);
    expect(problemsOf({ MIGRATION_DATABASE_URL })).toEqual([
      'MIGRATION_DATABASE_URL="…@db/shop" needs DATABASE_URL: a local Postgres has its own roles',
    ]);
    expect(problemsOf({ DATABASE_URL: 'postgresql://db/shop', MIGRATION_DATABASE_URL: 'db' })).toHaveLength(
      1,
    );
    expect(problemsOf({ DATABASE_URL: 'postgresql://db/shop?schema=a', MIGRATION_DATABASE_URL })).toEqual([
      'MIGRATION_DATABASE_URL="…@db/shop" must name the same schema as DATABASE_URL',
    ]);
  });

  it('takes the code of a currency', () => {
    expect(parseEnv({ CURRENCY: 'JPY' }, choices).currency).toBe('JPY');
    for (const text of ['jpy', '€', 'XYZ'])
      expect(problemsOf({ CURRENCY: text })).toEqual([
        `CURRENCY="${text}" must be a code of ISO 4217, such as EUR`,
      ]);
  });

  it('accepts auto and never for LOCAL_REDIS', () => {
    expect(parseEnv({ LOCAL_REDIS: 'never' }, choices).localRedis).toBe('never');
    expect(problemsOf({ LOCAL_REDIS: 'no' })).toEqual(['LOCAL_REDIS="no" must be auto or never']);
  });

  it('reads webhook secrets, and shows none that it rejects', () => {
    const secret = `whsec_${Buffer.alloc(24, 's').toString('base64')}`;
    const given = { PAYMENT_WEBHOOK_SECRETS: `${secret}, stripe:${secret}`, TASK_WEBHOOK_SECRET: secret };
    expect(parseEnv(given, choices)).toMatchObject({
      paymentWebhookSecrets: [
        { provider: null, secret },
        { provider: 'stripe', secret },
      ],
      taskWebhookSecret: secret,
    });
    const short = `whsec_${Buffer.alloc(23, 's').toString('base64')}`;
    for (const wrong of [short, secret.slice(6), `Stripe:${secret}`, `${secret},`]) {
      const problems = problemsOf({ PAYMENT_WEBHOOK_SECRETS: wrong, ADMIN_TOKEN: 'short' });
      expect(problems).toHaveLength(2);
      expect(problems[0]).toContain('PAYMENT_WEBHOOK_SECRETS="…" must be whsec_');
      expect(problems[1]).toContain('ADMIN_TOKEN="…" must be tokens');
    }
    for (const name of ['TASK_WEBHOOK_SECRET', 'EVENT_WEBHOOK_SECRET'])
      expect(problemsOf({ [name]: `stripe:${secret}` })[0]).toContain(`${name}="…" must be whsec_`);
    const [inQuery] = problemsOf({ TASK_WEBHOOK_URL: 'ftp://hooks.example/in?key=hunter2' });
    expect(inQuery).toContain('TASK_WEBHOOK_URL="ftp://hooks.example/in?…"');
  });

  it('needs AUTH on an address that others reach, and the issuer with AUTH=jwt', () => {
    for (const HOST of ['localhost', '127.0.0.2', '::1']) expect(problemsOf({ HOST })).toEqual([]);
    for (const HOST of ['0.0.0.0', '::', '192.0.2.1', '127.0.0.1.example']) {
      expect(problemsOf({ HOST })).toEqual([expect.stringContaining('needs AUTH: with AUTH=jwt')]);
      expect(problemsOf({ HOST, AUTH: 'none' })).toEqual([]);
      const needsAuth = [expect.stringContaining(`ADMIN_HOST=${JSON.stringify(HOST)} needs AUTH`)];
      expect(problemsOf({ ADMIN_PORT: '3100', ADMIN_HOST: HOST })).toEqual(needsAuth);
    }
    const issuer = { AUTH_JWKS_URL: 'https://id.example/jwks', AUTH_ISSUER: 'https://id.example' };
    expect(problemsOf({ AUTH: 'jwt', ...issuer })).toEqual([
      'AUTH_AUDIENCE is missing: AUTH=jwt needs AUTH_JWKS_URL, AUTH_ISSUER, AUTH_AUDIENCE',
    ]);
    const open = { HOST: '0.0.0.0', AUTH: 'jwt', ...issuer, AUTH_AUDIENCE: 'shop' };
    expect(parseEnv(open, choices)).toMatchObject({
      auth: { jwksUrl: 'https://id.example/jwks', issuer: 'https://id.example', audience: 'shop' },
      addressRate: 100,
      customerRate: 5,
    });
    expect(problemsOf({ ...open, AUTH_JWKS_URL: 'http://id.example/jwks' })).toHaveLength(1);
  });

  it('reads keys of tickets, proxies and named administrators', () => {
    const [newer, older] = ['n', 'o'].map((letter) => Buffer.alloc(32, letter)) as [Buffer, Buffer];
    const given = {
      TICKET_SECRETS: `${newer.toString('base64')}, ${older.toString('base64')}`,
      TRUSTED_PROXIES: '10.0.0.0/8,2001:db8::1',
      ADMIN_TOKEN: 'ann:0123456789abcdef,fedcba9876543210',
    };
    expect(parseEnv(given, choices)).toMatchObject({
      ticketKeys: [newer, older],
      trustedProxies: ['10.0.0.0/8', '2001:db8::1'],
      adminTokens: [
        { name: 'ann', token: '0123456789abcdef' },
        { name: 'admin', token: 'fedcba9876543210' },
      ],
    });
    const wrong = { TICKET_SECRETS: 'c2hvcnQ=', TRUSTED_PROXIES: '10.0.0.0/33', ADMIN_TOKEN: 'Ann:short' };
    expect(problemsOf(wrong)).toHaveLength(3);
  });

  it('accepts a webhook over http on this machine only', () => {
    for (const url of [
      'http://127.0.0.1:1/x',
      'http://localhost/x',
      'http://[::1]/x',
      'https://shop.example/x',
    ])
      expect(problemsOf({ TASK_WEBHOOK_URL: url })).toEqual([]);
    for (const host of ['shop.example', '127.attacker.example'])
      expect(problemsOf({ TASK_WEBHOOK_URL: `http://${host}/x` })).toEqual([
        `TASK_WEBHOOK_URL="http://${host}/x" must start with https:// unless its host is loopback`,
      ]);
  });

  it('keeps tasks without a receiver, except those of a local Postgres and with `none`', () => {
    const DATABASE_URL = 'postgresql://db/shop';
    const urlsOf = (env: Record<string, string>) => {
      const { taskWebhookUrl, eventWebhookUrl } = parseEnv(env, choices);
      return [taskWebhookUrl, eventWebhookUrl];
    };
    expect(urlsOf({})).toEqual(['none', 'none']);
    expect(urlsOf({ DATABASE_URL })).toEqual([null, null]);
    expect(urlsOf({ DATABASE_URL, TASK_WEBHOOK_URL: 'none' })).toEqual(['none', null]);
    expect(problemsOf({ EVENTS: 'all', EVENT_WEBHOOK_URL: 'none' })).toEqual([
      'EVENTS="all" needs EVENT_WEBHOOK_URL, which receives them',
    ]);
  });

  it('reports every mistake at once, with what would be right', () => {
    const problems = problemsOf({
      STRATEGY: 'luaa',
      PORT: '70000',
      DATABASE_URL: 'mysql://x',
      CONFIRM: 'maybe',
    });
    expect(problems).toHaveLength(4);
    expect(problems.join('\n')).toContain('STRATEGY="luaa" must be one of unsafe, global-lock');
    expect(problems.join('\n')).toContain('PORT="70000" must be an integer from 0 to 65535');
  });

  it.each([
    [{ STRATEGY: 'groupcommit' }, 'did you mean group-commit?'],
    [{ STRATEGY: 'GROUP_COMMIT' }, 'did you mean group-commit?'],
    [{ LOCK: 'redis-fiar' }, 'did you mean redis-fair?'],
    [{ LOG_LEVEL: 'warm' }, 'did you mean warn?'],
  ])('asks whether %o was meant to be the nearest name', (env, question) => {
    expect(() => parseEnv(env, choices)).toThrow(question);
    expect(() => parseEnv({ STRATEGY: 'something-else' }, choices)).not.toThrow('did you mean');
  });

  it('requires the number of replicas with LOCK=redis-wait', () => {
    const problem = 'LOCK="redis-wait" needs REDIS_WAIT, the number of replicas that must have a lease';
    for (const env of [{}, { REDIS_WAIT: '0' }])
      expect(problemsOf({ ...env, LOCK: 'redis-wait' })).toEqual([problem]);
    expect(problemsOf({ LOCK: 'redis-wait', REDIS_WAIT: '1' })).toEqual([]);
  });

  it('REDIS_URL=none: Postgres alone, with defaults that need no Redis', () => {
    const alone = { postgresAlone: true, redisUrl: null };
    const REDIS_URL = 'none';
    expect(parseEnv({ REDIS_URL }, choices)).toMatchObject({
      ...alone,
      strategy: 'group-commit',
      lock: 'postgres-row',
    });
    const named = { REDIS_URL, STRATEGY: 'skip-locked', LOCK: 'zookeeper' };
    expect(parseEnv(named, choices)).toMatchObject({ ...alone, strategy: 'skip-locked', lock: 'zookeeper' });
    const problems = problemsOf({
      ...named,
      STRATEGY: 'lua',
      LOCK: 'redis',
      CONFIRM: 'accepted',
      REDIS_WAIT: '1',
    });
    expect(problems).toEqual([
      'STRATEGY="lua" needs Redis, and there is none: these decide in Postgres: for-update, for-update-prisma, unique-key, conditional-update, optimistic, advisory-lock, skip-locked, group-commit',
      'LOCK="redis" needs Redis, and there is none: these locks do without: redlock, zookeeper, postgres-row, postgres-advisory',
      'CONFIRM="accepted" needs Redis, and there is none: a 202 follows the reservation there',
      'REDIS_WAIT="1" needs Redis, and there is none: it counts replicas of Redis',
    ]);
  });

  it.each([
    ['STRATEGI', [], 'STRATEGI is unknown; did you mean STRATEGY?'],
    ['DATABASE_ULR', [], 'DATABASE_ULR is unknown; did you mean DATABASE_URL?'],
    ['workers', [], 'workers is unknown; did you mean WORKERS?'],
    ['STRATEGI', ['STRATEGI'], 'STRATEGI in .env is unknown; did you mean STRATEGY?'],
    ['POTR', ['POTR'], null],
    ['PORTS', ['PORTS'], 'PORTS in .env is unknown; did you mean PORT?'],
    ['REDIS_PASWORD', ['REDIS_PASWORD'], 'REDIS_PASWORD in .env is unknown; did you mean REDIS_PASSWORD?'],
    ['PORTS', [], null],
    ['PATH', [], null],
    ['SHOP_NAME', ['SHOP_NAME'], null],
  ])('reports the name %s, with %j in .env: %s', (name, fileNames, problem) => {
    let problems: readonly string[] = [];
    try {
      parseEnv({ [name]: 'lua' }, choices, fileNames);
    } catch (error) {
      problems = (error as ConfigError).problems;
    }
    expect(problems).toEqual(problem === null ? [] : [expect.stringContaining(problem)]);
    // If the right name is set too, the other one belongs to another program.
    if (fileNames.length === 0)
      expect(
        problemsOf({
          ...(process.env as Record<string, string>),
          [name]: 'lua',
          STRATEGY: '',
          DATABASE_URL: '',
          WORKERS: '',
        }),
      ).toEqual([]);
  });

  it('knows the variables that docker-compose.yml and scripts/secrets.sh use in .env', () => {
    const text = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
    const names = [...text('docker-compose.yml').matchAll(/\$\{([A-Z_]+)/g)].map((match) => match[1]!);
    names.push(...[...text('scripts/secrets.sh').matchAll(/\b[A-Z]+_[A-Z_]+\b/g)].map((match) => match[0]));
    expect(unreadNames([...names, 'COMPOSE_FILE', 'OTEL_EXPORTER_OTLP_HEADERS', 'SHOP_NAME'])).toEqual([
      'SHOP_NAME',
    ]);
    for (const name of COMPOSE_VARIABLES) expect(names).toContain(name);
  });

  it('keeps the ports of customers and administrators apart', () => {
    expect(parseEnv({ HOST: '::1', ADMIN_PORT: '3100' }, choices)).toMatchObject({
      adminPort: 3100,
      adminHost: '::1',
    });
    expect(problemsOf({ ADMIN_PORT: '3000' })).toEqual(['ADMIN_PORT="3000" must not be PORT']);
    expect(problemsOf({ ADMIN_HOST: '::1' })).toEqual(['ADMIN_HOST="::1" needs ADMIN_PORT']);
  });

  it.each(['12abc', '1e3', '-1', ' 5', '0x10', '1.5'])(
    'refuses %j as a number instead of guessing',
    (value) => {
      expect(problemsOf({ SEGMENTS: value })).toHaveLength(1);
    },
  );

  it('lists every variable in .env.example, with its default', () => {
    const example = readFileSync(new URL('../../.env.example', import.meta.url), 'utf8');
    const source = readFileSync(new URL('../../src/config/env.ts', import.meta.url), 'utf8');
    const names = [...source.matchAll(/^ {4}([A-Z_]+):/gm)].map((match) => match[1]!);
    expect(names.length).toBeGreaterThan(10);
    const listed = [...example.matchAll(/^#? ?([A-Z_]+)=/gm)].map((match) => match[1]!);
    expect([...listed].sort()).toEqual([...names].sort());
    // The example has the defaults: read as it is, it changes nothing.
    const values = Object.fromEntries(
      [...example.matchAll(/^# ([A-Z_]+)=(.*)$/gm)].map((m) => [m[1]!, m[2]!]),
    );
    expect(parseEnv(values, choices)).toEqual(parseEnv({}, choices));
  });
});
