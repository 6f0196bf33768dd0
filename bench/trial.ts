/** One trial: one strategy under one load, from empty stores to the audit, in a service process of its own. */
import { basename, join } from 'node:path';
import { createSale } from './admin.ts';
import { type AuditReport, audit } from './audit/audit.ts';
import { isUnreadable, number, quantity, type StoresSnapshot } from './audit/check.ts';
import { readStores, type Settled, type StoresToAudit, settle } from './audit/reader.ts';
import { type HistoryRecord, readHistory, writeHistory } from './history.ts';
import { type AftermathLoad, type AftermathResult, runAftermath } from './load/aftermath.ts';
import { attemptList } from './load/attempts.ts';
import { type LoadResult, runClosedLoop } from './load/closed.ts';
import type { BenchOptions } from './options.ts';
import type { TrialPlan } from './plan.ts';
import { loadNumbers, type TrialResult } from './result.ts';
import { type Service, startService } from './service.ts';
import type { BenchStores } from './stores.ts';

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
 * In a closed loop a customer waits for the answer before the next one comes: there is no more load than connections, and
 * nobody needs to be turned down.
 */
const closedLoop = { ADMISSION_MS: '60000' };

/** How long an attempt may stay without an answer: longer than any wait inside the service. */
const requestTimeoutMs = 10_000;

export async function runTrial(trial: TrialPlan, context: TrialContext): Promise<TrialResult> {
  const { options, signal, onStep } = context;
  const startedAt = new Date();
  const began = performance.now();
  onStep('starting');
  await using stores = await context.stores.fresh(String(trial.number));
  signal.throwIfAborted();
  await using service = await startService({ ...trial, ...stores, env: closedLoop }, { signal });
  if (options.warmupMs > 0) {
    const warmUpId = await createSale(service.url, options.stock);
    await attack(trial, service, warmUpId, options.warmupMs, {
      ...context,
      onStep: () => onStep('warming up'),
    });
    signal.throwIfAborted();
  }
  const saleId = await createSale(service.url, options.stock);
  const load = await attack(trial, service, saleId, options.durationMs, context);
  signal.throwIfAborted();

  const place = { databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, saleId };
  const { settled, aftermath } = await conclude(service, place, load, context);
  const died = service.died.aborted;
  const stopped = await service.stop();
  onStep('audit');
  const path = join(context.folder, historyName(trial));
  await writeHistory(path, load.history);
  const judged = await judge(path, place, settled);
  return {
    strategy: trial.strategy,
    lock: trial.lock,
    unsafe: trial.unsafe,
    round: trial.round,
    load: options.load,
    startedAt: startedAt.toISOString(),
    ...loadNumbers(judged.history, judged.soldOut),
    aftermath: { paid: aftermath.paid, cancelled: aftermath.cancelled, refundDue: aftermath.refundDue },
    audit: judged.report,
    durationMs: Math.round(performance.now() - began),
    history: basename(path),
    serviceDied: died,
    notes: [...notes(load, { died, stopped }, service), ...aftermathNotes(aftermath)],
  };
}

/** Sends the attempts; a service that dies ends them. */
async function attack(
  trial: TrialPlan,
  service: Service,
  saleId: number,
  durationMs: number,
  { options, signal, onStep }: TrialContext,
): Promise<LoadResult> {
  const { attempts, buyers, connections } = options;
  const users = attemptList({ attempts, buyers, seed: trial.seed });
  const end = new AbortController();
  const stop = (): void => end.abort();
  for (const reason of [signal, service.died]) {
    reason.addEventListener('abort', stop);
    if (reason.aborted) stop();
  }
  try {
    return await runClosedLoop({
      url: service.url,
      saleId,
      users,
      connections,
      durationMs,
      requestTimeoutMs,
      signal: end.signal,
      onProgress: (completed) => onStep(`${number(completed)} of ${number(attempts)} attempts`),
    });
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/** Lets the service settle what the load left, has orders paid and cancelled, and lets it settle that. */
async function conclude(
  service: Service,
  place: StoresToAudit,
  load: LoadResult,
  { options, signal, onStep }: TrialContext,
): Promise<{ readonly settled: Settled; readonly aftermath: AftermathResult }> {
  onStep('settling');
  const settled = await settle(place);
  signal.throwIfAborted();
  const { url, died } = service;
  if (died.aborted) {
    return { settled, aftermath: { paid: 0, cancelled: 0, refundDue: 0, strange: [], unsent: 0 } };
  }
  onStep('paying and cancelling');
  const end = AbortSignal.any([signal, died]);
  const aftermath = await runAftermath({ url, signal: end, ...ordersFor(load.history, options.stock) });
  signal.throwIfAborted();
  onStep('settling');
  const settledAgain = await settle(place);
  signal.throwIfAborted();
  return { settled: settledAgain, aftermath };
}

/**
 * None is cancelled when there may be more orders than units: the audit would not see any more by how many the sale was
 * oversold.
 */
function ordersFor(
  history: readonly HistoryRecord[],
  stock: number,
): Pick<AftermathLoad, 'orderIds' | 'mayCancel'> {
  const accepted = history.filter(({ outcome }) => outcome === 'accepted');
  const mayHave = new Set(history.filter(({ result }) => result !== 'fail').map(({ userId }) => userId));
  return {
    orderIds: [...new Set(accepted.flatMap(({ orderId }) => orderId ?? []))],
    mayCancel: Math.max(accepted.length, mayHave.size) <= stock,
  };
}

interface Judged {
  readonly history: readonly HistoryRecord[];
  readonly report: AuditReport;
  /** Orders reached the stock; those that were closed since then were active under load. */
  readonly soldOut: boolean;
}

/** Audits what is on disk, so that anybody can repeat the judgement later. */
async function judge(path: string, place: StoresToAudit, settled: Settled): Promise<Judged> {
  const history = await readHistory(path);
  const snapshot = await readStores(place, settled);
  return { history, report: audit(history, snapshot), soldOut: reachedStock(snapshot) };
}

function reachedStock({ postgres }: StoresSnapshot): boolean {
  if (isUnreadable(postgres)) return false;
  const { id, stock } = postgres.sale;
  return postgres.orders.filter(({ saleId }) => saleId === id).length >= stock;
}

/** "history-1-global-lock-redis.jsonl": round, strategy, lock. */
function historyName({ round, strategy, lock }: TrialPlan): string {
  return `history-${round}-${strategy}${lock === null ? '' : `-${lock}`}.jsonl`;
}

function notes(
  load: LoadResult,
  end: { readonly died: boolean; readonly stopped: boolean },
  service: Service,
): string[] {
  const found: string[] = [];
  if (end.died) found.push(`the service died; it logged last: ${service.tail().slice(-3).join(' | ')}`);
  else if (!end.stopped) found.push('the service did not stop in order after the load');
  const { strangeAnswers } = load;
  const strange = load.history.filter(({ outcome }) => outcome === 'unexpected').length;
  if (strange > 0) {
    const examples = strangeAnswers.map(({ status, body }) => `${status} ${body}`).join(' | ');
    found.push(`${quantity(strange, 'answer')} outside the contract, such as ${examples}`);
  }
  const silent = load.history.filter(({ completedUs }) => completedUs === null).length;
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
