/**
 * One trial: one strategy in one service process, from empty stores to the verdicts.
 *
 *   empty stores ─▶ service ─▶ warm-up ─▶ loads ─▶ settled ─▶ orders paid and cancelled ─▶ stopped ─▶ audits
 *                                                                                             └─▶ round trips, pgbench
 */
import { basename, join } from 'node:path';
import { type AuditReport, audit, mergeAudits } from '../../audit/audit.ts';
import { readStores, type Settled, type StoresToAudit, settle } from '../../audit/reader.ts';
import { ofSale, reachedStock } from '../../audit/sale.ts';
import { createSale, priceCents } from '../../kit/admin.ts';
import { readHistory, writeHistory } from '../../kit/history.ts';
import { openLink, type RoundTrips } from '../../kit/link.ts';
import { measureReference, type Reference } from '../../kit/pgbench.ts';
import { noShedding, type Service, startService } from '../../kit/service.ts';
import type { BenchStores } from '../../kit/stores.ts';
import type { Bare, Trial } from '../../kit/suite.ts';
import { quantity } from '../../kit/text.ts';
import { type PostLoadResult, runPostLoad } from '../../load/post-load.ts';
import type { Generator } from '../../load/rate.ts';
import { type Measured, runLoads } from './loads.ts';
import type { StrategyCell, StrategyOptions } from './options.ts';
import { loadNumbers, type StrategyPoint, type StrategyResult } from './result.ts';
import { measureRoundTrips, unitsForRoundTrips } from './round-trips.ts';

export interface TrialContext {
  readonly options: StrategyOptions;
  readonly stores: BenchStores;
  readonly generator: Generator;
  /** The folder of this run's results. */
  readonly folder: string;
  readonly scratch: string;
  readonly signal: AbortSignal;
  readonly onStep: (step: string) => void;
}

type StrategyTrial = Trial<StrategyCell>;

/** @returns one result for each load */
export async function runStrategyTrial(
  trial: StrategyTrial,
  context: TrialContext,
): Promise<Bare<StrategyResult>[]> {
  const { signal, onStep } = context;
  onStep('starting');
  await using stores = await context.stores.fresh(String(trial.number));
  signal.throwIfAborted();
  const served = await serve(trial, stores, context);
  onStep('audit');
  const results = await judge(trial, stores, served, context);
  const once = await measureOnce(trial, stores, context);
  return results.map((result, n) => (n === 0 ? { ...result, ...once } : result));
}

/** What a service did, and what it left. */
interface Served {
  readonly measured: readonly Measured[];
  readonly settled: ReadonlyMap<number, Settled>;
  readonly postLoad: PostLoadResult;
  readonly died: boolean;
  readonly findings: readonly string[];
}

async function serve(trial: StrategyTrial, stores: StoresToAudit, context: TrialContext): Promise<Served> {
  const { options, signal } = context;
  const { strategy, lock } = trial.cell;
  const { databaseUrl, redisUrl } = stores;
  const { rttMs } = trial.point as StrategyPoint;
  await using link = rttMs > 0 ? await openLink({ databaseUrl, redisUrl, rttMs }) : null;
  const reached = { databaseUrl: link?.databaseUrl ?? databaseUrl, redisUrl: link?.redisUrl ?? redisUrl };
  await using service = await startService({ strategy, lock, ...reached, env: noShedding }, { signal });
  const measured = await runLoads(trial, {
    ...context,
    redisUrl,
    postgresPid: context.stores.postgresPid,
    service,
  });
  const concluded = await conclude(service, stores, measured, context);
  const died = service.died.aborted;
  const stopped = await service.stop();
  const findings: string[] = [];
  if (died) findings.push(`the service died; it logged last: ${service.tail().slice(-3).join(' | ')}`);
  else if (!stopped) findings.push('the service did not stop in order after the load');
  if (measured.length === 0) throw new Error(findings[0] ?? `no load: ${options.load.join()}`);
  return { measured, ...concluded, died, findings };
}

const noPostLoad: PostLoadResult = { paid: 0, cancelled: 0, refundDue: 0, findings: [] };

/** Lets the service settle what the loads left, pays and cancels orders of the first one, and lets it settle that. */
async function conclude(
  { url, died }: Service,
  stores: StoresToAudit,
  measured: readonly Measured[],
  { signal, onStep }: TrialContext,
): Promise<Pick<Served, 'settled' | 'postLoad'>> {
  const saleIds = measured.flatMap((load) => load.saleIds);
  const settleAll = async (): Promise<ReadonlyMap<number, Settled>> => {
    onStep('settling');
    const settled = await settle(stores, saleIds);
    signal.throwIfAborted();
    return settled;
  };
  const settled = await settleAll();
  const [first] = measured;
  if (died.aborted || first === undefined) return { settled, postLoad: noPostLoad };
  onStep('paying and cancelling');
  const end = AbortSignal.any([signal, died]);
  const postLoad = await runPostLoad({ url, signal: end, priceCents, ...ordersFor(first) });
  signal.throwIfAborted();
  return { settled: await settleAll(), postLoad };
}

