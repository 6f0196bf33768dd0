/**
 * Every safe strategy against a model, on real stores: random steps, in which several processes decide at once. Whatever is bought, given
 * back, added or cut, a strategy sells what one counter would.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Attempt } from '../../src/domain/order.ts';
import type { ClaimedReservation, Decision } from '../../src/domain/outcome.ts';
import { createRedisLock } from '../../src/locks/redis.ts';
import { closeOrders } from '../../src/store/postgres/close-orders.ts';
import { retried } from '../../src/store/postgres/pool.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { offerOf } from '../../src/store/redis/sale-records.ts';
import { strategies as registry } from '../../src/strategies/registry.ts';
import type { RedisParts, Strategy, StrategyEntry } from '../../src/strategies/strategy.ts';
import { attemptOf } from '../support/attempts.ts';
import { opened } from '../support/opened.ts';
import { type StrategyBench, sellPast, strategyBench } from '../support/postgres-strategy.ts';
import { bySize } from '../support/tier.ts';

/** Units of an order, at most. */
const MOST = 4;
const OFFER = { priceCents: 500, paymentWindowS: 60 };

/** Paused, begin and end: the columns of a sale that sells or does not. */
const TERMS = {
  open: `false, now() - interval '1 hour', now() + interval '1 hour'`,
  paused: 'true, NULL, NULL',
  'not-started': `false, now() + interval '1 hour', NULL`,
  ended: `false, NULL, now() - interval '1 second'`,
};
type State = keyof typeof TERMS;

