/**
 * Every route during every kind of store failure: no answer is a 5xx except 503, and each 503 says what to do. The routes
 * are those of the OpenAPI document, so that a new one cannot be forgotten. All services share two stores, each behind a
 * proxy; a failure affects all of their routes at once.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { limits } from '../../src/config/limits.ts';
import { buy, call, createSale, eventually } from '../support/client.ts';
import { type Answered, askAll, makeThings, mistakeOf } from '../support/every-route.ts';
import { childrenOf, signal } from '../support/nemesis.ts';
import { opened } from '../support/opened.ts';
import { spawnService, startService, type TestService } from '../support/service.ts';
import { openOwnStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';

const STRATEGIES = bySize({
  core: ['lua', 'for-update-prisma'],
  full: ['lua', 'global-lock', 'for-update-prisma'],
  nightly: ['lua', 'global-lock', 'for-update', 'for-update-prisma', 'group-commit'],
});

const stores = opened(() => openOwnStores());
let links: { postgres: TcpProxy; redis: TcpProxy };
let services: TestService[];

beforeAll(async () => {
  const [postgres, redis] = await Promise.all([
    TcpProxy.to(stores.databaseUrl),
    TcpProxy.to(stores.redisUrl),
  ]);
  links = { postgres, redis };
  services = await Promise.all(
    STRATEGIES.map((STRATEGY) =>
      startService({
        STRATEGY,
        DATABASE_URL: links.postgres.through(stores.databaseUrl),
        REDIS_URL: links.redis.through(stores.redisUrl),
      }),
    ),
  );
});
afterAll(async () => {
  await Promise.all((services ?? []).map((service) => service.stop()));
  await Promise.all([links?.postgres.close(), links?.redis.close()]);
});

const make = ({ url }: TestService) => withPostgres((client) => makeThings(url, client));

/** Connects directly to Postgres, even while it is set to read-only. */
async function withPostgres<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({
    connectionString: stores.ownerUrl,
    options: '-c default_transaction_read_only=off',
    application_name: 'test',
  });
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

async function withRedis<T>(work: (redis: Redis) => Promise<T>, password?: string): Promise<T> {
  const redis = new Redis(stores.redisUrl, {
    lazyConnect: true,
    enableReadyCheck: false,
    ...(password && { password }),
  });
  redis.on('error', () => {});
  await redis.connect();
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

/** Whether an answer since the last failure began was a 503. */
let isRefused = false;
const { fetch } = globalThis;
beforeAll(() => {
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (...asked) => {
    const answer = await fetch(...asked);
    isRefused ||= answer.status === 503;
    return answer;
  });
});
afterAll(() => vi.restoreAllMocks());

/** Calls every route of all services during the failure, and waits until all serve again. */
async function expectOnly503(fail: () => Promise<() => Promise<void>>, during?: () => Promise<void>) {
  const things = await Promise.all(services.map(make));
  const logged = services.map(({ log }) => log.length);
  const heal = await fail();
  let answered: Answered[];
  try {
    isRefused = false;
    [answered] = await Promise.all([askAll(things), during?.()]);
  } finally {
    await heal();
  }
  const wrong = answered.flatMap((one) => {
    const mistake = mistakeOf(one);
    const { status, body } = one.answer;
    return mistake === null
      ? []
      : [`${STRATEGIES[one.service]} ${one.path}: ${status} ${JSON.stringify(body)} ${mistake}`];
  });
  const unforeseen = services.flatMap(({ log }, i) =>
    log.slice(logged[i]).filter((line) => line.includes('Unexpected error')),
  );
  expect({ wrong, unforeseen: unforeseen.map((line) => line.slice(0, 1_500)) }).toEqual({
    wrong: [],
    unforeseen: [],
  });
  const refused = answered.filter(({ answer }) => answer.status === 503);
  expect(new Set(refused.map(({ service }) => service)).size, 'services that noticed').toBeGreaterThan(0);
  for (const { url } of services) {
    await eventually(
      async () => (await call(`${url}/readyz`)).status,
      (status) => status === 200,
    );
    const sale = await eventually(
      () => createSale(url, 1).catch(() => null),
      (made) => made !== null,
    );
    expect((await buy(url, sale!.id, 'ann')).status).toBeLessThan(300);
  }
}

/** @returns a function that resets the setting */
async function setting(name: string, value: string): Promise<() => Promise<void>> {
  await withPostgres(async (client) => {
    await client.query(`ALTER SYSTEM SET ${name} = ${value}`);
    await client.query('SELECT pg_reload_conf()');
  });
  await eventually(
    () => stores.sql.query('SELECT current_setting($1) AS value', [name]),
    ({ rows }) => rows[0].value === value,
  );
  return () =>
    withPostgres(async (client) => {
      await client.query(`ALTER SYSTEM RESET ${name}`);
      await client.query('SELECT pg_reload_conf()');
    });
}

