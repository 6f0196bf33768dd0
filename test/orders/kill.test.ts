/**
 * The service is killed with SIGKILL at 100 seeded moments of a running sale, just before or after a step of purchase,
 * cancel, expiry, payment, dispatch or of its own start, and is started again. Each time every promise of the design's
 * first section must hold: P1 to P3, P5 and P6 at once and ever after, P4 within 15 s of a running service.
 *
 * One strategy's moments follow each other on a service of their own, each with a new sale; the sale before recovers
 * meanwhile, and so is disturbed by the next kill, too. The five strategies run side by side.
 *
 * KILL_SEED=<seed> npx vitest run test/orders/kill.test.ts repeats one moment.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { Sale } from '../../src/domain/sale.ts';
import { buy, createSale, users } from '../support/client.ts';
import { CUSTOMERS, letThemCome, type Told } from '../support/customers.ts';
import { type Moment, momentOf, randomOf, SEEDS } from '../support/kill-moments.ts';
import { brokenInPostgres, notSettled } from '../support/promises.ts';
import { Victim } from '../support/victim.ts';

/** Within which what a dead process held comes back, while a process runs: see src/config/limits.ts. */
const RECOVERED_MS = 15_000;
/** What a dead worker had begun is begun again after 30 s. */
const TASKS_DONE_MS = 120_000;
/** How long a moment is waited for when the customers are gone: dispatchers look once a second. */
const LINGER_MS = 5_000;

const chosen = process.env.KILL_SEED === undefined ? null : Number(process.env.KILL_SEED);
const seeds = chosen === null ? Array.from({ length: SEEDS }, (_, seed) => seed) : [chosen];
const strategies = [...new Set(seeds.map((seed) => momentOf(seed).strategy))];

/** A sale in which the service was killed. */
interface Scene {
  readonly name: string;
  readonly sale: Sale;
  readonly told: readonly Told[];
  /** Whether there is a unit for every customer. */
  readonly ample: boolean;
}

const inWords = (seed: number, { strategy, step, side, nth }: Moment) =>
  `KILL_SEED=${seed}: ${strategy}, ${side} ${step} number ${nth}`;

/** One strategy's moments. */
class Strand {
  readonly broken: string[] = [];
  readonly missed: string[] = [];
  readonly #scenes: Scene[] = [];
  readonly #recoveries: Promise<void>[] = [];
  readonly #victim: Victim;
  readonly #inRedis: boolean;

  constructor(victim: Victim, inRedis: boolean) {
    this.#victim = victim;
    this.#inRedis = inRedis;
  }

  async kill(seed: number): Promise<void> {
    const victim = this.#victim;
    const moment = momentOf(seed);
    const ample = seed % 2 === 0;
    const sale = await this.#open(ample ? CUSTOMERS : 6);
    let hits = 0;
    const arm = (at: typeof moment) =>
      victim.arm(at).then(() => {
        hits++;
      });
    // To be killed while it starts it must be killed before, with something under way.
    const atStart = moment.step === 'start';
    const begun = { ...moment, step: this.#inRedis ? 'commit-orders' : 'place-batch', nth: 2 };
    const hit = arm(atStart ? begun : moment);
    const market = {
      saleId: sale.id,
      sql: victim.stores.sql,
      random: randomOf(seed),
      url: () => victim.url,
    };
    const { told, gone } = letThemCome(market);
    const scene = { name: inWords(seed, moment), sale, told, ample };
    await Promise.race([hit, gone.then(() => sleep(LINGER_MS))]);
    victim.disarm();
    await victim.kill();
    if (atStart) void arm(moment);
    await victim.start();
    if (hits < (atStart ? 2 : 1)) this.missed.push(scene.name);
    await this.#look(scene);
    await gone;
    await this.#look(scene);
    this.#scenes.push(scene);
    this.#recoveries.push(this.#recover(scene, 'after the kill'));
  }

  async #open(stock: number): Promise<Sale> {
    for (let tries = 1; ; tries++) {
      const sale = await createSale(await this.#victim.url, stock).catch((error: Error) => error);
      if (!(sale instanceof Error)) return sale;
      if (tries === 10) throw sale;
    }
  }

  /** Waits until all is settled and all tasks are done, and sells what is left. */
  async end(): Promise<void> {
    await Promise.all(this.#recoveries);
    await this.#tasks();
    for (const scene of this.#scenes) {
      await this.#rush(scene);
      await this.#look(scene);
    }
    await Promise.all(this.#scenes.map((scene) => this.#recover(scene, 'after the last customers')));
    this.#note('all', this.#victim.defects);
  }

  #note(name: string, broken: readonly string[]): void {
    this.broken.push(...broken.map((what) => `${name}: ${what}`));
  }

  async #look({ name, sale, told, ample }: Scene): Promise<void> {
    this.#note(name, await brokenInPostgres(this.#victim.stores.sql, sale.id, told));
    const refused = told.filter(({ soldOut }) => soldOut > 0).length;
    if (ample && refused > 0) this.#note(name, [`P4: ${refused} were told sold out while units were free`]);
  }

  #unsettled({ sale }: Scene): Promise<string[]> {
    return notSettled(this.#victim.stores.sql, this.#inRedis ? this.#victim.redis : null, sale.id);
  }

  /** Waits until nothing is left between the stores; what is longer than promised is told with all that was logged of it. */
  async #recover(scene: Scene, when: string): Promise<void> {
    const untilMs = this.#victim.upMs + RECOVERED_MS;
    for (;;) {
      const late = this.#victim.upMs > untilMs;
      const unsettled = await this.#unsettled(scene);
      if (unsettled.length === 0) return;
      const logged = () => this.#victim.log.filter((line) => line.includes(`"saleId":${scene.sale.id},`));
      if (late) return this.#note(`${scene.name}, ${when}`, [...unsettled, ...logged()]);
      await sleep(500);
    }
  }