const buy = fc.record({
  user: fc.nat(9),
  quantity: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: MOST + 1 })),
  /** The attempt is sent to two processes, as by a customer who got no answer. */
  isTwice: fc.boolean(),
});
const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      buys: fc.oneof(
        fc.array(buy, { minLength: 1, maxLength: 1 }),
        fc.array(buy, { minLength: 1, maxLength: 9 }),
      ),
      cancels: fc.array(fc.nat(), { maxLength: 2 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ restock: fc.integer({ min: -6, max: 6 }) }) },
  {
    weight: 1,
    arbitrary: fc.record({ terms: fc.constantFrom<State>('open', 'paused', 'not-started', 'ended') }),
  },
  { weight: 1, arbitrary: fc.record({ meddle: fc.constantFrom<'stock' | 'sale'>('stock', 'sale') }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;
type Batch = Extract<Step, { buys: unknown }>;

interface Held {
  readonly attempt: Attempt;
  /** Of a strategy that decides in Redis. */
  readonly reservation: ClaimedReservation | null;
}

/** The order that an attempt got, or that its customer had. */
function orderIn(decision: Decision): { orderId: string; quantity: number } | null {
  if ('reservation' in decision) return decision.reservation;
  return 'order' in decision ? decision.order : null;
}

/** A sale as it must be. */
class ModelSale {
  readonly held = new Map<string, Held>();
  state: State = 'open';

  readonly bench: StrategyBench;
  readonly processes: readonly Strategy[];
  readonly id: number;
  free: number;

  private constructor(bench: StrategyBench, processes: readonly Strategy[], id: number, free: number) {
    this.bench = bench;
    this.processes = processes;
    this.id = id;
    this.free = free;
  }

  static async open(bench: StrategyBench, processes: readonly Strategy[], stock: number): Promise<ModelSale> {
    const { rows } = await bench.sql.query<{ id: number }>(
      `INSERT INTO sales (name, stock, price_cents, payment_window_s, max_per_order)
       VALUES ('model', $1, ${OFFER.priceCents}, ${OFFER.paymentWindowS}, ${MOST}) RETURNING id`,
      [stock],
    );
    const sale = new ModelSale(bench, processes, rows[0]!.id, stock);
    for (const process of processes) await process.load?.(sale);
    return sale;
  }

  async take(next: Step, n: number): Promise<void> {
    if ('buys' in next) await this.#sell(next, n);
    else if ('terms' in next) await this.setTerms(next.terms, n);
    else if ('restock' in next) await this.#restock(next.restock, n);
    else await this.#meddle(next.meddle);
    await this.#check();
  }

  /** Customers buy while others cancel. */
  async #sell({ buys, cancels }: Batch, n: number): Promise<void> {
    const orders = [...this.held.values()];
    const leaving = new Set(
      orders.length === 0 ? [] : cancels.map((which) => orders[which % orders.length]!),
    );
    const attempts = buys.flatMap(({ user, quantity, isTwice }) => {
      const own = this.held.get(`u${user}`);
      if (own !== undefined && leaving.has(own)) return [];
      const attempt = isTwice && own !== undefined ? own.attempt : attemptOf(this.id, `u${user}`, quantity);
      return isTwice ? [attempt, attempt] : [attempt];
    });
    const deciding = attempts.map((attempt, i) => this.decide(attempt, n + i));
    await Promise.all([...leaving].map((one, i) => this.#giveBack(one, n + i)));
    this.#judge(attempts, await Promise.all(deciding), [...leaving]);
  }

  /** Until it is final: a customer who is answered busy, or gets no answer, asks again. */
  async decide(attempt: Attempt, n: number): Promise<Decision> {
    for (let tries = 0; ; tries++) {
      const decision = await this.processes[n % this.processes.length]!.decide({ ...attempt });
      if (decision.kind !== 'busy' && decision.kind !== 'unknown' && decision.kind !== 'retry')
        return decision;
      if (tries > 100) throw new Error(`${decision.kind}: ${decision.reason}`);
    }
  }

  async #giveBack({ attempt, reservation }: Held, n: number): Promise<void> {
    if (reservation === null) {
      const how = { from: ['pending'], to: 'cancelled', returnUnits: true, isMirrored: false } as const;
      // As the service does: where strategies lock in another order, it may meet a deadlock.
      const close = () => closeOrders(this.bench.sql, [attempt.orderId], { ...how, actor: 'test' });
      expect(await retried(close)).toHaveLength(1);
      return;
    }
    // The second time does nothing.
    for (const i of [0, 1])
      await this.processes[(n + i) % this.processes.length]!.mirror!.release(reservation);
  }

  #judge(attempts: readonly Attempt[], decisions: readonly Decision[], gone: readonly Held[]): void {
    const back = gone.reduce((sum, { attempt }) => sum + attempt.quantity, 0);
    const before = this.free;
    for (const { attempt } of gone) this.held.delete(attempt.userId);
    const holders = new Set(this.held.keys());
    for (const [i, attempt] of attempts.entries()) {
      const decision = decisions[i]!;
      if (orderIn(decision)?.orderId !== attempt.orderId || this.held.has(attempt.userId)) continue;
      expect([this.state, attempt.quantity <= MOST]).toEqual(['open', true]);
      const reservation = decision.kind === 'reserved' ? decision.reservation : null;
      if (reservation !== null) expect(offerOf(reservation)).toEqual(OFFER);
      this.held.set(attempt.userId, { attempt, reservation });
      this.free -= attempt.quantity;
    }
    this.free += back;
    expect(this.free).toBeGreaterThanOrEqual(0);
    /** No fewer were free at any instant. */
    const least = this.free - back;
    for (const [i, { userId, quantity }] of attempts.entries()) {
      const decision = decisions[i]!;
      const order = orderIn(decision);
      const own = this.held.get(userId)?.attempt;
      if (holders.has(userId)) expect(order).not.toBeNull();
      if (order !== null) expect(order).toMatchObject({ orderId: own?.orderId, quantity: own?.quantity });
      else if (this.state !== 'open') expect(decision).toEqual({ kind: 'not-open', reason: this.state });
      else if (quantity > MOST) expect(decision).toEqual({ kind: 'over-limit', maxPerOrder: MOST });
      else if (decision.kind === 'not-enough-units') {
        expect(decision.remaining).toBeGreaterThanOrEqual(Math.max(1, least));
        expect(decision.remaining).toBeLessThan(Math.min(quantity, before + back + 1));
      } else {
        expect(decision).toEqual({ kind: 'sold-out' });
        expect(least).toBeLessThanOrEqual(0);
      }
    }
  }

  async #restock(units: number, n: number): Promise<void> {
    if (units === 0) return;
    const result = await this.processes[n % this.processes.length]!.restock(this.id, units);
    const isPossible = this.free + units >= 0;
    expect(result === 'below-sold').toBe(!isPossible);
    if (isPossible) this.free += units;
  }

  async setTerms(state: State, n: number): Promise<void> {
    this.state = state;
    await this.bench.sql.query(
      `UPDATE sales SET (paused, starts_at, ends_at) = (${TERMS[state]}), version = version + 1 WHERE id = $1`,
      [this.id],
    );
    await this.processes[n % this.processes.length]!.setTerms?.(this);
  }

  /** Redis loses the sale; in Postgres, units are added or sold past the strategy. */
  async #meddle(what: 'stock' | 'sale'): Promise<void> {
    const { mirror } = this.processes[0]!;
    if (mirror !== null) await redisOf(this.bench).redis.del(mirror.keys(this.id).state);
    else if (what === 'stock') {
      await this.bench.sql.query('UPDATE sales SET stock = stock + 1, version = version + 1 WHERE id = $1', [
        this.id,
      ]);
      this.free++;
    } else if (this.processes.length > 2 && this.free > 0) {
      const attempt = attemptOf(this.id, `past${this.held.size}-${this.free}`);
      if (this.held.has(attempt.userId)) return;
      await sellPast(this.bench.sql, attempt);
      this.held.set(attempt.userId, { attempt, reservation: null });
      this.free--;
    }
  }

  async #check(): Promise<void> {
    const units = [...this.held.values()].reduce((sum, { attempt }) => sum + attempt.quantity, 0);
    const { mirror } = this.processes[0]!;
    if (mirror === null) {
      const { rows } = await this.bench.sql.query(
        'SELECT sold, stock - sold AS free FROM sales WHERE id = $1',
        [this.id],
      );
      expect(rows).toEqual([{ sold: units, free: this.free }]);
    } else {
      const seen = await mirror.digest(this.id);
      const expected = { free: this.free, pending: this.held.size, held: units };
      if (seen.free !== null) expect(seen).toMatchObject(expected);
    }
  }
}

