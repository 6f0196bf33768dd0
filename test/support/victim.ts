/**
 * A service that is killed at moments that were chosen before, with stores of its own, which it reaches through proxies,
 * and with an outside of its own, to which it delivers tasks.
 *
 *   up ──the moment of `arm`, or `kill`──▶ killed ──start──▶ up
 *                                            └──the moment of `arm`──▶ killed while it starts
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type Moment, stepsOf } from './kill-moments.ts';
import { launch, type Run } from './service.ts';
import { openTestStores, type TestStores } from './stores.ts';
import { TapProxy } from './tap-proxy.ts';

interface Armed {
  readonly moment: Pick<Moment, 'step' | 'nth' | 'side'>;
  taken: number;
  hit(): void;
}

/** A task that was delivered. */
export interface Delivery {
  readonly key: string;
  /** The number of the process that delivered it. */
  readonly run: number;
}

const START_TRIES = 5;

export class Victim implements AsyncDisposable {
  readonly stores: TestStores;
  readonly redis: Redis;
  readonly deliveries: Delivery[] = [];
  /** How often each step was taken. */
  readonly steps = new Map<string, number>();
  /** Resolves with where it answers, once it does. */
  url: Promise<string>;
  #rise: (url: string) => void = () => {};
  #runs = 0;
  #run: Run | null = null;
  #armed: Armed | null = null;
  #starting = false;
  #upSinceMs: number | null = null;
  #upMs = 0;
  readonly #env: Readonly<Record<string, string>>;
  readonly #proxies: readonly [postgres: TapProxy, redis: TapProxy];
  readonly #outside: Server;
  readonly #log: string[] = [];

  static async open(env: Readonly<Record<string, string>>): Promise<Victim> {
    const stores = await openTestStores();
    const postgres = await TapProxy.open(Number(new URL(stores.databaseUrl).port));
    const redis = await TapProxy.open(stores.redisPort);
    const victim = new Victim(stores, [postgres, redis], env);
    victim.#outside.listen(0, '127.0.0.1');
    await once(victim.#outside, 'listening');
    return victim;
  }

  private constructor(
    stores: TestStores,
    proxies: readonly [TapProxy, TapProxy],
    env: Readonly<Record<string, string>>,
  ) {
    const [postgres, redis] = proxies;
    this.stores = stores;
    this.redis = new Redis(stores.redisUrl);
    this.#proxies = proxies;
    this.#env = {
      ...env,
      DATABASE_URL: postgres.through(stores.databaseUrl),
      REDIS_URL: redis.through(stores.redisUrl),
    };
    this.url = this.#down();
    const recognize = stepsOf();
    for (const proxy of proxies) {
      proxy.watch = (request, connection) => {
        const steps = recognize(request, connection);
        if (this.#starting) steps.push('start');
        const armed = this.#take(steps);
        if (armed === null) return 'pass';
        if (armed.moment.side === 'after') return () => this.#strike(armed);
        this.#strike(armed);
        return 'keep';
      };
    }
    this.#outside = createServer((req, res) => this.#deliver(req, res));
  }

  /** How long it was up, all told, in milliseconds. */
  get upMs(): number {
    return this.#upMs + (this.#upSinceMs === null ? 0 : performance.now() - this.#upSinceMs);
  }

  /** What it logged that nobody foresaw. */
  get defects(): readonly string[] {
    return this.log.filter((line) => line.includes('nobody foresaw') || line.includes('"level":60'));
  }

  get log(): readonly string[] {
    return [...this.#log, ...(this.#run?.log ?? [])];
  }

  /** Kills it at a moment. @returns resolves when it was hit */
  arm(moment: Armed['moment']): Promise<void> {
    return new Promise((hit) => {
      this.#armed = { moment, taken: 0, hit };
    });
  }

  disarm(): void {
    this.#armed = null;
  }

  /** SIGKILL, and waits for its end. */
  async kill(): Promise<void> {
    this.#run?.process.kill('SIGKILL');
    await this.#ended();
  }

  /** Starts it; again when it is killed meanwhile, and a few times when it gives up, as it may on a slow machine. */
  async start(): Promise<void> {
    await this.#ended();
    for (let failures = 0; ; ) {
      const { port } = this.#outside.address() as AddressInfo;
      const outside = { TASK_WEBHOOK_URL: `http://127.0.0.1:${port}/${++this.#runs}` };
      this.#starting = true;
      const run = launch({ ...this.#env, ...outside });
      this.#run = run;
      const url = await run.url;
      this.#starting = false;
      if (url !== null) {
        this.#upSinceMs = performance.now();
        this.#rise(url);
        return;
      }
      if (run.process.signalCode !== 'SIGKILL' && ++failures === START_TRIES)
        throw new Error(`the service does not start:\n${run.log.join('\n')}`);
      await this.#ended();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    this.redis.disconnect();
    for (const proxy of this.#proxies) await proxy[Symbol.asyncDispose]();
    this.#outside.closeAllConnections();
    this.#outside.close();
    await this.stores[Symbol.asyncDispose]();
  }

  async #ended(): Promise<void> {
    const run = this.#run;
    if (run === null) return;
    await run.ended;
    this.#fell();
    this.#log.push(...run.log);
    this.#run = null;
  }

  #fell(): void {
    if (this.#upSinceMs === null) return;
    this.#upMs = this.upMs;
    this.#upSinceMs = null;
    this.url = this.#down();
  }

  #down(): Promise<string> {
    return new Promise((rise) => {
      this.#rise = rise;
    });
  }

  /** Counts steps that are being taken. @returns what strikes now */
  #take(steps: readonly string[]): Armed | null {
    for (const step of steps) this.steps.set(step, (this.steps.get(step) ?? 0) + 1);
    const armed = this.#armed;
    if (armed === null || !steps.includes(armed.moment.step) || ++armed.taken < armed.moment.nth) return null;
    this.#armed = null;
    return armed;
  }

  #strike(armed: Armed): void {
    this.#run?.process.kill('SIGKILL');
    this.#fell();
    armed.hit();
  }

  async #deliver(req: IncomingMessage, res: ServerResponse): Promise<void> {
    req.resume();
    await once(req, 'end').catch(() => {});
    this.deliveries.push({ key: String(req.headers['idempotency-key']), run: Number(req.url?.slice(1)) });
    const armed = this.#take(['task-effect']);
    if (armed?.moment.side === 'before') this.#strike(armed);
    await sleep(Math.random() * 20);
    res.end();
    if (armed?.moment.side === 'after') res.on('finish', () => this.#strike(armed));
  }
}
