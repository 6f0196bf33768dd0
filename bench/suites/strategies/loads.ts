/**
 * The loads of a trial, one after the other on one service, each on other sales:
 *
 *   warm-up ─▶ capacity at each step of the ladder (closed) ─▶ sell-out (open) ─▶ k6
 *
 * Capacity: a steady state; the stock never runs out, and every attempt is another customer's. Sell-out: the same stock,
 * customers and arrivals for every strategy, until 2 s after the first correct "sold out". None begins once the service
 * has died.
 */
import { createSale } from '../../kit/admin.ts';
import { type CpuUsage, startCpu } from '../../kit/cpu.ts';
import type { HistoryRecord } from '../../kit/history.ts';
import type { Service } from '../../kit/service.ts';
import type { Trial } from '../../kit/suite.ts';
import { number, percent } from '../../kit/text.ts';
import { attemptList, poisson } from '../../load/attempts.ts';
import { runK6 } from '../../load/k6.ts';
import { runOpenLoop } from '../../load/open.ts';
import type { Generator } from '../../load/rate.ts';
import type { StrangeAnswer } from '../../load/recorder.ts';
import type { StrategyCell, StrategyOptions } from './options.ts';
import type { Cost, GeneratorCost, LoadKind, Rush, StrategyPoint } from './result.ts';

/** What came of one load. */
export interface Measured {
  readonly kind: LoadKind;
  /** Tells the loads of a trial apart, in names of files: "", "c256", "sell-out", "k6-rush". */
  readonly name: string;
  readonly point: StrategyPoint;
  readonly history: readonly HistoryRecord[];
  readonly strangeAnswers: readonly StrangeAnswer[];
  readonly saleIds: readonly number[];
  /** Units of each sale. */
  readonly stock: number;
  /** Answers whose attempt the generator cannot name. */
  readonly refused: number;
  readonly schedule: Float64Array | null;
  readonly rush: Rush | null;
  readonly cost: Cost | null;
  readonly generator: GeneratorCost;
  readonly invalid: readonly string[];
  readonly findings: readonly string[];
}

export interface LoadsContext {
  readonly options: StrategyOptions;
  readonly service: Service;
  readonly generator: Generator;
  /** The stores, without a proxy in between. */
  readonly redisUrl: string;
  readonly postgresPid: number | null;
  readonly folder: string;
  readonly signal: AbortSignal;
  readonly onStep: (step: string) => void;
}

/** Longer than any wait inside the service. */
const requestTimeoutMs = 10_000;
/** Of a warm-up sale: no strategy of a young process sells faster. */
const warmUpUnitsPerSecond = 20_000;
/** Capacity is at most so many times the rate of the warm-up, when code is young; a unit of `skip-locked` is a row. */
const stockReserve = 12;
/** Of the sell-out's attempts; the others are repeats. */
const firstAttempts = 0.9;
const sellOutConnections = 512;
const maxOutstanding = 10_000;
/** k6 runs no shorter than that. */
const leastK6Ms = 1_000;

/** @throws the reason of `signal` */
export async function runLoads(
  trial: Trial<StrategyCell>,
  context: LoadsContext,
): Promise<readonly Measured[]> {
  const { options, service, signal, onStep } = context;
  const point = trial.point as StrategyPoint;
  const measured: Measured[] = [];
  const run = async (load: () => Promise<Measured>): Promise<void> => {
    if (service.died.aborted) return;
    const result = await load().catch((error: unknown) => {
      if (service.died.aborted && !signal.aborted) return null;
      throw error;
    });
    signal.throwIfAborted();
    if (result !== null) measured.push(result);
  };
  onStep('warming up');
  const warmRate = await warmUp(trial, context);
  if (options.load.includes('closed')) {
    const steps = options.ladder.length === 0 ? [point.connections] : options.ladder;
    for (const connections of steps) await run(() => capacity({ ...point, connections }, warmRate, context));
  }
  if (options.load.includes('open')) await run(() => sellOut(trial, context));
  if (options.load.includes('k6')) {
    await run(() => k6(trial, context, 'fixed'));
    await run(() => k6(trial, context, 'rush'));
  }
  return measured;
}

