/**
 * One trial: one strategy at one point in one round, from empty stores to the verdicts, in a service process of its own.
 *
 *   empty stores ─▶ service ─▶ warm-up ─▶ loads ─▶ settled ─▶ orders paid and cancelled ─▶ stopped ─▶ audits
 *                                                                                             └─▶ round trips
 */
import { basename, join } from 'node:path';
import { createSale } from './admin.ts';
import { type AuditReport, audit, mergeAudits } from './audit/audit.ts';
import { isUnreadable, quantity, type StoresSnapshot } from './audit/check.ts';
import { readStores, type Settled, settle } from './audit/reader.ts';
import { type HistoryRecord, readHistory, writeHistory } from './history.ts';
import type { BenchStores } from './kit/stores.ts';
import { type Aftermath, type AftermathLoad, type AftermathResult, runAftermath } from './load/aftermath.ts';
import { type Measured, runLoads } from './loads.ts';
import { openLink } from './network/link.ts';
import { measureRoundTrips, unitsForRoundTrips } from './network/round-trips.ts';
import type { BenchOptions } from './options.ts';
import type { TrialPlan } from './plan.ts';
import { loadNumbers, type RoundTrips, type TrialResult } from './result.ts';
import { type Service, startService } from './service.ts';

export interface TrialContext {
  readonly options: BenchOptions;
  readonly stores: BenchStores;
  /** The folder of this run's results. */
  readonly folder: string;
  /** Fires when the user wants to stop: the trial is then abandoned with this signal's reason. */
  readonly signal: AbortSignal;
  /** What the trial does now: "starting", "1,234 attempts", "audit". */
  readonly onStep: (step: string) => void;
}

/**
 * Nobody is turned down because others wait: what a strategy does is compared, not what the service does when it is too
 * slow (bench/limits/overload.ts). In the closed loop there is no more load than connections.
 */
const patience = { ADMISSION_MS: '60000' };

interface Place {
  readonly databaseUrl: string;
  readonly redisUrl: string;
}

/** @returns one result for each load */
export async function runTrial(trial: TrialPlan, context: TrialContext): Promise<TrialResult[]> {
  const { signal, onStep } = context;
  const startedAt = new Date();
  const began = performance.now();
  onStep('starting');
  await using stores = await context.stores.fresh(String(trial.number));
  signal.throwIfAborted();
  const { measured, concluded, died, notes } = await serve(trial, stores, context);
  onStep('audit');
  const results: TrialResult[] = [];
  for (const load of measured) {
    const path = join(context.folder, historyName(trial, load, context.options));
    const judged = await judge(path, stores, load, concluded.settled);
    const aftermath = load === measured[0] ? concluded.aftermath : nothing;
    const run = { startedAt, died, notes: load === measured[0] ? notes : [] };
    results.push(resultOf(trial, load, judged, aftermath, run));
  }
  const roundTrips = wantsRoundTrips(trial, context.options)
    ? await countRoundTrips(trial, stores, context)
    : null;
  const durationMs = Math.round(performance.now() - began);
  return results.map((result, n) => ({ ...result, durationMs, roundTrips: n === 0 ? roundTrips : null }));
}

/** What a load left, settled, and what became of its orders. */
interface Concluded {
  readonly settled: ReadonlyMap<number, Settled>;
  readonly aftermath: AftermathResult;
}

async function serve(
  trial: TrialPlan,
  stores: Place,
  context: TrialContext,
): Promise<{
  readonly measured: readonly Measured[];
  readonly concluded: Concluded;
  readonly died: boolean;
  readonly notes: readonly string[];
}> {
  const { options, signal } = context;
  const { databaseUrl, redisUrl } = stores;
  const { rttMs } = trial.point;
  await using link = rttMs > 0 ? await openLink({ databaseUrl, redisUrl, rttMs }) : null;
  const reached = { databaseUrl: link?.databaseUrl ?? databaseUrl, redisUrl: link?.redisUrl ?? redisUrl };
  await using service = await startService({ ...trial, ...reached, env: patience }, { signal });
  const place = { databaseUrl, redisUrl, postgresPid: context.stores.postgresPid };
  const measured = await runLoads(trial, { ...context, ...place, service });
  const concluded = await conclude(service, stores, measured, context);
  const died = service.died.aborted;
  const stopped = await service.stop();
  const notes = endNotes({ died, stopped }, service);
  if (measured.length === 0) throw new Error(notes[0] ?? `no load: ${options.load.join()}`);
  return { measured, concluded, died, notes };
}

