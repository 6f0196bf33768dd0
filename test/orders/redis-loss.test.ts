/**
 * Redis loses its memory, wholly or back to an older snapshot, is away, or is replaced by a replica that missed the last
 * writes, while two processes sell: whatever Redis says then, nothing is oversold, what was acknowledged is kept, nobody
 * gets a second order, nobody is told "sold out" while a unit is free, and in the end all is sold and the stores agree.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { attempt, call, eventually, users } from '../support/client.ts';
import { HoldingProxy } from '../support/holding-proxy.ts';
import { readRedis } from '../support/promises.ts';
import { TcpProxy } from '../support/proxy.ts';
import { MortalRedis, Shop } from '../support/shop.ts';
import { TapProxy } from '../support/tap-proxy.ts';

/** How lua/sale/apply-change.lua begins: a script's first call on a connection sends its text. */
const MOVE = '-- Tells Redis of a unit';
const TIMEOUT_MS = 180_000;

let redis: MortalRedis;
/** What was started, in the order of starting; ended in reverse. */
const endings: (() => unknown)[] = [];

function kept<T extends AsyncDisposable>(part: T): T {
  endings.push(() => part[Symbol.asyncDispose]());
  return part;
}

beforeEach(async () => {
  redis = kept(await MortalRedis.open());
});

afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

/** Two processes with a sale. @param through where each finds Redis; without it, where it is */
async function open(strategy: string, stock: number, through?: readonly [string, string]): Promise<Shop> {
  const { url } = redis.server;
  return kept(await Shop.open({ strategy, stock, redisUrls: through ?? [url, url] }));
}

/** Does something to Redis when some of a rush have bought. */
async function inTheMiddle(shop: Shop, work: () => Promise<void>): Promise<void> {
  const before = await shop.sold();
  await eventually(
    () => shop.sold(),
    (sold) => sold > before + 2,
  );
  await work();
}

/** More customers come than units are left: these are sold to the last one, and the stores agree. */
async function sellOut(shop: Shop, left: number, url = redis.server.url): Promise<void> {
  const crowd = await shop.rush(users(left + 5, 'crowd'));
  expect(crowd).toEqual(left === 0 ? { 'sold-out': 5 } : { '201': left, 'sold-out': 5 });
  await shop.settled(url);
  expect(await shop.broken()).toEqual([]);
}