/** None is cancelled when there may be more orders than units: the audit could not see by how many a sale was oversold. */
function ordersFor({ history, stock, saleIds }: Measured): {
  readonly orderIds: readonly string[];
  readonly mayCancel: boolean;
} {
  const fits = (saleId: number): boolean => {
    const own = ofSale(history, saleId);
    const mayHave = new Set(own.filter(({ result }) => result !== 'fail').map(({ userId }) => userId));
    return Math.max(own.filter(({ outcome }) => outcome === 'accepted').length, mayHave.size) <= stock;
  };
  const accepted = history.flatMap(({ outcome, orderId }) =>
    outcome === 'accepted' && orderId !== null ? [orderId] : [],
  );
  return { orderIds: [...new Set(accepted)], mayCancel: saleIds.every(fits) };
}

/** Audits what is on disk, so that the judgement can be repeated later. */
async function judge(
  trial: StrategyTrial,
  stores: StoresToAudit,
  { measured, settled, postLoad, died, findings }: Served,
  { folder, options }: TrialContext,
): Promise<Bare<StrategyResult>[]> {
  const snapshots = await readStores(
    stores,
    measured.flatMap(({ saleIds }) => saleIds),
    settled,
  );
  const results: Bare<StrategyResult>[] = [];
  for (const [n, load] of measured.entries()) {
    const path = join(folder, historyName(trial, load, options));
    await writeHistory(path, load.history);
    const history = await readHistory(path);
    const reports: AuditReport[] = [];
    let soldOut = true;
    for (const saleId of load.saleIds) {
      const snapshot = snapshots.get(saleId)!;
      reports.push(audit(ofSale(history, saleId), snapshot));
      soldOut &&= reachedStock(snapshot);
    }
    const { paid, cancelled, refundDue } = n === 0 ? postLoad : noPostLoad;
    const report = mergeAudits(reports);
    const { schedule, refused, saleIds, kind, rush, cost, generator, invalid, point } = load;
    const { strategy, lock, unsafe } = trial.cell;
    const own = n === 0 ? [...findings, ...postLoad.findings] : [];
    results.push({
      strategy,
      lock,
      unsafe,
      load: kind,
      point,
      rush,
      ...loadNumbers(history, { stock: load.stock * saleIds.length, soldOut, schedule, refused }),
      cost,
      roundTrips: null,
      reference: null,
      generator,
      invalid,
      postLoad: { paid, cancelled, refundDue },
      audit: report,
      history: basename(path),
      serviceDied: died,
      findings: [...report.findings, ...own, ...load.findings, ...strangeIn(load)],
    });
  }
  return results;
}

/** "history-1-global-lock-redis-sell-out.jsonl": round, strategy, lock; then where on the axes, and which load. */
function historyName(
  { round, cell, point }: StrategyTrial,
  { name }: Measured,
  { sweep }: StrategyOptions,
): string {
  const { rttMs = 0, sales = 1 } = point;
  const axis = sweep === 'rtt' ? `rtt${rttMs}` : sweep === 'sales' ? `sales${sales}` : '';
  const parts = [round, cell.strategy, cell.lock ?? '', cell.control ? 'control' : '', axis, name];
  return `history-${parts.filter((part) => part !== '').join('-')}.jsonl`;
}

function strangeIn({ history, strangeAnswers, kind }: Measured): string[] {
  const findings: string[] = [];
  const strange = history.filter(({ outcome }) => outcome === 'unexpected').length;
  if (strange > 0) {
    const examples = strangeAnswers.map(({ status, body }) => `${status} ${body}`).join(' | ');
    findings.push(`${quantity(strange, 'answer')} outside the contract, such as ${examples}`);
  }
  const silent = history.filter(({ completedUs }) => completedUs === null).length;
  // A closed loop is cut off: those in flight then have no answer.
  if (silent > 0 && kind !== 'closed') findings.push(`${quantity(silent, 'attempt')} without any answer`);
  return findings;
}

/** Beside the loads: round trips once for each strategy, since they are properties of the code; pgbench in each round. */
async function measureOnce(
  { cell, round, number }: StrategyTrial,
  { databaseUrl, redisUrl }: StoresToAudit,
  { options, stores, scratch, signal, onStep }: TrialContext,
): Promise<{ readonly roundTrips: RoundTrips | null; readonly reference: Reference | null }> {
  const { load, isBrief, durationMs, warmupMs } = options;
  if (isBrief || cell.control || !load.includes('closed')) return { roundTrips: null, reference: null };
  let roundTrips: RoundTrips | null = null;
  if (round === 1) {
    onStep('counting round trips');
    await using link = await openLink({ databaseUrl, redisUrl, rttMs: 0 });
    const reached = { databaseUrl: link.databaseUrl, redisUrl: link.redisUrl };
    await using service = await startService(
      { strategy: cell.strategy, lock: cell.lock, ...reached },
      { signal },
    );
    roundTrips = await measureRoundTrips(
      link,
      service.url,
      await createSale(service.url, unitsForRoundTrips),
    );
  }
  if (!cell.inPostgres) return { roundTrips, reference: null };
  onStep('pgbench with the same statements');
  await using own = await stores.fresh(`${number}_pgbench`);
  const place = { databaseUrl: own.databaseUrl, layout: { server: null }, folder: scratch };
  const reference = await measureReference({
    strategy: cell.strategy,
    ...place,
    warmupMs,
    durationMs,
    signal,
  });
  return { roundTrips, reference };
}