/** @returns accepted attempts a second, all sales together */
async function warmUp({ point }: Trial<StrategyCell>, context: LoadsContext): Promise<number> {
  const { options, service, generator, signal } = context;
  const { sales = 1, connections = 1 } = point;
  if (options.warmupMs === 0) return warmUpUnitsPerSecond / stockReserve;
  const units = Math.ceil((warmUpUnitsPerSecond * options.warmupMs) / 1_000 / sales);
  const saleIds = await createSales(service, sales, units);
  const load = { url: service.url, saleIds, connections, attempts: null, durationMs: options.warmupMs };
  const end = AbortSignal.any([signal, service.died]);
  const { answers, refused, durationMs } = await generator.run({
    ...load,
    prefix: 'w',
    record: false,
    signal: end,
  });
  return ((answers - refused) / durationMs) * 1_000;
}

async function capacity(point: StrategyPoint, warmRate: number, context: LoadsContext): Promise<Measured> {
  const { options, service, generator, signal, onStep } = context;
  const { connections, sales } = point;
  const stock = Math.max(
    connections,
    Math.ceil((stockReserve * warmRate * options.durationMs) / 1_000 / sales) + 1_000,
  );
  const saleIds = await createSales(service, sales, stock);
  const { result, usage } = await counted(context, () =>
    generator.run({
      url: service.url,
      saleIds,
      connections,
      prefix: 'b',
      durationMs: options.durationMs,
      attempts: null,
      record: true,
      signal: AbortSignal.any([signal, service.died]),
      onSent: (sent) => onStep(`capacity at ${connections} connections, ${number(sent)} attempts`),
    }),
  );
  const { history, strangeAnswers, cpuS, answers } = result;
  const accepted = history.filter(({ outcome }) => outcome === 'accepted').length;
  const named = history.filter(({ completedUs }) => completedUs !== null).length;
  const invalid = tooCostly(cpuS, usage);
  if (accepted >= stock * sales) invalid.push(`the stock of ${number(stock)} units ran out`);
  return {
    kind: 'closed',
    name: options.ladder.length > 1 ? `c${connections}` : '',
    point,
    history,
    strangeAnswers,
    saleIds,
    stock,
    refused: Math.max(0, answers - named),
    schedule: null,
    rush: null,
    cost: costOf(usage, answers),
    generator: { cpuS, systemCpuS: systemCpu(usage) },
    invalid,
    findings: [],
  };
}

/** The load, and what it cost the system under test. */
async function counted<T>(
  { service, redisUrl, postgresPid }: LoadsContext,
  load: () => Promise<T>,
): Promise<{ readonly result: T; readonly usage: CpuUsage }> {
  const end = await startCpu({ servicePid: service.pid, redisUrl, postgresPid });
  try {
    const result = await load();
    return { result, usage: await end() };
  } catch (error) {
    await end();
    throw error;
  }
}

/** Null: a part is not known. */
function systemCpu({ serviceS, redisS, postgresS }: CpuUsage): number | null {
  return serviceS === null || redisS === null || postgresS === null ? null : serviceS + redisS + postgresS;
}

function costOf(
  { serviceS, redisS, postgresS, redisCommands, elapsedS }: CpuUsage,
  answers: number,
): Cost | null {
  if (answers === 0) return null;
  const per = (total: number | null, attempts: number): number | null =>
    total === null ? null : Math.round((total / attempts) * 1_000) / 1_000;
  const cpu = (seconds: number | null): number | null => per(seconds, answers / 10_000);
  return {
    cpu: { service: cpu(serviceS), redis: cpu(redisS), postgres: cpu(postgresS) },
    redisCommands: per(redisCommands, answers),
    serviceUtilization: per(serviceS, elapsedS),
  };
}

/** A generator that costs more than the system under test says more about itself. */
function tooCostly(cpuS: number | null, usage: CpuUsage): string[] {
  const system = systemCpu(usage);
  if (cpuS === null || system === null || cpuS < system) return [];
  return [`the generator used ${percent(cpuS / (cpuS + system))} of the CPU time`];
}

