/**
 * Rounds of a sale under random faults: two service processes with stores of their own, a few customers who buy, repeat,
 * cancel and pay, and an operator who restocks. What every client was answered is recorded, and compared at the end with
 * what Postgres has. The same seed makes the same operations and faults; their interleaving differs each time.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { type Answer, attempt, buy, call, createSale, eventually, post } from './client.ts';
import { HoldingProxy } from './holding-proxy.ts';
import { randomOf } from './kill-moments.ts';
import { KillableStores } from './killable-stores.ts';
import { notSettled } from './promises.ts';
import { launch, type Run } from './service.ts';
import { type FinalOrder, type Operation, untrueAnswers } from './untrue-answers.ts';

/** All that promise never to oversell; the first three reserve in Redis. */
export const STRATEGIES = [
  'lua',
  'global-lock',
  'segmented-lock',
  'for-update',
  'for-update-prisma',
  'unique-key',
  'conditional-update',
  'optimistic',
  'advisory-lock',
  'skip-locked',
  'group-commit',
];
const IN_REDIS = STRATEGIES.slice(0, 3);

/** Few, with rests in between: a request that is carried out late finds a free unit only in a quiet moment. */
const CUSTOMERS = 5;
const STOCK = 2;
const REST_MS = 800;
const FAULTS_PER_ROUND = 5;
const ROUND_MS = 11_000;
/** Longer than any answer of the service takes. */
const ANSWER_MS = 25_000;
const SETTLED_MS = 60_000;

const FAULTS = [
  'hold-statement',
  'hold-statement',
  'hold-statement',
  'hold-statement',
  'hold-command',
  'hold-command',
  'stall-postgres',
  'stall-redis',
  'cut-postgres',
  'cut-redis',
  'freeze-backend',
  'freeze-backend',
  'freeze-service',
  'freeze-redis',
  'lock-row',
  'lock-row',
  'terminate-backends',
  'restart-postgres',
] as const;

/** The statements of which one is held back: those that place orders, and commits. */
const MARKERS: Record<string, string> = {
  lua: 'commit-orders',
  'global-lock': 'commit-orders',
  'segmented-lock': 'commit-orders',
  'conditional-update': 'sell-if-free',
  optimistic: 'sell-if-unchanged',
  'skip-locked': 'take-unit',
  'group-commit': 'place-batch',
};

export interface RoundResult {
  readonly operations: number;
  readonly unknown: number;
  readonly faults: readonly string[];
  /** Each untrue answer, and each unit that is lost, in a sentence. */
  readonly findings: readonly string[];
}

export class FaultRun implements AsyncDisposable {
  readonly #strategy: string;
  readonly #stores: KillableStores;
  readonly #sql: pg.Pool;
  readonly #redis: Redis;
  readonly #runs: readonly Run[];
  readonly #urls: readonly string[];
  readonly #postgres: readonly HoldingProxy[];
  readonly #proxiesOfRedis: readonly HoldingProxy[];

  static async open(strategy: string): Promise<FaultRun> {
    const stores = await KillableStores.open();
    const databaseUrl = await stores.database();
    const run = async () => {
      const postgres = await HoldingProxy.open(stores.postgresPort);
      const redis = await HoldingProxy.open(stores.redisPort);
      const env = {
        STRATEGY: strategy,
        SEGMENTS: '4',
        DATABASE_URL: postgres.through(databaseUrl),
        REDIS_URL: redis.through(stores.redisUrl),
      };
      const run = launch(env);
      const url = await run.url;
      if (url === null) throw new Error(`the service did not start:\n${run.log.join('\n')}`);
      return { postgres, redis, run, url };
    };
    return new FaultRun(strategy, stores, databaseUrl, [await run(), await run()]);
  }