const nothing: AftermathResult = { paid: 0, cancelled: 0, refundDue: 0, strange: [], unsent: 0 };

/**
 * Lets the service settle what the loads left, has orders of the first one paid and cancelled, and lets it settle that.
 */
async function conclude(
  service: Service,
  stores: Place,
  measured: readonly Measured[],
  { signal, onStep }: TrialContext,
): Promise<Concluded> {
  const saleIds = measured.flatMap((load) => load.saleIds);
  const settleAll = async (): Promise<Map<number, Settled>> => {
    onStep('settling');
    const settled = new Map<number, Settled>();
    for (const saleId of saleIds) settled.set(saleId, await settle({ ...stores, saleId }));
    signal.throwIfAborted();
    return settled;
  };
  const settled = await settleAll();
  const [first] = measured;
  const { url, died } = service;
  if (died.aborted || first === undefined) return { settled, aftermath: nothing };
  onStep('paying and cancelling');
  const end = AbortSignal.any([signal, died]);
  const aftermath = await runAftermath({ url, signal: end, ...ordersFor(first) });
  signal.throwIfAborted();
  return { settled: await settleAll(), aftermath };
}

/**
 * None is cancelled when there may be more orders than units: the audit would not see any more by how many the sale was
 * oversold.
 */
function ordersFor({
  history,
  stock,
  saleIds,
}: Pick<Measured, 'history' | 'stock' | 'saleIds'>): Pick<AftermathLoad, 'orderIds' | 'mayCancel'> {
  const accepted = history.filter(({ outcome }) => outcome === 'accepted');
  const fits = (saleId: number): boolean => {
    const own = history.filter((record) => record.saleId === saleId);
    const mayHave = new Set(own.filter(({ result }) => result !== 'fail').map(({ userId }) => userId));
    return Math.max(own.filter(({ outcome }) => outcome === 'accepted').length, mayHave.size) <= stock;
  };
  return {
    orderIds: [...new Set(accepted.flatMap(({ orderId }) => orderId ?? []))],
    mayCancel: saleIds.every(fits),
  };
}

interface Judged {
  readonly path: string;
  readonly history: readonly HistoryRecord[];
  readonly report: AuditReport;
  /** Orders reached the stock; those that were closed since then were active under load. */
  readonly soldOut: boolean;
}

/** Audits what is on disk, so that anybody can repeat the judgement later. */
async function judge(
  path: string,
  stores: Place,
  load: Measured,
  settledSales: Concluded['settled'],
): Promise<Judged> {
  await writeHistory(path, load.history);
  const history = await readHistory(path);
  const reports: AuditReport[] = [];
  let soldOut = true;
  for (const saleId of load.saleIds) {
    const settled = settledSales.get(saleId) ?? { unreadable: 'nobody waited for it' };
    const snapshot = await readStores({ ...stores, saleId }, settled);
    const own = load.saleIds.length === 1 ? history : history.filter((record) => record.saleId === saleId);
    reports.push(audit(own, snapshot));
    soldOut &&= reachedStock(snapshot);
  }
  return { path, history, report: mergeAudits(reports), soldOut };
}

function reachedStock({ postgres }: StoresSnapshot): boolean {
  if (isUnreadable(postgres)) return false;
  const { id, stock } = postgres.sale;
  return postgres.orders.filter(({ saleId }) => saleId === id).length >= stock;
}

