/**
 * The loads of a trial, one after the other on one service, each on other sales:
 *
 *   warm-up ─▶ capacity at each step of the ladder (closed) ─▶ sell-out (open) ─▶ k6
 *
 * Capacity: a steady state; the stock never runs out, and every attempt is another customer's. Sell-out: the same stock,
 * customers and arrivals for every strategy, until 2 s after the first correct "sold out". No load begins once the service
 * has died.
 */
import { createSale } from '../../../lab/clients/admin.ts';
import type { HistoryRecord } from '../../../lab/history.ts';
import { number, percent } from '../../../lab/kit/text.ts';
import type { Service } from '../../../lab/service.ts';
import { type CpuUsage, startCpu } from '../../kit/cpu.ts';
import type { Trial } from '../../kit/suite.ts';
import { attemptList, poisson } from '../../load/attempts.ts';
import { runK6 } from '../../load/k6.ts';
import { runOpenLoop } from '../../load/open.ts';
import type { Generator, RateLoad } from '../../load/rate.ts';
import type { StrangeAnswer } from '../../load/recorder.ts';
import type { StrategyCell, StrategyOptions } from './options.ts';
import type { Cost, StrategyPoint, StrategyResult } from './result.ts';

/** A load and the sales that it runs on. */
interface Load extends Pick<StrategyResult, 'load' | 'point'> {
  /** Distinguishes the loads of a trial in file names: "", "c256", "sell-out", "k6-rush". */
  readonly name: string;
  readonly sales: number;
  /** Units of each sale. */
  readonly stock: number;
  run(saleIds: readonly number[]): Promise<Sent>;
}

/** A load as its generator saw it. */
interface Sent extends Pick<StrategyResult, 'rush' | 'invalid' | 'findings'> {
  readonly history: readonly HistoryRecord[];
  readonly strangeAnswers: readonly StrangeAnswer[];
  /** Answered attempts; null: their cost is not counted. */
  readonly answers: number | null;
  /** Answers whose attempt the generator cannot name. */
  readonly refused: number;
  readonly schedule: Float64Array | null;
  /** CPU seconds of the generator; null: not known. */
  readonly cpuS: number | null;
  /** How long it sent; left out: from before its start to after its end. */
  readonly durationMs?: number;
}

/** A load that was run. */
export interface Measured extends Omit<Load, 'run'>, Sent, Pick<StrategyResult, 'cost' | 'generator'> {
  readonly saleIds: readonly number[];
}

export interface LoadsContext {
  readonly options: StrategyOptions;
  readonly service: Service;
  readonly generator: Generator;
  /** The stores, without a proxy in between. */
  readonly redisUrl: string;
  readonly postgresPid: number | null;
  readonly folder: string;
  /** Fires when the user wants to stop. */
  readonly signal: AbortSignal;
  /** Fires with `signal`, or when the service dies. */
  readonly end: AbortSignal;
  readonly onStep: (step: string) => void;
}

/** Longer than any wait inside the service. */
const requestTimeoutMs = 10_000;
/** No strategy of a young process sells a warm-up sale faster. */
const warmUpUnitsPerSecond = 20_000;
/** Capacity is at most this multiple of the warm-up rate, when code is young; a unit of `skip-locked` is a row. */
const stockReserve = 12;
/** Share of first attempts on a sale that sells out; the others are repeats. */
const firstAttempts = 0.9;
const sellOutConnections = 512;
const maxOutstanding = 10_000;
/** The shortest run of k6. */
const leastK6Ms = 1_000;

/** @throws the reason of `signal` */
export async function runLoads(trial: Trial<StrategyCell>, context: LoadsContext): Promise<Measured[]> {
  const { options, service, signal, onStep } = context;
  const point = trial.point as StrategyPoint;
  onStep('warming up');
  const warmRate = await warmUp(point, context);
  const loads: Load[] = [];
  if (options.load.includes('closed')) {
    for (const connections of options.ladder)
      loads.push(capacity({ ...point, connections }, warmRate, context));
  }
  if (options.load.includes('open')) loads.push(sellOut(point, trial.seed, context));
  if (options.load.includes('k6')) {
    loads.push(k6('fixed', point, trial.seed, context), k6('rush', point, trial.seed, context));
  }
  const measured: Measured[] = [];
  for (const load of loads) {
    if (service.died.aborted) break;
    try {
      measured.push(await measure(load, context));
    } catch (error) {
      if (signal.aborted || !service.died.aborted) throw error;
    }
    signal.throwIfAborted();
  }
  return measured;
}

