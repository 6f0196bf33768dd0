/**
 * One trial: one strategy in one service process, from empty stores to the verdicts.
 *
 *   empty stores ─▶ service ─▶ warm-up ─▶ loads ─▶ settled ─▶ orders paid and cancelled ─▶ stopped ─▶ audits
 *                                                                                             └─▶ round trips, pgbench
 */
import { join } from 'node:path';
import { audit } from '../../../lab/audit/audit.ts';
import { isUnreadable, type StoresSnapshot } from '../../../lab/audit/check.ts';
import { readStores, type StoresToAudit, settle } from '../../../lab/audit/reader.ts';
import { createSale, priceCents } from '../../../lab/clients/admin.ts';
import { openFarStores } from '../../../lab/far-stores.ts';
import { readHistory, writeHistory } from '../../../lab/history.ts';
import { quantity } from '../../../lab/kit/text.ts';
import { remoteService } from '../../../lab/remote.ts';
import type { BenchStores } from '../../../lab/servers/stores.ts';
import { noShedding, startService } from '../../../lab/service.ts';
import { type Served, serve } from '../../kit/serve.ts';
import type { Bare, Trial } from '../../kit/suite.ts';
import { type PostLoadResult, runPostLoad } from '../../load/post-load.ts';
import { strangeIn } from '../../load/recorder.ts';
import { measureReference } from '../../reference/pgbench.ts';
import { type LoadsContext, type Measured, runLoads } from './loads.ts';
import type { StrategyCell } from './options.ts';
import { loadNumbers, type StrategyPoint, type StrategyResult } from './result.ts';
import { measureRoundTrips, unitsForRoundTrips } from './round-trips.ts';

export interface TrialContext
  extends Pick<LoadsContext, 'options' | 'generator' | 'folder' | 'signal' | 'onStep'> {
  readonly stores: BenchStores;
  readonly scratch: string;
}

type StrategyTrial = Trial<StrategyCell>;

/** The loads of a service, and what its stores had not settled. */
interface Loaded {
  readonly measured: readonly Measured[];
  readonly settled: Awaited<ReturnType<typeof settle>>;
  readonly postLoad: PostLoadResult;
}

/** @returns one result for each load */
export async function runStrategyTrial(
  trial: StrategyTrial,
  context: TrialContext,
): Promise<Bare<StrategyResult>[]> {
  const { signal, onStep, options } = context;
  onStep('starting');
  await using stores = await context.stores.fresh(String(trial.number));
  signal.throwIfAborted();
  const served = await load(trial, stores, context);
  if (served.result.measured.length === 0) {
    throw new Error(served.findings[0] ?? `no load: ${options.load.join()}`);
  }
  onStep('audit');
  const results = await judge(trial, stores, served, context);
  const once = await measureOnce(trial, stores, context);
  return results.map((result, n) => (n === 0 ? { ...result, ...once } : result));
}

async function load(
  trial: StrategyTrial,
  { databaseUrl, redisUrl }: StoresToAudit,
  context: TrialContext,
): Promise<Served<Loaded>> {
  const { signal, onStep } = context;
  const { postgresPid } = context.stores;
  const { strategy, lock } = trial.cell;
  const { rttMs } = trial.point as StrategyPoint;
  await using link = rttMs > 0 ? await openFarStores({ databaseUrl, redisUrl, rttMs }) : null;
  const reached = { databaseUrl: link?.databaseUrl ?? databaseUrl, redisUrl: link?.redisUrl ?? redisUrl };
  return await serve({ strategy, lock, ...reached, env: noShedding }, signal, async (service, end) => {
    const measured = await runLoads(trial, { ...context, redisUrl, postgresPid, service, end });
    const saleIds = measured.flatMap((one) => one.saleIds);
    const settleAll = () => {
      onStep('settling');
      return settle({ databaseUrl, redisUrl }, saleIds);
    };
    let settled = await settleAll();
    let postLoad: PostLoadResult = { ...noPostLoad, findings: [] };
    const [first] = measured;
    if (first !== undefined && !end.aborted) {
      onStep('paying and cancelling');
      postLoad = await runPostLoad({ url: service.url, signal: end, priceCents, ...ordersFor(first) });
      settled = await settleAll();
    }
    return { measured, settled, postLoad };
  });
}

const noPostLoad: StrategyResult['postLoad'] = { paid: 0, cancelled: 0, refundDue: 0 };

/** No order is cancelled if there may be more orders than units: the audit could not count the oversold units. */
function ordersFor({ history, stock, saleIds }: Measured): {
  readonly orderIds: readonly string[];
  readonly units: ReadonlyMap<string, number>;
  readonly mayCancel: boolean;
} {
  const ordered = new Map<string, number>();
  const accepted = new Map<number, number>();
  const mayHave = new Map<number, Map<string, number>>(saleIds.map((id) => [id, new Map()]));
  for (const { saleId, userId, outcome, result, orderId, units = 1 } of history) {
    if (result !== 'fail') mayHave.get(saleId)?.set(userId, units);
    if (outcome !== 'accepted') continue;
    accepted.set(saleId, (accepted.get(saleId) ?? 0) + units);
    if (orderId !== null) ordered.set(orderId, units);
  }
  const sumOf = (units: ReadonlyMap<string, number>) => [...units.values()].reduce((sum, n) => sum + n, 0);
  const fits = (id: number): boolean =>
    Math.max(accepted.get(id) ?? 0, sumOf(mayHave.get(id) ?? new Map())) <= stock;
  return { orderIds: [...ordered.keys()], units: ordered, mayCancel: saleIds.every(fits) };
}

