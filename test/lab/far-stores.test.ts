import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { type FarStores, openFarStores } from '../../lab/far-stores.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { identify } from '../../src/local/processes.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);

const open = (rttMs: number, redisUrl = stores.redisUrl): Promise<FarStores> =>
  openFarStores({ databaseUrl: stores.databaseUrl, redisUrl, rttMs });

/** A client that is connected, has completed its handshake, and gives up at the first error. */
async function redisAt(url: string): Promise<Redis & AsyncDisposable> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0 });
  redis.on('error', () => {});
  await redis.connect();
  return Object.assign(redis, {
    [Symbol.asyncDispose]: async () => redis.disconnect(),
  });
}

async function postgresAt(url: string): Promise<pg.Client & AsyncDisposable> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  return Object.assign(client, {
    [Symbol.asyncDispose]: async () => {
      await client.end().catch(() => {});
    },
  });
}

const isAlive = (pid: number): boolean => identify(pid) !== null;
const gone = (pid: number) => expect.poll(() => isAlive(pid)).toBe(false);

/** Durations of successive calls, ms, ascending. */
async function timed(times: number, ask: () => Promise<unknown>): Promise<number[]> {
  const tookMs: number[] = [];
  for (let i = 0; i < times; i++) {
    const startMs = performance.now();
    await ask();
    tookMs.push(performance.now() - startMs);
  }
  return tookMs.sort((a, b) => a - b);
}

describe('far stores', () => {
  it('leads to the same database as the same user, with the same query', async () => {
    await using link = await openFarStores({
      databaseUrl: `${stores.databaseUrl}?application_name=seen`,
      redisUrl: stores.redisUrl,
      rttMs: 0,
    });
    expect(new URL(link.databaseUrl).port).not.toBe(new URL(stores.databaseUrl).port);
    await using sql = await postgresAt(link.databaseUrl);
    const asked = `SELECT current_database() AS name, current_user AS "user", current_setting('application_name') AS app`;
    const { rows } = await sql.query(asked);
    const { pathname, username } = new URL(stores.databaseUrl);
    expect(rows).toEqual([{ name: pathname.slice(1), user: username, app: 'seen' }]);
    await using redis = await redisAt(link.redisUrl);
    const database = new URL(stores.redisUrl).pathname.slice(1);
    expect(Number(database)).toBeGreaterThan(0);
    expect(await redis.client('INFO')).toContain(` db=${database} `);
  });

  it.each([1, 20])('takes %i ms for a round trip, until the delay is changed', async (rttMs) => {
    await using link = await open(rttMs);
    await using redis = await redisAt(link.redisUrl);
    await using sql = await postgresAt(link.databaseUrl);
    // Of concurrent requests, one may come due while the timer fires for another.
    const amongOthers = await Promise.all([
      timed(20, () => redis.ping()),
      timed(20, () => sql.query('SELECT 1')),
    ]);
    for (const tookMs of amongOthers) expect(tookMs[0]).toBeGreaterThanOrEqual(rttMs);
    await link.delay(200);
    expect((await timed(1, () => redis.ping()))[0]).toBeGreaterThanOrEqual(200);
  });

  it('let no later bytes overtake earlier ones', async () => {
    await using proxy = await TcpProxy.to(stores.redisUrl);
    await using redis = await redisAt(proxy.through(stores.redisUrl));
    proxy.rttMs = 500;
    await redis.ping();
    const { requests } = proxy;
    const first = redis.set('order', 'first');
    await expect.poll(() => proxy.requests).toBe(requests + 1);
    proxy.rttMs = 0;
    await Promise.all([first, redis.set('order', 'second')]);
    expect(await redis.get('order')).toBe('second');
  });
});

describe('traffic', () => {
  it('is whole and in order, megabytes of it both ways', async () => {
    await using link = await open(3);
    await using redis = await redisAt(link.redisUrl);
    const value = randomBytes(8 * 1_024 * 1_024);
    await redis.set('big', value);
    expect((await redis.getBuffer('big'))?.equals(value)).toBe(true);
    await using sql = await postgresAt(link.databaseUrl);
    const text = value.subarray(0, 4 * 1_024 * 1_024).toString('base64');
    const { rows } = await sql.query('SELECT md5($1) AS hash, repeat($1, 2) AS twice', [text]);
    expect(rows[0].hash).toBe(createHash('md5').update(text).digest('hex'));
    expect(rows[0].twice === text + text).toBe(true);
  });

  it('waits for a receiver that does not read, in bounded memory', async () => {
    let taken: Socket | null = null;
    await using server = await listening((socket) => {
      taken = socket.pause();
    });
    await using link = await open(1, server.url);
    const client = connect(Number(new URL(link.redisUrl).port), '127.0.0.1');
    client.on('error', () => {});
    await expect.poll(() => taken).not.toBeNull();
    let sent = 0;
    const chunk = Buffer.alloc(1_024 * 1_024);
    while (sent < 400 && (await written(client, chunk))) sent++;
    expect(sent).toBeLessThan(100); // MiB: 16 held back, and what kernels and streams buffer
    let received = 0;
    taken!.on('data', (data) => {
      received += data.length;
    });
    taken!.resume();
    client.end();
    await once(taken!, 'end');
    expect(received).toBe(client.bytesWritten);
  });
});

async function bytesOf(socket: Socket, most: number): Promise<void> {
  for (let received = 0; received < most; ) {
    const [data] = (await once(socket, 'data')) as [Buffer];
    received += data.length;
  }
}

/** Whether the chunk reached the kernel within half a second. */
function written(socket: Socket, chunk: Buffer): Promise<boolean> {
  return Promise.race([
    new Promise<boolean>((resolve) => socket.write(chunk, () => resolve(true))),
    sleep(500, false),
  ]);
}

