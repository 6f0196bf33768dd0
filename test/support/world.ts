/**
 * Stores, service processes that may die and start again, and sales with customers whose answers are recorded.
 *
 *   World      stores and services of one strategy
 *   Service    down ──start──▶ up ──kill, crash──▶ down (a process); its requests to the stores pass through links with rules
 *   TestSale   a sale with its ledger; `assertInvariants` compares what customers were answered with the stores
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import { type Linearity, linearityOf } from '../../lab/audit/consistency.ts';
import { readNow } from '../../lab/audit/reader.ts';
import type { HistoryRecord } from '../../lab/history.ts';
import { homeSegment } from '../../src/domain/segments.ts';
import { strategies } from '../../src/strategies/registry.ts';
import { type Answer, attempt, cancel, createSale, eventually, pay, users } from './client.ts';
import { judgeHistory, pendingWork } from './judge.ts';
import { Service } from './killable-service.ts';
import { Ledger } from './ledger.ts';
import { envOf, openTestStores, type TestStores } from './stores.ts';

type Environment = Readonly<Record<string, string>>;

/** Longer than any recovery on a slow machine. */
const PATIENCE_MS = 120_000;
const IDLE_MS = 60_000;
const LAST = 'last-';

export interface WorldOptions {
  readonly strategy: string;
  /** How many start with the world. */
  readonly services?: number;
  readonly env?: Environment;
  /** Whether each is a process: it may die or freeze, and delays no link of Sentinels or of a cluster, which this process has. */
  readonly processes?: boolean;
  /** Closed with the world. */
  readonly stores?: TestStores;
}

export class World implements AsyncDisposable {
  readonly strategy: string;
  readonly stores: TestStores;
  readonly services: Service[] = [];
  readonly #env: Environment;
  readonly #areProcesses: boolean;
  #turn = 0;

  private constructor({ strategy, env = {}, processes = false }: WorldOptions, stores: TestStores) {
    this.strategy = strategy;
    this.stores = stores;
    this.#env = env;
    this.#areProcesses = processes;
  }

  static async open({ services = 1, ...options }: WorldOptions): Promise<World> {
    const world = new World(options, options.stores ?? (await openTestStores()));
    await Promise.all(Array.from({ length: services }, () => world.start()));
    return world;
  }

  /** Whether its strategy keeps reservations in Redis. */
  get usesRedis(): boolean {
    return strategies.get(this.strategy)!.description.store !== 'postgres';
  }

