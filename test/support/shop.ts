/** Two service processes that sell one sale, with a Redis that loses its memory, and what customers were told. */
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { type Answer, buy, call, createSale, eventually, post } from './client.ts';
import { newTold, type Told } from './customers.ts';
import { brokenInPostgres, notSettled } from './promises.ts';
import { startService, type TestService } from './service.ts';
import { openTestStores, type TestStores } from './stores.ts';

/** Longer than any recovery, on a slow machine, too. */
const SETTLED_MS = 30_000;
/** For how long customers ask again; Redis may be away for a while. */
const BUY_MS = 60_000;

/** A Redis whose snapshots are taken by hand. */
export class MortalRedis implements AsyncDisposable {
  server: RedisServer;
  readonly #folder: string;

  private constructor(folder: string, server: RedisServer) {
    this.#folder = folder;
    this.server = server;
  }

  static async open(): Promise<MortalRedis> {
    const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-mortal-'));
    return new MortalRedis(folder, await startRedisServer({ folder, args: ['--appendonly', 'no'] }));
  }

  /** Keeps what it holds now, for `restart`. */
  async snapshot(): Promise<void> {
    const redis = new Redis(this.server.url);
    await redis.save();
    redis.disconnect();
    await copyFile(path.join(this.#folder, 'dump.rdb'), path.join(this.#folder, 'kept.rdb'));
  }

  /** SIGKILL. */
  kill(): Promise<void> {
    return this.server.kill();
  }

  /** Starts it again on its port, as it was at the snapshot, or empty. */
  async restart(as: 'snapshot' | 'empty'): Promise<void> {
    const file = as === 'snapshot' ? 'kept.rdb' : 'none.rdb';
    const args = ['--appendonly', 'no', '--dbfilename', file];
    this.server = await startRedisServer({ folder: this.#folder, port: this.server.port, args });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

export interface ShopOptions {
  readonly strategy: string;
  readonly stock: number;
  /** Where each of the two processes reaches Redis. */
  readonly redisUrls: readonly [string, string];
}

export class Shop implements AsyncDisposable {
  readonly stores: TestStores;
  readonly services: TestService[] = [];
  saleId = 0;
  readonly #told = new Map<string, Told>();
  #turn = 0;

  private constructor(stores: TestStores) {
    this.stores = stores;
  }

  static async open({ strategy, stock, redisUrls }: ShopOptions): Promise<Shop> {
    const shop = new Shop(await openTestStores());
    for (const url of redisUrls) await shop.start(strategy, url);
    shop.saleId = (await createSale(shop.services[0]!.url, stock)).id;
    return shop;
  }

  async start(strategy: string, redisUrl: string): Promise<TestService> {
    const env = { STRATEGY: strategy, DATABASE_URL: this.stores.databaseUrl, REDIS_URL: redisUrl };
    const service = await startService(env);
    this.services.push(service);
    return service;
  }

  /** The processes take turns. */
  get url(): string {
    return this.services[this.#turn++ % this.services.length]!.url;
  }

  /** Buys, again until there is an answer. */
  async buy(user: string): Promise<Answer> {
    const told = this.#toldTo(user);
    const answer = await buy(this.url, this.saleId, told.userId, BUY_MS);
    const list = answer.status === 201 ? told.placed : answer.status === 200 ? told.replayed : null;
    list?.push(String(answer.body.orderId));
    if (answer.problem === 'sold-out') told.soldOut++;
    else if (list === null) told.strange.push(`${user}, buy: ${answer.status} ${answer.problem}`);
    return answer;
  }

  /** Lets customers come within `ms`. @returns how often each kind of answer came */
  async rush(users: readonly string[], ms = 0): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    await Promise.all(
      users.map(async (user, i) => {
        await sleep((i / users.length) * ms);
        const { status, problem } = await this.buy(user);
        const kind = problem || String(status);
        counts[kind] = (counts[kind] ?? 0) + 1;
      }),
    );
    return counts;
  }

  orderOf(user: string): string {
    const { placed, replayed } = this.#toldTo(user);
    return (placed.at(-1) ?? replayed.at(-1))!;
  }

  async cancel(user: string): Promise<void> {
    const told = this.#toldTo(user);
    const orderId = this.orderOf(user);
    const { status } = await call(`${this.url}/orders/${orderId}/cancel`, { method: 'POST' });
    told.constant = false;
    if (status === 200) told.cancelled.push(orderId);
    else told.strange.push(`${user}, cancel: ${status}`);
  }

  async pay(user: string): Promise<unknown> {
    const orderId = this.orderOf(user);
    const notificationId = `n-${orderId}`;
    const given = { notificationId, orderId, amountCents: 500 };
    const { body } = await post(`${this.url}/payments/notifications`, given);
    this.#toldTo(user).payments.push({ notificationId, orderId, status: body.status });
    return body.status;
  }

  /** Lets the time to pay be over, and waits until the orders are expired. */
  async expire(users: readonly string[]): Promise<void> {
    const ids = users.map((user) => this.orderOf(user));
    for (const user of users) this.#toldTo(user).constant = false;
    const { sql } = this.stores;
    await sql.query(`UPDATE orders SET expires_at = now() - interval '1 second' WHERE id = ANY($1)`, [ids]);
    const left = `SELECT count(*)::int AS n FROM orders WHERE id = ANY($1) AND status = 'pending'`;
    await eventually(
      async () => (await sql.query<{ n: number }>(left, [ids])).rows[0]!.n,
      (n) => n === 0,
      SETTLED_MS,
    );
  }

  async sold(): Promise<number> {
    const sql = 'SELECT sold FROM sales WHERE id = $1';
    return (await this.stores.sql.query<{ sold: number }>(sql, [this.saleId])).rows[0]!.sold;
  }

  async waitingMoves(): Promise<number> {
    const sql = 'SELECT count(*)::int AS n FROM mirror_outbox WHERE sale_id = $1';
    return (await this.stores.sql.query<{ n: number }>(sql, [this.saleId])).rows[0]!.n;
  }

  /** How often Redis was corrected, which is for what nothing else has put right. */
  get corrections(): readonly string[] {
    return this.services.flatMap(({ log }) => log.filter((line) => line.includes('repaired drift in Redis')));
  }

  /** What is broken of the promises, at any instant. */
  broken(): Promise<string[]> {
    return brokenInPostgres(this.stores.sql, this.saleId, [...this.#told.values()]);
  }

  /** Waits until nothing is left between the stores. */
  async settled(redisUrl: string): Promise<void> {
    const redis = new Redis(redisUrl);
    await eventually(
      () => notSettled(this.stores.sql, redis, this.saleId),
      (left) => left.length === 0,
      SETTLED_MS,
    ).finally(() => redis.disconnect());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.services.map((service) => service.kill()));
    await this.stores[Symbol.asyncDispose]();
  }

  #toldTo(user: string): Told {
    const userId = `${this.saleId}-${user}`;
    let told = this.#told.get(userId);
    if (told === undefined) {
      told = newTold(userId);
      this.#told.set(userId, told);
    }
    return told;
  }
}