async function listening(take: (socket: Socket) => void): Promise<AsyncDisposable & { url: string }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => {}));
    take(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

describe('round trips', () => {
  it('are counted for known sequences and connections, from the handshake on', async () => {
    await using link = await open(1);
    await using redis = await redisAt(link.redisUrl);
    await using other = await redisAt(link.redisUrl);
    await using sql = await postgresAt(link.databaseUrl);
    expect((await link.roundTrips()).postgres).toBeGreaterThan(1); // start-up, and the password
    await sql.query('CREATE TEMP TABLE unit AS SELECT 1 AS n');
    const count = async (work: () => Promise<unknown>) => {
      await link.reset();
      await work();
      return link.roundTrips();
    };
    const pings = () => timed(10, () => redis.ping());
    expect(await count(async () => {})).toEqual({ redis: 0, postgres: 0 });
    expect(await count(pings)).toEqual({ redis: 10, postgres: 0 });
    const pipeline = () =>
      Array.from({ length: 10 })
        .reduce<ReturnType<Redis['pipeline']>>((p) => p.ping(), redis.pipeline())
        .exec();
    expect(await count(pipeline)).toEqual({ redis: 1, postgres: 0 });
    const both = async () => {
      for (let i = 0; i < 5; i++) await Promise.all([redis.ping(), other.ping()]);
    };
    expect(await count(both)).toEqual({ redis: 10, postgres: 0 });
    // Parse, bind and execute go together.
    expect(await count(() => sql.query('SELECT $1::int', [1]))).toEqual({ redis: 0, postgres: 1 });
    const transaction = async (): Promise<void> => {
      for (const text of ['BEGIN', 'UPDATE unit SET n = n + 1', 'COMMIT']) await sql.query(text);
    };
    expect(await count(transaction)).toEqual({ redis: 0, postgres: 3 });
    // An answer of several chunks counts once.
    expect(await count(() => sql.query(`SELECT repeat('x', 3000000)`))).toEqual({ redis: 0, postgres: 1 });
    expect(await count(async () => Promise.all([pings(), transaction()]))).toEqual({
      redis: 10,
      postgres: 3,
    });
  });

  it('are as many as answers were waited for, however a burst is cut', async () => {
    await using proxy = await TcpProxy.to(stores.redisUrl);
    await using link = await open(1, proxy.through(stores.redisUrl));
    const client = connect(Number(new URL(link.redisUrl).port), '127.0.0.1').setNoDelay(true);
    for (let round = 1; round <= 3; round++) {
      const answered = bytesOf(client, '+PONG\r\n+PONG\r\n'.length);
      proxy.hold();
      for (const part of ['PI', 'NG\r\nPING', '\r\n']) {
        const { requests } = proxy;
        client.write(part);
        await expect.poll(() => proxy.requests).toBe(requests + 1);
      }
      await proxy.release();
      await answered;
      expect(await link.roundTrips()).toEqual({ redis: round, postgres: 0 });
    }
    client.destroy();
  });
});

describe('an end', () => {
  it('of a store is seen by its client, and the other store continues', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'stampede-test-link-'));
    const server = await startRedisServer({ folder, args: ['--appendonly', 'no'] });
    await using link = await open(1, server.url);
    await using redis = await redisAt(link.redisUrl);
    await using sql = await postgresAt(link.databaseUrl);
    const closed = once(redis, 'close');
    await server.kill();
    await closed;
    await rm(folder, { recursive: true });
    await expect(redisAt(link.redisUrl)).rejects.toThrow();
    expect((await sql.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    expect(link.died.aborted).toBe(false);
  });

  it('of a client is seen by its store', async () => {
    await using link = await open(1);
    const application_name = `ends-${randomBytes(4).toString('hex')}`;
    const client = new pg.Client({ connectionString: link.databaseUrl, application_name });
    client.on('error', () => {});
    await client.connect();
    const count = async (): Promise<unknown> => {
      const { rows } = await stores.sql.query(
        'SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1',
        [application_name],
      );
      return rows[0].n;
    };
    expect(await count()).toBe(1);
    (client as unknown as { connection: { stream: Socket } }).connection.stream.resetAndDestroy();
    await expect.poll(count).toBe(0);
  });

  it('of the proxies is reported, unless it was requested', async () => {
    await using link = await open(0);
    process.kill(link.pid, 'SIGKILL');
    await expect.poll(() => link.died.aborted).toBe(true);
    await expect(link.roundTrips()).rejects.toThrow(/SIGKILL/);

    const other = await open(0);
    await other[Symbol.asyncDispose]();
    expect(isAlive(other.pid)).toBe(false);
    expect(other.died.aborted).toBe(false);
  });

  it('of its owner by SIGKILL ends it', async () => {
    const owner = startOwner();
    const [line] = (await once(createInterface({ input: owner.stdout! }), 'line')) as [string];
    const { pid, redisUrl } = JSON.parse(line) as { pid: number; redisUrl: string };
    expect(isAlive(pid)).toBe(true);
    await using redis = await redisAt(redisUrl);
    const closed = once(redis, 'close');
    owner.kill('SIGKILL');
    await gone(pid);
    await closed;
  });
});

/** A process that opens far stores, prints where they are, and does nothing else. */
function startOwner(): ChildProcess {
  const module = new URL('../../lab/far-stores.ts', import.meta.url).href;
  const options = JSON.stringify({ databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, rttMs: 0 });
  const source = `
    const { openFarStores } = await import(${JSON.stringify(module)});
    const { pid, redisUrl } = await openFarStores(${options});
    console.log(JSON.stringify({ pid, redisUrl }));
    setInterval(() => {}, 1_000);`;
  return spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', source], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}