/** Runs a load, and counts what it cost the system under test. */
async function measure({ run, ...load }: Load, context: LoadsContext): Promise<Measured> {
  const { service, redisUrl, postgresPid } = context;
  const saleIds = await createSales(context, load.sales, load.stock);
  const end = await startCpu({
    servicePids: [service.pid],
    redisUrls: [redisUrl],
    postgresPids: [postgresPid],
  });
  const sent = await run(saleIds).catch(async (error: unknown) => {
    await end();
    throw error;
  });
  const usage = await end();
  const { cpuS, answers } = sent;
  const { serviceS, redisS, postgresS } = usage;
  const systemCpuS =
    serviceS === null || redisS === null || postgresS === null ? null : serviceS + redisS + postgresS;
  const invalid = [...sent.invalid];
  // A generator that costs more than the system under test measures itself.
  if (cpuS !== null && systemCpuS !== null && cpuS >= systemCpuS) {
    invalid.push(`the generator used ${percent(cpuS / (cpuS + systemCpuS))} of the CPU time`);
  }
  const elapsedS = sent.durationMs === undefined ? usage.elapsedS : sent.durationMs / 1_000;
  const cost = answers === null || answers === 0 ? null : costOf({ ...usage, elapsedS }, answers);
  return { ...load, ...sent, saleIds, cost, generator: { cpuS, systemCpuS }, invalid };
}

function costOf(usage: CpuUsage, answers: number): Cost {
  const per = (total: number | null, count: number): number | null =>
    total === null ? null : Math.round((total / count) * 1_000) / 1_000;
  const cpu = (seconds: number | null): number | null => per(seconds, answers / 10_000);
  return {
    cpu: { service: cpu(usage.serviceS), redis: cpu(usage.redisS), postgres: cpu(usage.postgresS) },
    redisCommands: per(usage.redisCommands, answers),
    serviceUtilization: per(usage.serviceS, usage.elapsedS),
  };
}

/** @returns accepted attempts a second, all sales together */
async function warmUp({ sales, connections }: StrategyPoint, context: LoadsContext): Promise<number> {
  const { options, service, generator, end } = context;
  const { warmupMs, quantities } = options;
  if (warmupMs === 0) return warmUpUnitsPerSecond / stockReserve;
  const units = Math.ceil((quantities.most * warmUpUnitsPerSecond * warmupMs) / 1_000 / sales);
  const load: RateLoad = {
    ...{ url: service.url, saleIds: await createSales(context, sales, units), connections, prefix: 'w' },
    ...{ durationMs: warmupMs, attempts: null, record: false, signal: end, quantities },
  };
  const { answers, refused, durationMs } = await generator.run(load);
  return ((answers - refused) / durationMs) * 1_000;
}

function capacity(point: StrategyPoint, warmRate: number, context: LoadsContext): Load {
  const { options, service, generator, end, onStep } = context;
  const { connections, sales } = point;
  const { durationMs, ladder, quantities } = options;
  const orders = Math.ceil((stockReserve * warmRate * durationMs) / 1_000 / sales) + 1_000;
  const stock = quantities.most * Math.max(connections, orders);
  const onSent = (sent: number): void =>
    onStep(`capacity at ${connections} connections, ${number(sent)} attempts`);
  return {
    ...{ load: 'closed', name: ladder.length > 1 ? `c${connections}` : '', point, sales, stock },
    async run(saleIds) {
      const load = { url: service.url, saleIds, connections, prefix: 'b', durationMs, attempts: null };
      const result = await generator.run({ ...load, quantities, record: true, signal: end, onSent });
      const { history, strangeAnswers, cpuS, answers, notBusy = 0 } = result;
      const accepted = unitsIn(history);
      const named = history.filter(({ completedUs }) => completedUs !== null).length;
      return {
        ...{ history, strangeAnswers, cpuS, answers, durationMs: result.durationMs },
        refused: Math.max(0, answers - named),
        ...{ schedule: null, rush: null, findings: [] },
        invalid: [
          ...(accepted < stock * sales ? [] : [`the stock of ${number(stock)} units ran out`]),
          ...(notBusy === 0
            ? []
            : [`${number(notBusy)} attempts were refused, and not as busy, with stock left`]),
        ],
      };
    },
  };
}