describe.each(['lua', 'segmented-lock'])('%s, with two processes', (strategy) => {
  it('Redis goes back to a snapshot from before 15 sales and 3 cancels', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const shop = await open(strategy, 50);
    const [early, middle, late] = [users(10, 'early'), users(15, 'middle'), users(20, 'late')];
    expect(await shop.rush(early)).toEqual({ '201': 10 });
    await shop.settled(redis.server.url);
    await redis.snapshot();
    expect(await shop.rush(middle)).toEqual({ '201': 15 });
    const returning = early.slice(0, 3);
    for (const user of returning) await shop.cancel(user);
    await shop.settled(redis.server.url);
    // 28 units are free, and Redis will believe that 40 are, and that the three still have their orders.
    const [bought, repeated] = await Promise.all([
      shop.rush([...late, ...returning], 1_500),
      shop.rush([...middle, ...early.slice(3)], 1_500),
      inTheMiddle(shop, async () => {
        await redis.kill();
        await redis.restart('snapshot');
      }),
    ]);
    expect(bought).toEqual({ '201': 23 });
    expect(repeated).toEqual({ '200': 22 });
    expect(await shop.broken()).toEqual([]);
    await sellOut(shop, 5);
  });

  it('Redis goes back to a snapshot from when all was sold', { timeout: TIMEOUT_MS }, async () => {
    const shop = await open(strategy, 30);
    const early = users(30, 'early');
    expect(await shop.rush(early)).toEqual({ '201': 30 });
    await shop.settled(redis.server.url);
    await redis.snapshot();
    for (const user of early.slice(0, 20)) await shop.cancel(user);
    await shop.settled(redis.server.url);
    const [bought] = await Promise.all([
      shop.rush(users(18, 'late'), 1_500),
      inTheMiddle(shop, async () => {
        await redis.kill();
        await redis.restart('snapshot');
      }),
    ]);
    expect(bought).toEqual({ '201': 18 });
    await sellOut(shop, 2);
  });

  it('Redis is empty after a restart in the middle of a rush', { timeout: TIMEOUT_MS }, async () => {
    const shop = await open(strategy, 40);
    const early = users(10, 'early');
    await shop.rush(early);
    for (const user of early.slice(0, 3)) await shop.cancel(user);
    const [bought, repeated] = await Promise.all([
      shop.rush([...users(20, 'late'), ...early.slice(0, 3)], 1_500),
      shop.rush(early.slice(3), 1_500),
      inTheMiddle(shop, async () => {
        await redis.kill();
        await redis.restart('empty');
      }),
    ]);
    expect(bought).toEqual({ '201': 23 });
    expect(repeated).toEqual({ '200': 7 });
    await sellOut(shop, 10);
  });

  it.each(['before', 'after'])(
    'FLUSHALL while a unit is on its way back, which comes %s somebody opens the sale again',
    { timeout: TIMEOUT_MS },
    async (when) => {
      const proxy = await HoldingProxy.open(redis.server.port);
      endings.push(() => proxy.close());
      const { url } = redis.server;
      const shop = await open(strategy, 10, [proxy.through(url), url]);
      expect(await shop.rush(users(10))).toEqual({ '201': 10 });
      await shop.settled(url);
      const look = new Redis(url);
      endings.push(() => look.disconnect());
      const held = proxy.holdRequest(MOVE);
      const [a, b] = shop.services.map((service) => service.url);
      const cancelled = call(`${a}/orders/${shop.orderOf('user-0')}/cancel`, { method: 'POST' });
      await held;
      await look.flushall();
      if (when === 'after') expect((await attempt(b!, shop.saleId, `${shop.saleId}-next`)).status).toBe(201);
      proxy.release();
      expect((await cancelled).status).toBe(200);
      if (when === 'before') expect((await attempt(b!, shop.saleId, `${shop.saleId}-next`)).status).toBe(201);
      await eventually(
        () => shop.waitingMoves(),
        (waiting) => waiting === 0,
        30_000,
      );
      expect((await readRedis(look, shop.saleId)).free).toBe(0);
      await sellOut(shop, 0);
      expect(shop.corrections).toEqual([]);
    },
  );

  it.each(['cut off', 'dead'])(
    'Redis is %s: orders go on in Postgres',
    { timeout: TIMEOUT_MS },
    async (how) => {
      const link = kept(await TcpProxy.open({ port: redis.server.port }));
      const through = link.through(redis.server.url);
      const shop = await open(strategy, 20, [through, through]);
      expect(await shop.rush(users(15))).toEqual({ '201': 15 });
      await shop.settled(redis.server.url);
      if (how === 'dead') await redis.kill();
      link.set('refuse');
      for (const { url } of shop.services) {
        // While the service has not noticed that the connection is gone, it does not know what became of what it sent.
        const answer = await eventually(
          () => attempt(url, shop.saleId, `${shop.saleId}-nobody`),
          ({ problem }) => problem !== 'unknown-outcome',
        );
        expect(answer).toMatchObject({ status: 503, problem: 'busy' });
        expect(answer.headers.get('retry-after')).toBe('1');
      }
      for (const user of ['user-0', 'user-1', 'user-2']) await shop.cancel(user);
      await shop.expire(['user-3', 'user-4', 'user-5', 'user-6']);
      expect(await shop.pay('user-3')).toBe('paid');
      expect(await shop.pay('user-7')).toBe('paid');
      expect(await shop.pay('user-0')).toBe('refund-due');
      expect([await shop.sold(), await shop.waitingMoves()]).toEqual([9, 8]);
      expect(await shop.broken()).toEqual([]);

      if (how === 'dead') await redis.restart('empty');
      link.set('pass');
      // What was only cut off hears of each unit; what is empty is made from Postgres, by whoever asks first.
      if (how === 'cut off') await shop.settled(redis.server.url);
      expect(await shop.rush(['user-0', 'user-1', 'user-3', 'user-4'])).toEqual({ '201': 3, '200': 1 });
      await sellOut(shop, 8);
      expect(await shop.waitingMoves()).toBe(0);
      expect(shop.corrections).toEqual([]);
    },
  );
});