/** Audits the histories on disk, so that the judgement can be repeated later. */
async function judge(
  trial: StrategyTrial,
  stores: StoresToAudit,
  { result: { measured, settled, postLoad }, died, findings }: Served<Loaded>,
  { folder, options }: TrialContext,
): Promise<Bare<StrategyResult>[]> {
  const saleIds = measured.flatMap((one) => one.saleIds);
  const snapshots = await readStores(stores, saleIds, settled);
  const { strategy, lock, unsafe } = trial.cell;
  const results: Bare<StrategyResult>[] = [];
  for (const [n, one] of measured.entries()) {
    const name = historyName(trial, one.name, options.sweep);
    const path = join(folder, name);
    await writeHistory(path, one.history);
    const history = await readHistory(path);
    const sales = one.saleIds.map((id) => snapshots.get(id)!);
    const report = audit(history, ...sales);
    const { load: kind, point, rush, cost, generator, invalid, schedule, refused } = one;
    const { findings: strange, ...closed } = n === 0 ? postLoad : { ...noPostLoad, findings: [] };
    const facts = {
      stock: one.stock * sales.length,
      soldOut: sales.every((sale) => reachedStock(sale, options.quantities.least)),
      schedule,
      refused,
    };
    results.push({
      ...{ strategy, lock, unsafe, load: kind, point, rush },
      ...loadNumbers(history, facts),
      ...{ cost, roundTrips: null, reference: null, generator, invalid },
      ...{ postLoad: closed, audit: report, history: name, serviceDied: died },
      findings: [
        ...report.findings,
        ...(n === 0 ? findings : []),
        ...strange,
        ...one.findings,
        ...strangeIn(one),
        ...missingIn(one),
      ],
    });
  }
  return results;
}

/** Whether orders reached the stock, but for fewer units than anyone asked for; those closed since then count, too. */
function reachedStock({ postgres }: StoresSnapshot, least: number): boolean {
  if (isUnreadable(postgres)) return false;
  const { id, stock } = postgres.sale;
  const own = postgres.orders.filter(({ saleId }) => saleId === id);
  return own.reduce((units, { quantity }) => units + quantity, 0) > stock - least;
}

/** "history-1-global-lock-redis-sell-out.jsonl": round, strategy, lock; then the point on the axis, and the load. */
function historyName({ round, cell, point }: StrategyTrial, load: string, sweep: string | null): string {
  const axis = sweep === 'rtt' ? `rtt${point.rttMs}` : sweep === 'sales' ? `sales${point.sales}` : '';
  const parts = [round, cell.strategy, cell.lock ?? '', cell.control ? 'control' : '', axis, load];
  return `history-${parts.filter((part) => part !== '').join('-')}.jsonl`;
}

function missingIn({ history, load: kind }: Measured): string[] {
  const silent = history.filter(({ completedUs }) => completedUs === null).length;
  // A closed loop is cut off: attempts in flight then have no answer.
  return silent > 0 && kind !== 'closed' ? [`${quantity(silent, 'attempt')} without any answer`] : [];
}

/** Measures round trips once for each strategy, since they are properties of the code, and pgbench in each round. */
async function measureOnce(
  { cell: { strategy, lock, control, inPostgres }, round, number }: StrategyTrial,
  { databaseUrl, redisUrl }: StoresToAudit,
  { options, stores, scratch: folder, signal, onStep }: TrialContext,
): Promise<Pick<StrategyResult, 'roundTrips' | 'reference'>> {
  const { load, isBrief, durationMs, warmupMs } = options;
  let roundTrips: StrategyResult['roundTrips'] = null;
  if (isBrief || control || !load.includes('closed')) return { roundTrips, reference: null };
  if (round === 1 && remoteService() === null) {
    onStep('counting round trips');
    await using link = await openFarStores({ databaseUrl, redisUrl, rttMs: 0 });
    const reached = { databaseUrl: link.databaseUrl, redisUrl: link.redisUrl };
    await using service = await startService({ strategy, lock, ...reached }, { signal });
    const saleId = await createSale(service.url, unitsForRoundTrips);
    roundTrips = await measureRoundTrips(link, service.url, saleId);
  }
  if (!inPostgres) return { roundTrips, reference: null };
  onStep('pgbench with the same statements');
  await using own = await stores.fresh(`${number}_pgbench`);
  const place = { databaseUrl: own.databaseUrl, layout: { server: null }, folder };
  const reference = await measureReference({ strategy, ...place, warmupMs, durationMs, signal });
  return { roundTrips, reference };
}
