/**
 * The loads of a trial, one after the other on sales of their own:
 *
 *   closed (what it can) ─▶ open at the same rate for all ─▶ open at a share of what was accepted ─▶ k6
 *
 * Which of them there are is the plan's choice. None is begun once the service has died.
 */
import { createSale } from './admin.ts';
import { number } from './audit/check.ts';
import { startCosts } from './costs.ts';
import type { HistoryRecord } from './history.ts';
import { attemptList } from './load/attempts.ts';
import { type LoadResult, runClosedLoop } from './load/closed.ts';
import { type K6Result, runK6 } from './load/k6.ts';
import { runOpenLoop } from './load/open.ts';
import { poisson } from './load/schedule.ts';
import type { BenchOptions } from './options.ts';
import type { TrialPlan } from './plan.ts';
import { type Cost, type LoadKind, loadNumbers, type Rush } from './result.ts';
import type { Service } from './service.ts';

/** What came of one load. */
export interface Measured extends LoadResult {
  readonly kind: LoadKind;
  /** Tells the loads of one kind apart, in names of files: "", "rush", "share". */
  readonly name: string;
  readonly saleIds: readonly number[];
  /** Units of each sale. */
  readonly stock: number;
  /** The intended starts; null: a closed loop. */
  readonly schedule: Float64Array | null;
  readonly rush: Rush | null;
  readonly cost: Cost | null;
  /** Why its figures say more about the generator; empty: they do not. */
  readonly invalid: readonly string[];
  /** What was odd, in words. */
  readonly notes: readonly string[];
}

export interface LoadsContext {
  readonly options: BenchOptions;
  readonly service: Service;
  /** The stores themselves, without a proxy in between. */
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** The first process of a local Postgres. */
  readonly postgresPid: number | null;
  /** The folder of this run's results. */
  readonly folder: string;
  /** Fires when the user wants to stop. */
  readonly signal: AbortSignal;
  readonly onStep: (step: string) => void;
}

/** How long an attempt may stay without an answer: longer than any wait inside the service. */
const requestTimeoutMs = 10_000;
/** Beyond this share of its time a generator was the bottleneck. */
const mostUtilization = 0.95;
/** The rush that each strategy meets at a rate of its own, of what it accepted in the closed loop. */
export const rushShare = 0.7;
/** Units in a rush, of those who come: it sells out when most have come. */
const rushStock = 0.8;
const rushBuyers = 0.9;
/** As many as one process opens in a moment; a rush with fewer attempts has a connection for each. */
export const rushConnections = 1_024;
const maxOutstanding = 10_000;
/** k6 runs no shorter than that. */
const leastK6Ms = 1_000;

/** @throws the reason of `signal` */
export async function runLoads(trial: TrialPlan, context: LoadsContext): Promise<readonly Measured[]> {
  const { options, service, signal } = context;
  const measured: Measured[] = [];
  const run = async (load: () => Promise<Measured>): Promise<Measured | null> => {
    if (service.died.aborted) return null;
    const result = await load();
    signal.throwIfAborted();
    measured.push(result);
    return result;
  };
  await warmUp(trial, context);
  let capacity = 0;
  if (options.load.includes('closed')) {
    const closed = await run(() => closedLoad(trial, context));
    capacity = closed === null ? 0 : acceptedPerSecond(closed);
  }
  if (options.load.includes('open')) {
    await run(() => rush(trial, context, 'fixed', options.ratePerSecond));
    if (capacity > 0) await run(() => rush(trial, context, 'share', capacity * rushShare));
  }
  if (options.load.includes('k6')) {
    await run(() => k6(trial, context, 'fixed'));
    await run(() => k6(trial, context, 'rush'));
  }
  return measured;
}

async function warmUp(trial: TrialPlan, context: LoadsContext): Promise<void> {
  const { options, onStep, signal } = context;
  if (options.warmupMs === 0) return;
  onStep('warming up');
  const saleIds = await createSales(trial, context);
  await closedLoop(trial, context, saleIds, options.warmupMs, () => {});
  signal.throwIfAborted();
}

async function closedLoad(trial: TrialPlan, context: LoadsContext): Promise<Measured> {
  const { options, service, postgresPid, databaseUrl, redisUrl } = context;
  const saleIds = await createSales(trial, context);
  // Counting transactions to the last one takes two seconds: once is enough, it does not depend on the machine.
  const exactly = trial.round === 1 && !options.smoke;
  const costs = await startCosts({
    servicePid: service.pid,
    ...(exactly && { serviceUrl: service.url }),
    databaseUrl,
    redisUrl,
    postgresPid,
  });
  const result = await closedLoop(trial, context, saleIds, options.durationMs, context.onStep);
  const completed = result.history.filter(({ completedUs }) => completedUs !== null).length;
  const cost = await costs.stop(completed);
  return {
    ...plain,
    ...result,
    kind: 'closed',
    name: '',
    saleIds,
    stock: stockOfEach(trial, options),
    cost: exactly ? cost : { ...cost, postgresTransactions: null },
    invalid: tooBusy(result.utilization),
  };
}

const plain = { schedule: null, rush: null, cost: null, invalid: [], notes: [] };

function tooBusy(utilization: number | null): string[] {
  if (utilization === null || utilization <= mostUtilization) return [];
  const percent = (share: number): string => `${(share * 100).toFixed(0)} %`;
  return [
    `the generator was busy ${percent(utilization)} of the time, at most ${percent(mostUtilization)} may be`,
  ];
}

