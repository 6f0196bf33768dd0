/**
 * Random faults while a sale runs, for every strategy: statements held back, backends and processes frozen for 3 to 8 s,
 * connections cut, Postgres restarted. No answer may turn out untrue: see test/support/fault-run.ts.
 *
 * FAULT_ROUNDS=50 FAULT_SEED=1000 npx vitest run test/orders/random-faults.test.ts  plays fifty rounds for each strategy.
 * FAULT_LANES says how many strategies play at once. A finding is printed with its seed; FAULT_ROUNDS=1 FAULT_SEED=<seed> and -t <strategy> play it alone.
 */
import { describe, expect, it } from 'vitest';
import { FaultRun, STRATEGIES } from '../support/fault-run.ts';
import { type FinalOrder, type Operation, untrueAnswers } from '../support/untrue-answers.ts';

const ROUNDS = Number(process.env.FAULT_ROUNDS ?? 1);
const SEED = Number(process.env.FAULT_SEED ?? 1);
const ROUND_TIMEOUT_MS = 300_000;
/** Strategies at once. */
const LANES = Number(process.env.FAULT_LANES ?? 3);

describe('the judgement', () => {
  const purchase: Operation = {
    does: 'purchase',
    userId: 'c',
    invokedMs: 100,
    completedMs: 200,
    status: 201,
    problem: '',
    orderId: 'x',
  };
  const order: FinalOrder = { id: 'x', userId: 'c', status: 'pending', createdMs: 150 };
  const soldOut = { ...purchase, status: 409, problem: 'sold-out', orderId: null };
  const unknown = { ...purchase, status: 503, problem: 'unknown-outcome' };
  const cancel = { ...purchase, does: 'cancel' as const, status: 200, invokedMs: 300, completedMs: 400 };

  it.each<[string, Operation[], FinalOrder[]]>([
    ['an order behind a 409', [soldOut], [order]],
    ['an order behind a busy', [{ ...soldOut, status: 503, problem: 'busy' }], [order]],
    ['a replay of an order that nobody placed', [soldOut, { ...purchase, status: 200 }], [order]],
    ['a lost order', [purchase], []],
    ['an order that was placed twice', [purchase, { ...purchase }], [order]],
    ['a 409 to the owner of an order', [purchase, { ...soldOut, invokedMs: 300, completedMs: 310 }], [order]],
    ['a cancellation that was undone', [purchase, cancel], [order]],
    [
      'an order after a repeat that settled it',
      [unknown, { ...soldOut, invokedMs: 9_000, completedMs: 9_100 }],
      [{ ...order, createdMs: 9_200 }],
    ],
  ])('finds %s', (_, operations, orders) => {
    expect(untrueAnswers(operations, orders)).toHaveLength(1);
  });

  it.each<[string, Operation[], FinalOrder[]]>([
    ['an order that was answered', [purchase, { ...purchase, status: 200 }], [order]],
    ['an unknown outcome that took effect', [unknown], [order]],
    ['an unknown outcome that did not', [unknown, soldOut], []],
    ['no answer at all', [{ ...purchase, status: null, orderId: null }], [order]],
    [
      'a 409 after a cancellation',
      [purchase, cancel, { ...soldOut, invokedMs: 500, completedMs: 600 }],
      [{ ...order, status: 'cancelled' }],
    ],
  ])('has nothing against %s', (_, operations, orders) => {
    expect(untrueAnswers(operations, orders)).toEqual([]);
  });
});

describe.concurrent.each(STRATEGIES)('%s', (strategy) => {
  it('gives no untrue answer', { timeout: ROUNDS * ROUND_TIMEOUT_MS }, async () => {
    const findings = await inLane(async () => {
      await using run = await FaultRun.open(strategy);
      const found: string[] = [];
      for (let seed = SEED; seed < SEED + ROUNDS; seed++) {
        const round = await run.round(seed);
        found.push(...round.findings.map((finding) => `${strategy}, seed ${seed}: ${finding}`));
        const { operations, unknown, faults } = round;
        process.stdout.write(
          `${strategy} ${seed}: ${operations} operations, ${unknown} unknown, ${faults.join(' ')}, ${round.findings.length} findings\n`,
        );
        for (const finding of round.findings) process.stdout.write(`  ${finding}\n`);
      }
      return found;
    });
    expect(findings).toEqual([]);
  });
});

let free = LANES;
const waiting: (() => void)[] = [];
async function inLane<T>(work: () => Promise<T>): Promise<T> {
  if (free === 0) await new Promise<void>((resolve) => waiting.push(resolve));
  else free--;
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next === undefined) free++;
    else next();
  }
}