/** The Redis of the test with a replica, and the one address behind which either is. */
interface Replicated {
  readonly address: TapProxy;
  readonly url: string;
  readonly replica: RedisServer;
  /** Between the two. */
  readonly replication: TcpProxy;
}

async function attachReplica(): Promise<{ replica: RedisServer; replication: TcpProxy }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-replica-'));
  const replication = kept(await TcpProxy.open({ port: redis.server.port }));
  const from = ['--replicaof', '127.0.0.1', String(replication.port)];
  const plain = ['--appendonly', 'no', '--repl-ping-replica-period', '1'];
  const replica = await startRedisServer({ folder, args: [...plain, ...from] });
  endings.push(async () => {
    await replica.kill();
    await rm(folder, { recursive: true, force: true });
  });
  await inStep();
  return { replica, replication };
}

/** The replica has all that was written up to now. */
async function inStep(): Promise<void> {
  const look = new Redis(redis.server.url);
  await look.config('SET', 'repl-diskless-sync-delay', '0');
  await eventually(
    async () => {
      await look.set('in-step', 1);
      return look.wait(1, 500);
    },
    (there) => there === 1,
    30_000,
  ).finally(() => look.disconnect());
}

async function replicated(): Promise<Replicated> {
  const address = kept(await TapProxy.open(redis.server.port));
  return { address, url: address.through(redis.server.url), ...(await attachReplica()) };
}

async function promote({ replica }: Replicated): Promise<void> {
  const look = new Redis(replica.url);
  await look.call('REPLICAOF', 'NO', 'ONE');
  look.disconnect();
}

/** Attempts at one process after the other. @returns how often the sale was made again from Postgres meanwhile */
async function reopenings(shop: Shop, url: string): Promise<number> {
  const look = new Redis(url);
  const opened = new Set<string | null>();
  for (const user of users(12, 'turn')) {
    opened.add(await look.hget(`stampede:{sale:${shop.saleId}}:state`, 'loadedMs'));
    await shop.buy(user);
  }
  look.disconnect();
  return opened.size - 1;
}

describe('failover', () => {
  it.each(['lua', 'segmented-lock'])(
    '%s: a replica takes over that missed the last sales and cancels',
    { timeout: TIMEOUT_MS },
    async (strategy) => {
      const group = await replicated();
      const shop = await open(strategy, 50, [group.url, group.url]);
      const [early, middle] = [users(10, 'early'), users(15, 'middle')];
      await shop.rush(early);
      await inStep();
      group.replication.set('lose-replies');
      expect(await shop.rush(middle)).toEqual({ '201': 15 });
      for (const user of early.slice(0, 3)) await shop.cancel(user);
      const [bought, repeated] = await Promise.all([
        shop.rush([...users(20, 'late'), ...early.slice(0, 3)], 1_500),
        shop.rush([...middle, ...early.slice(3)], 1_500),
        inTheMiddle(shop, async () => {
          await redis.kill();
          await promote(group);
          group.address.lead(group.replica.port);
        }),
      ]);
      expect(bought).toEqual({ '201': 23 });
      expect(repeated).toEqual({ '200': 22 });
      await sellOut(shop, 5, group.replica.url);
    },
  );

  it('processes that came before and after a promotion agree', { timeout: TIMEOUT_MS }, async () => {
    const group = await replicated();
    const shop = await open('lua', 50, [group.url, group.url]);
    await shop.rush(users(10));
    await inStep();
    await redis.kill();
    group.address.lead(group.replica.port);
    // It is still a replica: nothing can be sold.
    await sleep(500);
    expect((await attempt(shop.url, shop.saleId, `${shop.saleId}-nobody`)).problem).toBe('busy');
    await promote(group);
    await shop.start('lua', group.url);
    await shop.rush(users(3, 'first'));
    expect(await reopenings(shop, group.replica.url)).toBeLessThanOrEqual(1);
    await sellOut(shop, 25, group.replica.url);
  });

  it('processes that came before and after the first replica agree', { timeout: TIMEOUT_MS }, async () => {
    const { url } = redis.server;
    const shop = await open('lua', 50, [url, url]);
    await shop.rush(users(10));
    await attachReplica();
    await shop.start('lua', url);
    expect(await reopenings(shop, url)).toBeLessThanOrEqual(1);
    await sellOut(shop, 28);
  });
});