function closedLoop(
  trial: TrialPlan,
  { options, service, signal }: LoadsContext,
  saleIds: readonly number[],
  durationMs: number,
  onStep: (step: string) => void,
): Promise<LoadResult> {
  const { attempts, buyers } = options;
  return untilEnd([signal, service.died], (end) =>
    runClosedLoop({
      url: service.url,
      saleIds,
      users: attemptList({ attempts, buyers, seed: trial.seed }),
      connections: trial.point.connections,
      durationMs,
      requestTimeoutMs,
      signal: end,
      onProgress: (completed) => onStep(`${number(completed)} of ${number(attempts)} attempts`),
    }),
  );
}

async function rush(
  trial: TrialPlan,
  { options, service, signal, onStep }: LoadsContext,
  rate: Rush['rate'],
  ratePerSecond: number,
): Promise<Measured> {
  const schedule = poisson({ ratePerSecond, durationMs: options.rushMs, seed: trial.seed });
  const attempts = schedule.length;
  const stock = Math.max(1, Math.round(attempts * rushStock));
  const saleId = await createSale(service.url, stock);
  const users = attemptList({ attempts, buyers: Math.ceil(attempts * rushBuyers), seed: trial.seed });
  const result = await untilEnd([signal, service.died], (end) =>
    runOpenLoop({
      url: service.url,
      saleId,
      users,
      schedule,
      connections: Math.max(1, Math.min(rushConnections, attempts)),
      maxOutstanding,
      requestTimeoutMs,
      signal: end,
      onProgress: (completed) => onStep(`rush, ${number(completed)} of ${number(attempts)} attempts`),
    }),
  );
  const { scheduled, dropped, unconnected, lagMs } = result.sending;
  const perSecond = Math.round(ratePerSecond * 10) / 10;
  return {
    ...plain,
    ...result,
    kind: 'open',
    name: rate === 'fixed' ? 'rush' : 'share',
    saleIds: [saleId],
    stock,
    schedule,
    rush: { rate, perSecond, scheduled, dropped: dropped + unconnected, lagMs },
    invalid: result.reasons,
  };
}

/** `fixed`: the closed loop's attempts by as many virtual users. `rush`: arrivals that grow to the rate, then hold. */
async function k6(trial: TrialPlan, context: LoadsContext, script: 'fixed' | 'rush'): Promise<Measured> {
  const { options, service, signal, folder, onStep } = context;
  const rushAttempts = Math.ceil((options.ratePerSecond * options.rushMs) / 1_000);
  const fixed = { attempts: options.attempts, buyers: options.buyers, stock: options.stock };
  const ramp = {
    attempts: rushAttempts,
    buyers: Math.ceil(rushAttempts * rushBuyers),
    stock: Math.max(1, Math.round(rushAttempts * rushStock)),
  };
  const { attempts, buyers, stock } = script === 'fixed' ? fixed : ramp;
  const saleId = await createSale(service.url, stock);
  const result: K6Result = await untilEnd([signal, service.died], (end) =>
    runK6({
      url: service.url,
      saleId,
      users: attemptList({ attempts, buyers, seed: trial.seed }),
      script,
      connections: trial.point.connections,
      ratePerSecond: options.ratePerSecond,
      durationMs: Math.max(leastK6Ms, script === 'fixed' ? options.durationMs : options.rushMs),
      requestTimeoutMs,
      folder,
      signal: end,
      onProgress: (completed) => onStep(`k6 ${script}, ${number(completed)} of ${number(attempts)} attempts`),
    }),
  );
  const missed = result.thresholds.filter(({ passed }) => !passed).map(({ name }) => name);
  return {
    ...plain,
    ...result,
    kind: 'k6',
    name: `k6-${script}`,
    saleIds: [saleId],
    stock,
    rush: script === 'fixed' ? null : k6Rush(options, result),
    notes: missed.length === 0 ? [] : [`k6 ${script}: missed ${missed.join(', ')}`],
  };
}

function k6Rush({ ratePerSecond }: BenchOptions, { history, dropped }: K6Result): Rush {
  const scheduled = history.length + dropped;
  return { rate: 'fixed', perSecond: ratePerSecond, scheduled, dropped, lagMs: null };
}

/** Runs work with a signal that fires when any of these does, and lets go of them. */
async function untilEnd<T>(
  signals: readonly AbortSignal[],
  work: (end: AbortSignal) => Promise<T>,
): Promise<T> {
  const end = new AbortController();
  const stop = (): void => end.abort();
  for (const signal of signals) {
    signal.addEventListener('abort', stop);
    if (signal.aborted) stop();
  }
  try {
    return await work(end.signal);
  } finally {
    for (const signal of signals) signal.removeEventListener('abort', stop);
  }
}

async function createSales(
  { point }: TrialPlan,
  { options, service }: LoadsContext,
): Promise<readonly number[]> {
  const ids: number[] = [];
  for (let n = 0; n < point.sales; n++) {
    ids.push(await createSale(service.url, stockOfEach({ point }, options)));
  }
  return ids;
}

/** The stock of a trial is shared out among its sales. */
function stockOfEach({ point }: Pick<TrialPlan, 'point'>, { stock }: BenchOptions): number {
  return Math.max(1, Math.floor(stock / point.sales));
}

function acceptedPerSecond({ history }: { readonly history: readonly HistoryRecord[] }): number {
  return loadNumbers(history, { stock: 0, soldOut: false, schedule: null }).acceptedPerSecond;
}