async function sellOut(trial: Trial<StrategyCell>, context: LoadsContext): Promise<Measured> {
  const { options, service, signal, onStep } = context;
  const { stock, ratePerSecond } = options;
  const { sellOutMs: durationMs, afterSoldOutMs } = options;
  const schedule = poisson({ ratePerSecond, durationMs, seed: trial.seed });
  const attempts = schedule.length;
  const saleId = await createSale(service.url, stock);
  const users = attemptList({ attempts, buyers: Math.ceil(attempts * firstAttempts), seed: trial.seed });
  let accepted = 0;
  let soldOutMs: number | null = null;
  const cpuBefore = process.cpuUsage();
  const { result, usage } = await counted(context, () =>
    runOpenLoop({
      url: service.url,
      saleId,
      users,
      schedule,
      connections: Math.max(1, Math.min(sellOutConnections, attempts)),
      maxOutstanding,
      mayWait: true,
      requestTimeoutMs,
      signal: AbortSignal.any([signal, service.died]),
      onProgress: (completed) => onStep(`sell-out, ${number(completed)} attempts`),
      onAnswer: ({ outcome }) => {
        if (outcome === 'accepted') accepted++;
        if (outcome === 'sold-out' && accepted >= stock) soldOutMs ??= performance.now();
        return soldOutMs !== null && performance.now() - soldOutMs >= afterSoldOutMs;
      },
    }),
  );
  const { user, system } = process.cpuUsage(cpuBefore);
  const cpuS = (user + system) / 1e6;
  const { history, strangeAnswers, sending, reasons } = result;
  const { dropped, unconnected, lagMs, notBegun } = sending;
  const scheduled = sending.scheduled - notBegun;
  return {
    kind: 'open',
    name: 'sell-out',
    point: trial.point as StrategyPoint,
    history,
    strangeAnswers,
    saleIds: [saleId],
    stock,
    refused: 0,
    schedule,
    rush: { perSecond: ratePerSecond, scheduled, dropped: dropped + unconnected, lagMs },
    cost: null,
    generator: { cpuS, systemCpuS: systemCpu(usage) },
    invalid: [...reasons, ...tooCostly(cpuS, usage)],
    findings: soldOutMs === null && !signal.aborted ? [`not sold out within ${durationMs / 1_000} s`] : [],
  };
}

/** `fixed`: attempts as fast as they are answered, on a stock for half of them. `rush`: arrivals that grow, then hold. */
async function k6(
  trial: Trial<StrategyCell>,
  context: LoadsContext,
  script: 'fixed' | 'rush',
): Promise<Measured> {
  const { options, service, signal, folder, onStep } = context;
  onStep(`k6 ${script}`);
  const { stock, ratePerSecond } = options;
  const durationMs = Math.max(leastK6Ms, options.durationMs);
  const attempts = script === 'fixed' ? 2 * stock : Math.ceil((ratePerSecond * durationMs) / 1_000);
  const saleId = await createSale(service.url, stock);
  const { result, usage } = await counted(context, () =>
    runK6({
      url: service.url,
      saleId,
      users: attemptList({ attempts, buyers: Math.ceil(attempts * firstAttempts), seed: trial.seed }),
      script,
      connections: trial.point.connections ?? 1,
      ratePerSecond,
      durationMs,
      requestTimeoutMs,
      folder,
      signal: AbortSignal.any([signal, service.died]),
    }),
  );
  const { history, strangeAnswers, dropped, thresholds, cpuS } = result;
  const missed = thresholds.flatMap(({ passed, name }) => (passed ? [] : [name]));
  const scheduled = history.length + dropped;
  return {
    kind: 'k6',
    name: `k6-${script}`,
    point: trial.point as StrategyPoint,
    history,
    strangeAnswers,
    saleIds: [saleId],
    stock,
    refused: 0,
    schedule: null,
    rush: script === 'fixed' ? null : { perSecond: ratePerSecond, scheduled, dropped, lagMs: null },
    cost: null,
    generator: { cpuS, systemCpuS: systemCpu(usage) },
    invalid: tooCostly(cpuS, usage),
    findings: missed.length === 0 ? [] : [`k6 ${script}: missed ${missed.join(', ')}`],
  };
}

async function createSales({ url }: Service, count: number, stock: number): Promise<readonly number[]> {
  const ids: number[] = [];
  for (let n = 0; n < count; n++) ids.push(await createSale(url, stock));
  return ids;
}