const usersOf = (attempts: number, seed: number): string[] =>
  attemptList({ attempts, buyers: Math.ceil(attempts * firstAttempts), seed });

function sellOut(point: StrategyPoint, seed: number, context: LoadsContext): Load {
  const { options, service, signal, end, onStep } = context;
  const { stock, ratePerSecond, sellOutMs: durationMs, afterSoldOutMs, quantities } = options;
  const schedule = poisson({ ratePerSecond, durationMs, seed });
  const users = usersOf(schedule.length, seed);
  const connections = Math.max(1, Math.min(sellOutConnections, schedule.length));
  let accepted = 0;
  let soldOutMs: number | null = null;
  return {
    ...{ load: 'open', name: 'sell-out', point, sales: 1, stock },
    async run([saleId = 0]) {
      const cpuBefore = process.cpuUsage();
      const { history, strangeAnswers, sending, reasons } = await runOpenLoop({
        ...{ url: service.url, saleId, users, schedule, connections, maxOutstanding, mayWait: true },
        ...{ requestTimeoutMs, signal: end, quantities },
        onProgress: (completed) => onStep(`sell-out, ${number(completed)} attempts`),
        onAnswer: ({ outcome }, units) => {
          if (outcome === 'accepted') accepted += units;
          const isRefused = outcome === 'sold-out' || outcome === 'not-enough-units';
          if (isRefused && accepted > stock - quantities.least) soldOutMs ??= performance.now();
          return soldOutMs !== null && performance.now() - soldOutMs >= afterSoldOutMs;
        },
      });
      const { user, system } = process.cpuUsage(cpuBefore);
      const scheduled = sending.scheduled - sending.notBegun;
      const dropped = sending.dropped + sending.unconnected;
      const soldOut = soldOutMs !== null || signal.aborted;
      return {
        ...{ history, strangeAnswers, cpuS: (user + system) / 1e6, answers: null, refused: 0, schedule },
        rush: { perSecond: ratePerSecond, scheduled, dropped, lagMs: sending.lagMs },
        invalid: reasons,
        findings: soldOut ? [] : [`not sold out within ${durationMs / 1_000} s`],
      };
    },
  };
}

/** `fixed`: attempts as fast as they are answered, on a stock for half of them. `rush`: arrivals that grow, then hold. */
function k6(script: 'fixed' | 'rush', point: StrategyPoint, seed: number, context: LoadsContext): Load {
  const { options, service, folder, end, onStep } = context;
  const { stock, ratePerSecond, quantities } = options;
  const durationMs = Math.max(leastK6Ms, options.durationMs);
  const attempts = script === 'fixed' ? 2 * stock : Math.ceil((ratePerSecond * durationMs) / 1_000);
  return {
    ...{ load: 'k6', name: `k6-${script}`, point, sales: 1, stock },
    async run([saleId = 0]) {
      onStep(`k6 ${script}`);
      const { history, strangeAnswers, dropped, thresholds, cpuS } = await runK6({
        ...{ url: service.url, saleId, users: usersOf(attempts, seed), script, ratePerSecond, durationMs },
        ...{ connections: point.connections, requestTimeoutMs, folder, signal: end, quantities },
      });
      const missed = thresholds.flatMap(({ passed, name }) => (passed ? [] : [name]));
      const scheduled = history.length + dropped;
      return {
        ...{ history, strangeAnswers, cpuS, answers: null, refused: 0, schedule: null, invalid: [] },
        rush: script === 'fixed' ? null : { perSecond: ratePerSecond, scheduled, dropped, lagMs: null },
        findings: missed.length === 0 ? [] : [`k6 ${script}: missed ${missed.join(', ')}`],
      };
    },
  };
}

const unitsIn = (history: readonly HistoryRecord[]): number =>
  history.reduce((sum, { outcome, units = 1 }) => (outcome === 'accepted' ? sum + units : sum), 0);

async function createSales(
  { service, options }: LoadsContext,
  count: number,
  stock: number,
): Promise<readonly number[]> {
  const ids: number[] = [];
  for (let n = 0; n < count; n++) ids.push(await createSale(service.url, stock, options.quantities.most));
  return ids;
}
