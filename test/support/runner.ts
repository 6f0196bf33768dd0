/**
 * Seeded runs: a workload, a fault and a strategy. Each round sells one sale while the fault hits; what a fault interrupted
 * recovers while later rounds go on, and is hit by their faults, too.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Linearity } from '../../lab/audit/consistency.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import type { Workload } from './workloads.ts';
import type { TestSale, World } from './world.ts';

export interface Round {
  /** Named in findings. */
  readonly name: string;
  readonly seed: number;
  readonly stock: number;
  /** The most units of an order; by default one. */
  readonly most?: number;
  readonly workload: Workload;
  /** Disturbs the sale; `work` resolves when the workload ends. */
  readonly fault: (sale: TestSale, work: Promise<void>) => Promise<unknown>;
  /** What one order of all operations must explain. */
  readonly explained?: 'all' | 'all but sold-out';
  /** Whether answers precede the commit (CONFIRM=accepted): the stores are compared once nothing is left between them. */
  readonly isAhead?: boolean;
  /** Checks of this round besides the invariants. @returns violations */
  readonly check?: (sale: TestSale) => string[];
}

/** A finished round. */
export interface Played {
  readonly seed: number;
  readonly operations: number;
  /** Absent: not checked. */
  readonly explained?: Linearity['explains'];
}

export class Runner {
  readonly findings: string[] = [];
  readonly #world: World;
  readonly #idleWithinMs: number;
  readonly #rounds: { readonly round: Round; readonly sale: TestSale }[] = [];
  readonly #recoveries: Promise<void>[] = [];

  /** @param idleWithinMs how long something may be left between the stores while services run */
  constructor(world: World, idleWithinMs: number) {
    this.#world = world;
    this.#idleWithinMs = idleWithinMs;
  }

  note(name: string, findings: readonly string[]): void {
    this.findings.push(...findings.map((finding) => `${name}: ${finding}`));
  }

  async run(round: Round): Promise<TestSale> {
    const sale = await this.#world.openSale(round.stock, round.most);
    const work = round.workload(sale, seededRandom(round.seed));
    await round.fault(sale, work);
    await this.#check(round, sale);
    await work;
    await this.#check(round, sale);
    this.#rounds.push({ round, sale });
    this.#recoveries.push(this.#recover(round, sale));
    return sale;
  }

  /** Waits for all recoveries, sells what is left, and checks all sales again. */
  async end(): Promise<readonly Played[]> {
    await Promise.all(this.#recoveries);
    for (const { round, sale } of this.#rounds) {
      this.note(round.name, await sale.sellOut());
      await this.#check(round, sale);
    }
    await Promise.all(this.#rounds.map(({ round, sale }) => this.#recover(round, sale)));
    const played: Played[] = [];
    for (const { round, sale } of this.#rounds) {
      const { seed } = round;
      const operations = sale.ledger.history.length;
      played.push({ seed, operations, ...(round.explained && (await this.#explain(round, sale))) });
    }
    this.note('log', [...this.#world.logged('Unexpected error'), ...this.#world.logged('"level":60')]);
    return played;
  }

  async #explain({ name, explained }: Round, sale: TestSale): Promise<Pick<Played, 'explained'>> {
    const { explains, step } = await sale.linearity();
    if (explains !== 'all' && explains !== explained)
      this.note(name, [`P6: one order of the operations explains ${explains}: ${JSON.stringify(step)}`]);
    return { explained: explains };
  }

  async #check(round: Round, sale: TestSale): Promise<void> {
    if (round.isAhead) await this.#recover(round, sale);
    // After Postgres has started again, the first connection that is used fails.
    const violations = await sale.violations().catch(() => sleep(1_000).then(() => sale.violations()));
    this.note(round.name, [...violations, ...(round.check?.(sale) ?? [])]);
  }

  async #recover({ name }: Round, sale: TestSale): Promise<void> {
    const upMs = () => Math.max(...this.#world.services.map((service) => service.upMs));
    const untilMs = upMs() + this.#idleWithinMs;
    for (;;) {
      const isLate = upMs() > untilMs;
      // A later round's fault may have stopped Postgres.
      const left = await sale.pendingWork().catch((error: unknown) => [String(error)]);
      if (left.length === 0) return;
      if (isLate) return this.note(name, [...left, ...this.#world.logged(`"saleId":${sale.id},`)]);
      await sleep(500);
    }
  }
}