  /** New customers get exactly what is free. */
  async #rush({ name, sale }: Scene): Promise<void> {
    const { sql } = this.#victim.stores;
    const free = `SELECT stock - sold AS free FROM sales WHERE id = $1`;
    const before = (await sql.query<{ free: number }>(free, [sale.id])).rows[0]!.free;
    const crowd = users(before + 2, `${sale.id}-rush`);
    const url = await this.#victim.url;
    const answers = await Promise.all(crowd.map((user) => buy(url, sale.id, user)));
    const sold = answers.filter(({ status }) => status === 201).length;
    const refused = answers.filter(({ problem }) => problem === 'sold-out').length;
    if (sold !== before || refused !== 2)
      this.#note(name, [`P4: of ${before} free units ${sold} were sold, and ${refused} refused`]);
  }

  /** Every task is done, was delivered, and again only by another process. */
  async #tasks(): Promise<void> {
    const { stores, deliveries } = this.#victim;
    const untilMs = performance.now() + TASKS_DONE_MS;
    type Row = { key: string; state: string };
    let tasks: Row[];
    for (;;) {
      tasks = (await stores.sql.query<Row>('SELECT key, state FROM tasks')).rows;
      if (tasks.every(({ state }) => state === 'done') || performance.now() > untilMs) break;
      await sleep(200);
    }
    for (const { key, state } of tasks) {
      const runs = deliveries.filter((delivery) => delivery.key === key).map(({ run }) => run);
      if (state !== 'done' || runs.length === 0 || new Set(runs).size < runs.length)
        this.#note('tasks', [`${key} is ${state}, and was delivered by the processes ${runs.join(', ')}`]);
    }
    const keys = new Set(tasks.map(({ key }) => key));
    const unknown = deliveries.filter(({ key }) => !keys.has(key)).map(({ key }) => key);
    if (unknown.length > 0) this.#note('tasks', [`delivered and not there: ${unknown.join(', ')}`]);
  }
}

describe.concurrent('killed at any moment, every promise is kept', () => {
  it.each(strategies)('%s', { timeout: 1_800_000 }, async (strategy) => {
    await using victim = await Victim.open({ STRATEGY: strategy, LOG_LEVEL: 'info' });
    await victim.start();
    const strand = new Strand(victim, ['lua', 'segmented-lock'].includes(strategy));
    const own = seeds.filter((seed) => momentOf(seed).strategy === strategy);
    const startedMs = performance.now();
    try {
      for (const seed of own) await strand.kill(seed);
      await strand.end();
    } catch (error) {
      (error as Error).message += `\n${victim.log.slice(-20).join('\n')}`;
      throw error;
    }
    console.log(
      strategy,
      Math.round(performance.now() - startedMs),
      own.length,
      'missed',
      strand.missed,
      Object.fromEntries([...victim.steps].map(([s, n]) => [s, Math.round((n / own.length) * 10) / 10])),
    );
    expect(strand.broken).toEqual([]);
  });
});
