/** The Redis user of docs/how-to/deploy.md may do what the service and its locks need, and no more. */
import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { sharedLimits } from '../../src/access/shared-limits.ts';
import * as redisLock from '../../src/locks/redis.ts';
import * as fair from '../../src/locks/redis-fair.ts';
import * as readWrite from '../../src/locks/redis-read-write.ts';
import type { RedisStore } from '../../src/store/redis/connection.ts';
import { call, eventually } from '../support/client.ts';
import { openReplicated, redisLocks, waitingFor } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { OwnRedis, openCluster } from '../support/servers.ts';
import { spawnService } from '../support/service.ts';
import { openStoresWithRedis } from '../support/stores.ts';
import { World } from '../support/world.ts';
import { lockContract } from './lock-suite.ts';
import { strategyContract } from './strategy-suite.ts';

const root = new URL('../../', import.meta.url);
const page = readFileSync(new URL('docs/how-to/deploy.md', root), 'utf8');
/** The arguments of ACL SETUSER on the page. */
const [user, ...rules] = /redis-cli ACL SETUSER ((?:.*\\\n)*.*)/
  .exec(page)![1]!
  .replaceAll(/\\\n/g, ' ')
  .replaceAll("'", '')
  .trim()
  .split(/\s+/) as [string, ...string[]];

const core = { core: true, rest: false, timed: false };
const servers: Redis[] = [];

async function createUser(admin: Redis, ...more: string[]): Promise<void> {
  await admin.call('ACL', 'SETUSER', user, ...rules, ...more);
  await admin.call('ACL', 'SETUSER', user, '+client|setinfo').catch(() => {}); // before 7.2, as the page says
}

/** Creates the user. @returns the URL with which it logs in */
async function loggedIn(url: string): Promise<string> {
  const admin = new Redis(url);
  servers.push(admin);
  admin.on('error', () => {}); // the server ends first
  await createUser(admin);
  return Object.assign(new URL(url), { username: user, password: 'password' }).href;
}

/** Denied commands, keys and channels. */
async function denials(redis: Redis): Promise<string[]> {
  const log = (await redis.call('ACL', 'LOG')) as string[][];
  return log.map((entry) => {
    const field = (name: string) => entry[entry.indexOf(name) + 1];
    return `${field('reason')} ${field('object')} (${field('context')})`;
  });
}

for (const name of ['lua', 'segmented-lock', 'global-lock', 'unsafe']) {
  describe(`as the user of the page: ${name}`, () => {
    let admin: Redis;
    const open = async () => {
      const stores = await openStoresWithRedis();
      admin = stores.redis;
      const redisUrl = await loggedIn(stores.redisUrl).catch(async (error) => {
        await stores[Symbol.asyncDispose]();
        throw error;
      });
      return { ...stores, redisUrl };
    };
    strategyContract(name, { isWhole: false, open });
    it('is denied nothing', async () => {
      expect(await denials(admin)).toEqual([]);
    });
  });
}

for (const { create, description } of [redisLock, fair, readWrite]) {
  describe(`as the user of the page: lock ${description.name}`, () => {
    const open = async () => {
      const group = await redisLocks(create, undefined, loggedIn);
      const close = async () => {
        expect(await denials(servers.at(-1)!)).toEqual([]);
        await group.close();
      };
      return { ...group, close };
    };
    lockContract(description, open, core);
  });
}

it.each([
  ['+wait', '-wait', { LOCK: 'redis-wait', REDIS_WAIT: '1' }],
  ['+wait', '-wait', { CONFIRM: 'accepted', REDIS_WAIT: '1' }],
  ['+subscribe', '-subscribe', { LOCK: 'redis' }],
  ['+subscribe', '-subscribe', { STRATEGY: 'lua', LOCK: 'redis-fair' }],
  ['+select', '-select', {}, '/1'],
  ['+setnx', '-setnx', { STRATEGY: 'global-lock', LOCK: 'redis-setnx' }],
  ['+zadd', '-zadd', {}],
  ['+evalsha', '-evalsha', {}],
  ["'~stampede:*'", 'resetkeys', {}],
  ["'&stampede:*'", 'resetchannels', {}],
])(
  'without %s (%s), a service with %o does not start, and says what to add',
  async (rule, without, env, database = '') => {
    await using stores = await openStoresWithRedis();
    const url = (await loggedIn(stores.redisUrl)).replace(/(\/\d*)?$/, database);
    await stores.redis.call('ACL', 'SETUSER', user, without);
    const given = { DATABASE_URL: stores.databaseUrl, REDIS_URL: url, ...env };
    await expect(spawnService(given)).rejects.toThrow(`ACL SETUSER ${user} ${rule}\n`);
  },
);