const alone = strategyBench({ withCheck: false });
const together = strategyBench();
const redis = opened(() => openRedis(alone.redisUrl, () => {}));
const redisOf = (_: StrategyBench) => redis;

function partsOf({ postgres }: StrategyBench, segments: number): RedisParts {
  const lock = createRedisLock({ redis: redis.locks });
  const waits = { lockTtlMs: 5_000, lockWaitMs: 5_000 };
  return { redis, epochs: redisEpochs(redis, postgres), lock, segments, ...waits, confirm: 'durable' };
}

/** @param entries of one process each */
async function sellsAsOneCounter(bench: StrategyBench, entries: readonly StrategyEntry[], numRuns: number) {
  const run = async (stock: number, segments: number, steps: readonly Step[]) => {
    const processes = entries.map((entry) =>
      bench.start({ create: (context) => entry.create(context, partsOf(bench, segments)) }),
    );
    try {
      const sale = await ModelSale.open(bench, processes, stock);
      for (const [n, next] of steps.entries()) await sale.take(next, n);
      // Nothing is stranded: strangers take every unit that is left, and not one more.
      await sale.setTerms('open', 0);
      const { free } = sale;
      for (let i = 0; i <= free; i++) {
        const { kind } = await sale.decide(attemptOf(sale.id, `last${i}`), i);
        expect(kind).toMatch(i < free ? /accepted|reserved/ : 'sold-out');
      }
      await bench.sold(sale.id);
    } finally {
      for (const { knownSoldOut } of processes) knownSoldOut?.close();
    }
  };
  const given = [fc.nat(12), fc.integer({ min: 1, max: 7 }), fc.array(step, { maxLength: 14 })] as const;
  await fc.assert(fc.asyncProperty(...given, run), { numRuns, endOnFailure: true });
}

const safe = [...registry].filter(([, { description }]) => description.guarantees.neverOversells);

describe('sells what a single counter would sell', () => {
  it.each(safe)('%s', (_, entry) =>
    sellsAsOneCounter(alone, [entry, entry], bySize({ core: 8, full: 20, nightly: 200 })),
  );

  it('strategies that decide in Postgres, together on one sale', async () => {
    const entries = safe
      .map(([, entry]) => entry)
      .filter(({ description }) => description.store === 'postgres');
    await sellsAsOneCounter(together, entries, bySize({ core: 8, full: 20, nightly: 200 }));
  });
});