  private constructor(
    strategy: string,
    stores: KillableStores,
    databaseUrl: string,
    processes: readonly { postgres: HoldingProxy; redis: HoldingProxy; run: Run; url: string }[],
  ) {
    this.#strategy = strategy;
    this.#stores = stores;
    this.#sql = new pg.Pool({ connectionString: databaseUrl, max: 3, application_name: 'nemesis' });
    this.#sql.on('error', () => {});
    this.#sql.on('connect', (client) => client.on('error', () => {})); // also of one that holds a row
    this.#redis = new Redis(stores.redisUrl, { retryStrategy: () => 100 });
    this.#redis.on('error', () => {});
    this.#runs = processes.map(({ run }) => run);
    this.#urls = processes.map(({ url }) => url);
    this.#postgres = processes.map(({ postgres }) => postgres);
    this.#proxiesOfRedis = processes.map(({ redis }) => redis);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { process } of this.#runs) process.kill('SIGKILL');
    this.#redis.disconnect();
    await this.#sql.end();
    for (const proxy of [...this.#postgres, ...this.#proxiesOfRedis]) await proxy.close();
    await this.#stores[Symbol.asyncDispose]();
  }

  /** One sale, from its start until everything is settled. */
  async round(number: number): Promise<RoundResult> {
    const seed = number * 64 + STRATEGIES.indexOf(this.#strategy); // each strategy meets other faults
    const random = randomOf(seed);
    const sale = await eventually(
      () => createSale(this.#urls[0]!, STOCK).catch(() => null),
      (made) => made !== null,
      SETTLED_MS,
    );
    const saleId = sale!.id;
    const operations: Operation[] = [];
    const faults = Array.from(
      { length: FAULTS_PER_ROUND },
      () => FAULTS[Math.floor(random() * FAULTS.length)]!,
    );
    const untilMs = performance.now() + ROUND_MS;
    const customers = Array.from({ length: CUSTOMERS }, (_, i) =>
      this.#customer(saleId, `c${i}`, randomOf(seed * 1_000 + i), untilMs, operations),
    );
    const trouble = Promise.all(
      faults.map(async (fault, i) => {
        const own = randomOf(seed * 1_000 + 100 + i);
        await sleep(own() * (ROUND_MS - 4_000));
        await this.#fault(fault, saleId, own);
      }),
    );
    await Promise.all([...customers, trouble, this.#restock(saleId, random, untilMs)]);
    const findings = [...(await this.#settle(saleId)), ...(await this.#sellOut(saleId))];
    findings.push(...untrueAnswers(operations, await this.#orders(saleId)));
    const unknown = operations.filter(({ problem }) => problem === 'unknown-outcome').length;
    return { operations: operations.length, unknown, faults, findings };
  }

  async #customer(
    saleId: number,
    userId: string,
    random: () => number,
    untilMs: number,
    operations: Operation[],
  ): Promise<void> {
    const record = async (does: Operation['does'], given: string | null, ask: Promise<Answer>) => {
      const invokedMs = Date.now();
      const answer = await Promise.race([ask, sleep(ANSWER_MS, null, { ref: false })]).catch(() => null);
      const orderId = given ?? (answer?.body.orderId as string | undefined) ?? null;
      const { status = null, problem = '' } = answer ?? {};
      operations.push({ does, userId, invokedMs, completedMs: Date.now(), status, problem, orderId });
      return (status ?? 500) < 300 ? orderId : null;
    };
    const url = () => this.#urls[random() < 0.5 ? 0 : 1]!;
    let order: string | null = null;
    while (performance.now() < untilMs) {
      const choice = random();
      if (order !== null && choice < 0.5) {
        await record('cancel', order, call(`${url()}/orders/${order}/cancel`, { method: 'POST' }));
        order = null;
      } else if (order !== null && choice < 0.53) {
        const payment = { notificationId: `n-${order}`, orderId: order, amountCents: 500 };
        await record('pay', order, post(`${url()}/payments/notifications`, payment));
      } else if (choice < 0.75) {
        // Both processes, the second a little later.
        const [first, second] = random() < 0.5 ? this.#urls : this.#urls.toReversed();
        const delayMs = random() < 0.5 ? 0 : random() * 1_500;
        const both = await Promise.all([
          record('purchase', null, attempt(first!, saleId, userId)),
          sleep(delayMs).then(() => record('purchase', null, attempt(second!, saleId, userId))),
        ]);
        order = both.find((id) => id !== null) ?? order;
      } else order = (await record('purchase', null, attempt(url(), saleId, userId))) ?? order;
      await sleep(30 + random() * REST_MS);
    }
  }

  async #restock(saleId: number, random: () => number, untilMs: number): Promise<void> {
    while (performance.now() < untilMs) {
      await sleep(2_000 + random() * 4_000);
      const units = [1, 1, 2, -1][Math.floor(random() * 4)]!;
      const url = this.#urls[random() < 0.5 ? 0 : 1]!;
      const restocking = post(`${url}/sales/${saleId}/restock`, { units }).catch(() => null);
      await Promise.race([restocking, sleep(ANSWER_MS, null, { ref: false })]);
    }
  }

  async #fault(fault: (typeof FAULTS)[number], saleId: number, random: () => number): Promise<void> {
    const which = random() < 0.5 ? 0 : 1;
    const forMs = 3_000 + random() * 5_000;
    const postgres = this.#postgres[which]!;
    const redis = this.#proxiesOfRedis[which]!;
    switch (fault) {
      case 'hold-statement':
        return holdRequest(postgres, MARKERS[this.#strategy] ?? 'COMMIT', forMs, random() < 0.3);
      case 'hold-command':
        return holdRequest(redis, '\r\n$36\r\n', forMs, random() < 0.7); // an order id
      case 'stall-postgres':
        return stall(postgres, forMs);
      case 'stall-redis':
        return stall(redis, forMs);
      case 'cut-postgres':
        return postgres.cutClients();
      case 'cut-redis':
        return redis.cutClients();
      case 'freeze-backend':
        return this.#freezeBackend(forMs);
      case 'freeze-service':
        return freeze(this.#runs[which]!.process.pid!, forMs);
      case 'freeze-redis': {
        const pid = /process_id:(\d+)/.exec(await this.#redis.info('server'))?.[1];
        return freeze(Number(pid), forMs / 2);
      }
      case 'lock-row':
        return this.#lockRow(saleId, 2_600);
      case 'terminate-backends':
        await this.#sql
          .query(
            `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stampede' AND state <> 'idle'`,
          )
          .catch(() => {});
        return;
      case 'restart-postgres':
        await this.#stores.killPostgres();
        await sleep(500);
        return this.#stores.startPostgres();
    }
  }

  /** Freezes one that is at work, or in a transaction. */
  async #freezeBackend(forMs: number): Promise<void> {
    for (let tries = 0; tries < 200; tries++) {
      const { rows } = await this.#sql
        .query<{ pid: number }>(
          `SELECT pid FROM pg_stat_activity WHERE application_name = 'stampede' AND state <> 'idle'
           ORDER BY (query ~ 'orders|sold|COMMIT') DESC LIMIT 1`,
        )
        .catch(() => ({ rows: [] }));
      if (rows[0] !== undefined) return freeze(rows[0].pid, forMs);
      await sleep(5);
    }
  }

  async #lockRow(saleId: number, forMs: number): Promise<void> {
    const client = await this.#sql.connect().catch(() => null);
    if (client === null) return;
    try {
      await client.query('BEGIN');
      await client.query('SELECT FROM sales WHERE id = $1 FOR UPDATE', [saleId]);
      await sleep(forMs);
      await client.query('ROLLBACK');
      client.release();
    } catch (error) {
      client.release(error as Error);
    }
  }

  /** Waits until nothing is left between the stores. @returns what does not go away */
  async #settle(saleId: number): Promise<string[]> {
    const redis = IN_REDIS.includes(this.#strategy) ? this.#redis : null;
    let left: string[] = [];
    await eventually(
      async () => {
        left = await notSettled(this.#sql, redis, saleId).catch((error: Error) => [error.message]);
        return left;
      },
      ({ length }) => length === 0,
      SETTLED_MS,
    ).catch(() => {});
    return left;
  }

  /** Buys what is free: all of it, and no more. */
  async #sellOut(saleId: number): Promise<string[]> {
    const { rows } = await this.#sql.query<{ free: number; uncounted: number }>(
      `SELECT stock - sold AS free, sold - (SELECT count(*)::int FROM orders
         WHERE sale_id = s.id AND status IN ('pending', 'paid')) AS uncounted FROM sales AS s WHERE id = $1`,
      [saleId],
    );
    const { free, uncounted } = rows[0]!;
    const findings = uncounted === 0 ? [] : [`sold differs from the active orders by ${uncounted}`];
    if (free < 0) findings.push(`oversold by ${-free}`);
    for (let i = 0; i < free; i++) {
      const { status, problem } = await buy(this.#urls[i % 2]!, saleId, `last-${i}`, SETTLED_MS);
      if (status !== 201) findings.push(`a free unit cannot be bought: ${status} ${problem}`);
    }
    const after = await buy(this.#urls[0]!, saleId, 'too-late', SETTLED_MS);
    if (after.problem !== 'sold-out') findings.push(`one unit too many is sold: ${after.status}`);
    return findings;
  }

  async #orders(saleId: number): Promise<FinalOrder[]> {
    const { rows } = await this.#sql.query<FinalOrder>(
      `SELECT id, user_id AS "userId", status, (extract(epoch FROM created_at) * 1000)::float8 AS "createdMs"
       FROM orders WHERE sale_id = $1 AND user_id LIKE 'c%'`,
      [saleId],
    );
    return rows;
  }
}

async function holdRequest(proxy: HoldingProxy, marker: string, forMs: number, cut: boolean): Promise<void> {
  await Promise.race([proxy.holdRequest(marker), sleep(3_000, undefined, { ref: false })]);
  if (cut) {
    await sleep(50);
    proxy.cutClients();
  }
  await sleep(forMs);
  await Promise.race([proxy.release(), sleep(1_000, undefined, { ref: false })]);
}

async function stall(proxy: HoldingProxy, forMs: number): Promise<void> {
  proxy.hold();
  await sleep(forMs);
  await Promise.race([proxy.release(), sleep(1_000, undefined, { ref: false })]);
}

async function freeze(pid: number, forMs: number): Promise<void> {
  if (!signal(pid, 'SIGSTOP')) return;
  await sleep(forMs);
  signal(pid, 'SIGCONT');
}

function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false; // it has ended
  }
}