const endBackends = () =>
  withPostgres((client) =>
    client.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stampede'`,
    ),
  );

/** Holds the locks of a statement, on a new connection. */
async function holding(statement: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: stores.ownerUrl });
  client.on('error', () => {});
  await client.connect();
  await client.query('BEGIN');
  await client.query(statement);
  return () => client.end();
}

it('Postgres is killed', () =>
  expectOnly503(async () => {
    await stores.postgresServer.kill();
    return () => stores.postgresServer.start();
  }));

it('Postgres is frozen for longer than a statement may take, and continues', () =>
  expectOnly503(
    async () => {
      signal(stores.postgresServer.pids(), 'SIGSTOP');
      return () => Promise.resolve();
    },
    async () => {
      const pids = stores.postgresServer.pids();
      await sleep(limits.postgresStatementMs + 200);
      await expect.poll(() => isRefused).toBe(true);
      signal(pids, 'SIGCONT');
    },
  ));

it('Postgres ends its connections in the middle of statements', () =>
  expectOnly503(
    () => holding('LOCK TABLE sales, orders, tasks, points_entries IN ACCESS EXCLUSIVE MODE'),
    async () => {
      for (let i = 0; i < 3; i++) {
        await sleep(300);
        await endBackends();
      }
    },
  ));

it('Postgres is read-only', () => expectOnly503(() => setting('default_transaction_read_only', 'on')));

it('Postgres has no connection left', () =>
  expectOnly503(async () => {
    const held: pg.Client[] = [];
    await endBackends();
    for (let full = false; !full; ) {
      const client = new pg.Client({ connectionString: stores.databaseUrl });
      client.on('error', () => {});
      await client.connect().then(
        () => held.push(client),
        () => {
          full = true;
        },
      );
    }
    return async () => {
      await Promise.all(held.map((client) => client.end()));
    };
  }));

it('Postgres has locked rows', () =>
  expectOnly503(() =>
    holding('SELECT FROM sales FOR UPDATE; SELECT FROM orders FOR UPDATE; SELECT FROM tasks FOR UPDATE'),
  ));

const STORES = [
  ['Postgres', 'postgres'],
  ['Redis', 'redis'],
] as const;
it.each(STORES)('%s is silent', (_name, store) =>
  expectOnly503(async () => {
    links[store].set('black-hole');
    return async () => void links[store].set('pass');
  }),
);

it.each(STORES)('%s resets its connections', (_name, store) =>
  expectOnly503(
    async () => () => Promise.resolve(),
    async () => {
      for (let cuts = 0; cuts < 30 || (!isRefused && cuts < 3_000); cuts++) {
        links[store].cut();
        await sleep(10);
      }
    },
  ),
);

const config = (name: string, value: string) => withRedis((redis) => redis.config('SET', name, value));

it('Redis is killed', () =>
  expectOnly503(async () => {
    await stores.redisServer.kill();
    return () => stores.redisServer.start();
  }));

it('Redis is full', () =>
  expectOnly503(async () => {
    await config('maxmemory', '1');
    return async () => {
      await config('maxmemory', '0');
    };
  }));

it('Redis became a replica', () =>
  expectOnly503(async () => {
    await withRedis((redis) => redis.replicaof('127.0.0.1', 1));
    return async () => {
      await withRedis((redis) => redis.replicaof('NO', 'ONE'));
    };
  }));

it('Redis runs a script that does not end', () =>
  expectOnly503(async () => {
    await config('busy-reply-threshold', '1');
    const redis = new Redis(stores.redisUrl);
    const ended = redis.eval('while true do end', 0).catch(() => {});
    await sleep(100);
    return async () => {
      await withRedis((other) => other.script('KILL'));
      await ended;
      redis.disconnect();
      await config('busy-reply-threshold', '5000');
    };
  }));

it('Redis has another password', () =>
  expectOnly503(async () => {
    await config('requirepass', 'another');
    await withRedis((redis) => redis.client('KILL', 'TYPE', 'NORMAL'), 'another');
    return async () => {
      await withRedis((redis) => redis.config('SET', 'requirepass', ''), 'another');
    };
  }));

it('Redis is killed, and workers that need Postgres alone die: those that are left go on', async () => {
  const link = await TcpProxy.to(stores.redisUrl);
  const env = { STRATEGY: 'for-update', WORKERS: '2', DATABASE_URL: stores.databaseUrl };
  await using service = await spawnService({ ...env, REDIS_URL: link.through(stores.redisUrl) });
  const serving = () => childrenOf(service.process.pid!);
  const { id } = await createSale(service.url, 2);
  link.set('refuse');
  link.cut();
  process.kill(serving()[0]!, 'SIGKILL');
  const deaths = () => service.log.join('').split('starting another').length - 1;
  await expect.poll(deaths).toBeGreaterThan(5); // after so many in a row it gives up when none serves
  expect(await buy(service.url, id, 'ann')).toMatchObject({ status: 201 });
  await link.close();
});