  /** Starts one more service. @param folder its installation, of a process; by default this checkout */
  async start(folder?: string): Promise<Service> {
    const env = { STRATEGY: this.strategy, ...envOf(this.stores), ...this.#env };
    const service = await Service.open(env, this.#areProcesses, folder);
    this.services.push(service);
    await service.start();
    return service;
  }

  /** Where the next request goes: the services take turns. */
  url(): Promise<string> {
    return this.services[this.#turn++ % this.services.length]!.url;
  }

  /** Lines of all services that contain a text. */
  logged(text: string): string[] {
    return this.services.flatMap(({ log }) => log.filter((line) => line.includes(text)));
  }

  /** @param most units of an order: each customer always asks for the same number */
  async openSale(stock: number, most = 1): Promise<TestSale> {
    for (let tries = 1; ; tries++) {
      const sale = await createSale(await this.url(), stock, { maxPerOrder: most }).catch(
        (error: Error) => error,
      );
      if (!(sale instanceof Error)) return new TestSale(this, sale.id, stock, most);
      if (tries === 100) throw sale;
      await sleep(tries < 10 ? 0 : 500);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.services.map((service) => service[Symbol.asyncDispose]()));
    await this.stores[Symbol.asyncDispose]();
  }
}

type Action = 'purchase' | 'cancel' | 'pay';

export interface RequestOptions {
  /** By default the services take turns. */
  readonly url?: string;
  /** By default the customer's latest. */
  readonly orderId?: string;
}

/** A sale and its customers. Users are named `<sale>-<user>` to the service: points belong to users of all sales. */
export class TestSale {
  readonly ledger: Ledger;
  readonly world: World;
  readonly id: number;
  readonly stock: number;
  readonly #most: number;

  constructor(world: World, id: number, stock: number, most: number) {
    this.world = world;
    this.id = id;
    this.stock = stock;
    this.#most = most;
    this.ledger = new Ledger(id);
  }

  /** Sends one request. @returns null when no answer came */
  async request(
    action: Action,
    user: string,
    { url, ...options }: RequestOptions = {},
  ): Promise<Answer | null> {
    const at = url ?? (await this.world.url());
    const userId = this.#userId(user);
    const units = this.#unitsOf(user);
    if (action === 'purchase')
      return this.ledger.record({ op: action, userId, units }, attempt(at, this.id, userId, units));
    const { orderId = this.orderOf(user) } = options;
    if (action === 'cancel') return this.ledger.record({ op: action, userId, orderId }, cancel(at, orderId));
    const paymentId = `n-${orderId}`;
    const paying = pay(at, orderId, paymentId, 500 * units);
    return this.ledger.record({ op: action, userId, orderId, paymentId }, paying);
  }

  /** One attempt that the ledger does not record. @throws when no answer came */
  attempt(user: string, url: string): Promise<Answer> {
    return attempt(url, this.id, this.#userId(user));
  }

  /** Repeats a request until its answer is final. */
  async retry(action: Action, user: string, options: RequestOptions = {}): Promise<Answer> {
    const untilMs = performance.now() + PATIENCE_MS;
    for (let pauseMs = 100; ; pauseMs = Math.min(1_000, 1.2 * pauseMs)) {
      const answer = await this.request(action, user, options);
      if (answer !== null && answer.status !== 503) return answer;
      if (performance.now() > untilMs) throw new Error(`no final answer: ${JSON.stringify(answer?.body)}`);
      await sleep(20 + Math.random() * 2 * pauseMs);
    }
  }

  buy(user: string): Promise<Answer> {
    return this.retry('purchase', user);
  }

  cancel(user: string): Promise<Answer> {
    return this.retry('cancel', user);
  }

  pay(user: string): Promise<Answer> {
    return this.retry('pay', user);
  }

  /** Lets the time to pay run out, and waits until the order is closed. */
  async expire(user: string): Promise<void> {
    const { sql } = this.world.stores;
    const orderId = this.orderOf(user);
    this.ledger.expired(this.#userId(user), orderId);
    await sql.query(`UPDATE orders SET expires_at = now() - interval '1 second' WHERE id = $1`, [orderId]);
    const status = 'SELECT status FROM orders WHERE id = $1';
    await eventually(
      async () => (await sql.query<{ status: string }>(status, [orderId])).rows[0]!.status,
      (now) => now !== 'pending',
      PATIENCE_MS,
    );
  }

  /** Lets customers come within `ms`, each until the answer is final. @returns how often each kind of answer came */
  async rush(crowd: readonly string[], ms = 0): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    await Promise.all(
      crowd.map(async (user, i) => {
        await sleep((i / crowd.length) * ms);
        const { status, problem } = await this.buy(user);
        const kind = problem || String(status);
        counts[kind] = (counts[kind] ?? 0) + 1;
      }),
    );
    return counts;
  }

  /** The latest order that an answer gave the customer. */
  orderOf(user: string): string {
    const userId = this.#userId(user);
    const placed = this.ledger.ended('accepted', 'replayed').filter((one) => one.userId === userId);
    return placed.at(-1)!.orderId!;
  }

  async units(): Promise<{ readonly stock: number; readonly sold: number }> {
    const { rows } = await this.world.stores.sql.query('SELECT stock, sold FROM sales WHERE id = $1', [
      this.id,
    ]);
    return rows[0]!;
  }

  /**
   * What the audit finds wrong in Postgres now, even while customers buy.
   * @param isJudged selects the requests that are judged
   */
  violations(isJudged: (one: HistoryRecord) => boolean = () => true): Promise<string[]> {
    return judgeHistory(this.world.stores.sql, this.id, () => this.ledger.history.filter(isJudged));
  }

  async linearity(): Promise<Linearity> {
    const { postgres } = (await readNow(this.world.stores.sql, null, [this.id])).get(this.id)!;
    const orders = postgres.orders.filter(({ saleId }) => saleId === this.id);
    return linearityOf(this.stock, this.ledger.history, orders);
  }

  /** What is left between the stores, or why they cannot be read. */
  async pendingWork(redis = this.world.stores.redis): Promise<string[]> {
    const { sql } = this.world.stores;
    return pendingWork(sql, this.world.usesRedis ? redis : null, this.id).catch((error: Error) => [
      error.message,
    ]);
  }

  /** Waits until nothing is left between the stores. */
  async untilIdle(redis?: Redis): Promise<void> {
    await eventually(
      () => sleep(200).then(() => this.pendingWork(redis)),
      ({ length }) => length === 0,
      IDLE_MS,
    );
  }

  /** More customers come than units are free. @returns a violation unless each free unit is sold once */
  async sellOut(): Promise<string[]> {
    const { stock, sold } = await this.units();
    const free = stock - sold;
    const counts = await this.rush(users(free + 2, `${LAST}${this.ledger.history.length}`));
    // 200: the answer to the customer's first request was lost, or unknown.
    const served = (counts['200'] ?? 0) + (counts['201'] ?? 0) + (counts['202'] ?? 0);
    if (served === free && counts['sold-out'] === 2) return [];
    return [`P4: ${free} units were free, and the last customers were answered ${JSON.stringify(counts)}`];
  }

  /** Those who come last take one unit each. */
  #unitsOf(user: string): number {
    return user.startsWith(LAST) ? 1 : 1 + homeSegment(user, this.#most);
  }

  #userId(user: string): string {
    return `${this.id}-${user}`;
  }
}

/**
 * Sells the rest, waits until the stores agree, and compares them with what every client was answered.
 * @param redis the primary after a failover
 */
export async function assertInvariants(sale: TestSale, redis?: Redis): Promise<void> {
  const unsold = await sale.sellOut();
  await sale.untilIdle(redis);
  expect([...unsold, ...(await sale.violations())]).toEqual([]);
}