function resultOf(
  trial: TrialPlan,
  load: Measured,
  { path, history, report, soldOut }: Judged,
  aftermath: AftermathResult,
  run: { readonly startedAt: Date; readonly died: boolean; readonly notes: readonly string[] },
): TrialResult {
  const { paid, cancelled, refundDue }: Aftermath = aftermath;
  const stock = load.stock * load.saleIds.length;
  return {
    strategy: trial.strategy,
    lock: trial.lock,
    unsafe: trial.unsafe,
    twin: trial.twin,
    round: trial.round,
    load: load.kind,
    point: trial.point,
    rush: load.rush,
    startedAt: run.startedAt.toISOString(),
    ...loadNumbers(history, { stock, soldOut, schedule: load.schedule }),
    cost: load.cost,
    roundTrips: null,
    generatorUtilization: load.utilization,
    invalid: load.invalid,
    aftermath: { paid, cancelled, refundDue },
    audit: report,
    durationMs: 0,
    history: basename(path),
    serviceDied: run.died,
    notes: [...run.notes, ...load.notes, ...loadNotes(load), ...aftermathNotes(aftermath)],
  };
}

/** "history-1-global-lock-redis.jsonl": round, strategy, lock; then where on the axis, and which load. */
function historyName(
  { round, strategy, lock, twin, point }: TrialPlan,
  { name }: Measured,
  { sweep }: BenchOptions,
): string {
  const { rttMs, sales, connections } = point;
  const parts = [round, strategy, lock, twin ? 'twin' : null, rttMs > 0 ? `rtt${rttMs}` : null];
  parts.push(sales > 1 ? `sales${sales}` : null, sweep === 'connections' ? `c${connections}` : null);
  parts.push(name === '' ? null : name);
  return `history-${parts.filter((part) => part !== null).join('-')}.jsonl`;
}

/** Once for each strategy: they are properties of the code, not of the machine. */
function wantsRoundTrips({ round, twin }: TrialPlan, { sweep, smoke, load }: BenchOptions): boolean {
  return round === 1 && !twin && sweep === null && !smoke && load.includes('closed');
}

/** In a service of its own that reaches the stores through a link that counts. */
async function countRoundTrips(trial: TrialPlan, stores: Place, context: TrialContext): Promise<RoundTrips> {
  const { signal, onStep } = context;
  onStep('counting round trips');
  const { databaseUrl, redisUrl } = stores;
  await using link = await openLink({ databaseUrl, redisUrl, rttMs: 0 });
  const reached = { databaseUrl: link.databaseUrl, redisUrl: link.redisUrl };
  await using service = await startService({ ...trial, ...reached }, { signal });
  const saleId = await createSale(service.url, unitsForRoundTrips);
  return await measureRoundTrips(link, service.url, saleId);
}

function endNotes(end: { readonly died: boolean; readonly stopped: boolean }, service: Service): string[] {
  if (end.died) return [`the service died; it logged last: ${service.tail().slice(-3).join(' | ')}`];
  return end.stopped ? [] : ['the service did not stop in order after the load'];
}

function loadNotes({ history, strangeAnswers }: Measured): string[] {
  const found: string[] = [];
  const strange = history.filter(({ outcome }) => outcome === 'unexpected').length;
  if (strange > 0) {
    const examples = strangeAnswers.map(({ status, body }) => `${status} ${body}`).join(' | ');
    found.push(`${quantity(strange, 'answer')} outside the contract, such as ${examples}`);
  }
  const silent = history.filter(({ completedUs }) => completedUs === null).length;
  if (silent > 0) found.push(`${quantity(silent, 'attempt')} without any answer`);
  return found;
}

function aftermathNotes({ strange, unsent }: AftermathResult): string[] {
  const found: string[] = [];
  if (strange.length > 0)
    found.push(
      `${quantity(strange.length, 'strange pair')} of answers after the load, such as ${strange.slice(0, 3).join(' | ')}`,
    );
  if (unsent > 0)
    found.push(`no time for ${quantity(unsent, 'payment or cancellation', 'payments or cancellations')}`);
  return found;
}
