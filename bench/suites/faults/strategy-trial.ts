/** Runs one fault against one strategy: a service on stores of its own, an open loop of customers, and the audit. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { SaleRead } from '../../../lab/audit/consistency.ts';
import type { StrategyFault } from '../../../lab/faults/strategy-fault.ts';
import { seededRandom } from '../../../lab/kit/random.ts';
import { SaleTrial } from '../../../lab/sale-trial.ts';
import { noShedding } from '../../../lab/service.ts';
import { type OpenShop, openShop } from '../../../lab/shop.ts';
import { buyerName, poisson } from '../../load/attempts.ts';
import { runOpenLoop } from '../../load/open.ts';
import type { Order, StrategyCell } from './result.ts';
import { judgeSale, STEADY_MS, type StrategyTrial } from './sale-verdict.ts';

export interface StrategyOrder extends Order, Pick<StrategyCell, 'strategy' | 'redis' | 'unsafe' | 'env'> {
  readonly fault: StrategyFault;
}

const RATE = 60;
const STRIKE_MS = 2_000;
/** The crowd at the end wants more than is left, so that a strategy that oversells shows it. */
const CROWD_MS = 1_000;
const CROWD = 500;
const LEFT = 100;
const CONNECTIONS = 520;
const TIMEOUT_MS = 6_000;
/** The time between two reads of the free units. */
const READ_MS = 250;

export async function runStrategyTrial(order: StrategyOrder): Promise<StrategyTrial> {
  const { strategy, redis, folder, clock, fault, signal } = order;
  const env = {
    // The control sheds no load. The others do, as in a real sale.
    ...(order.unsafe ? noShedding : { PAYMENT_WINDOW_S: noShedding.PAYMENT_WINDOW_S }),
    ...order.env,
  };
  await using shop = await openShop({ strategy, redis, folder, clock, env, needs: fault, signal });
  return await sellThrough(order, shop);
}

async function sellThrough(
  { fault, seed, signal, unsafe: isControl }: StrategyOrder,
  shop: OpenShop,
): Promise<StrategyTrial> {
  const steady = poisson({ ratePerSecond: RATE, durationMs: STEADY_MS, seed });
  const crowd = Array.from({ length: CROWD }, (_, n) => (STEADY_MS + CROWD_MS) * 1_000 + n);
  const schedule = Float64Array.from([...steady, ...crowd]);
  const users = Array.from(schedule, (_, n) => buyerName(n));
  const stock = steady.length + LEFT;
  const trial = await SaleTrial.open(shop, stock, isControl);
  const { url, saleId } = trial;
  const load = { url, saleId, users, schedule, requestTimeoutMs: TIMEOUT_MS, signal };
  let begin = (_originMs: number): void => {};
  const begun = new Promise<number>((resolve) => {
    begin = resolve;
  });
  const bounds = { connections: CONNECTIONS, maxOutstanding: 2 * CONNECTIONS, mayWait: true };
  const selling = runOpenLoop({ ...load, ...bounds, onBegin: begin });
  const beganMs = await begun;
  const reading = readFreeUnits(`${url}/sales/${saleId}`, beganMs);
  const strikeMs = STRIKE_MS + 500 * seededRandom(seed)();
  await sleep(strikeMs, undefined, { signal });
  await trial.strike(fault, signal);
  const healedMs = performance.now() - beganMs;
  const { history } = await selling;
  const sold = { stock, history, reads: await reading() };
  return judgeSale(sold, { fault, isControl, band: [strikeMs, healedMs] }, await trial.judge(history));
}

/** Reads the free units again and again. @returns a function that stops this and resolves to the reads that were answered */
function readFreeUnits(url: string, beganMs: number): () => Promise<SaleRead[]> {
  const reads: SaleRead[] = [];
  const us = () => (performance.now() - beganMs) * 1_000;
  const end = new AbortController();
  const work = (async () => {
    while (!end.signal.aborted) {
      const invokedUs = us();
      const sale = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) })
        .then((response) => (response.ok ? (response.json() as Promise<{ remaining: number }>) : null))
        .catch(() => null);
      if (sale !== null) reads.push({ invokedUs, completedUs: us(), free: sale.remaining });
      await sleep(READ_MS, undefined, { signal: end.signal }).catch(() => {});
    }
  })();
  return async () => {
    end.abort();
    await work;
    return reads;
  };
}