it('with the rules that the page adds for a cluster, a service sells on one and is denied nothing', async () => {
  const [line] = /\*\*Cluster\*\*: add .*/.exec(page)!;
  const more = line.match(/\+[\w|]+/g)!;
  await using cluster = await openCluster();
  for (const { client } of cluster.members) await createUser(client, ...more);
  const url = cluster.url.replace('//', `//${user}:password@`);
  await using world = await World.open({ strategy: 'lua', env: { REDIS_URL: url } });
  for (let n = 0; n < 6; n++) {
    const sale = await world.openSale(2);
    expect((await sale.buy('ann')).status).toBe(201);
  }
  for (const { client } of cluster.members) expect(await denials(client)).toEqual([]);
});

it.each([
  ['wait', { CONFIRM: 'accepted', REDIS_WAIT: '1' }, 201],
  ['zadd', {}, 503],
])('is degraded while its user may not send %s, logs it once, and recovers', async (command, env, status) => {
  const pair = await openReplicated(waitingFor(1));
  onTestFinished(() => pair.close());
  const url = await loggedIn(pair.primary.url);
  const admin = servers.at(-1)!;
  await using world = await World.open({ strategy: 'lua', env: { REDIS_URL: url, ...env } });
  const sale = await world.openSale(20);
  await admin.call('ACL', 'SETUSER', user, `-${command}`);
  const readiness = async () => (await call(`${await world.url()}/readyz`)).body;
  for (const customer of ['ann', 'ben']) {
    const answer = await sale.request('purchase', customer);
    expect(answer!.status).toBe(status);
    if (status === 503) expect(JSON.stringify(answer!.body)).toContain('redis-noperm');
  }
  const names = (body: object) => JSON.stringify(body).includes(`+${command}`);
  await eventually(readiness, (body) => body.status === 'degraded' && names(body));
  await admin.call('ACL', 'SETUSER', user, `+${command}`);
  await expect.poll(readiness).toMatchObject({ status: 'ok' });
  const log = world.services.flatMap((service) => service.log);
  expect(log.filter((line) => line.includes(`lacks +${command}`))).toHaveLength(1);
  expect(log.join('')).not.toContain('too few replicas');
});

describe('the user of the page', () => {
  const server = opened(() => OwnRedis.open());
  let admin: Redis;
  let redis: Redis;
  beforeAll(async () => {
    redis = new Redis(await loggedIn(server.url));
    admin = servers.at(-1)!;
  });
  afterAll(() => {
    for (const one of [redis, ...servers]) one?.disconnect();
  });

  it('is allowed what customers on the internet need: limits', async () => {
    const store = { redis } as RedisStore;
    expect(await sharedLimits(store, () => {}).use('ticket', 'ann')).toBeNull();
    expect(await denials(admin)).toEqual([]);
  });

  it.each([
    'GET session:1',
    'SET my-stampede:1 1',
    "EVAL return(redis.call('GET','session:1')) 0",
    'PUBLISH orders x',
    'FLUSHALL',
    'FLUSHDB',
    'KEYS stampede:*',
    'SCAN 0',
    'CONFIG SET maxmemory 1',
    'CONFIG GET requirepass',
    'ACL SETUSER stampede +@all',
    'CLIENT KILL TYPE normal',
    'MONITOR',
    'SHUTDOWN',
    'REPLICAOF NO ONE',
    'MODULE LIST',
    'FUNCTION FLUSH',
  ])('is denied %s', async (line) => {
    const [command, ...args] = line.split(' ') as [string, ...string[]];
    await expect(redis.call(command, ...args)).rejects.toThrow(/NOPERM|ACL|No permissions|can't access/i);
    expect((await denials(admin)).length).toBeGreaterThan(0);
  });
});
