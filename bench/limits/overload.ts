/**
 * What a service does at many times its capacity, and how soon it is itself again:
 *
 *   capacity (closed loop) ─▶ overload (open loop at `times` × capacity) ─▶ recovery (open loop at the capacity) ─▶ audit
 *
 * Every attempt is a new customer's, in sales that do not sell out, so that all that are admitted cost the same.
 * Recovery begins when the last attempt of the overload was due, while the answers to the last ones may be on their way:
 * what the service still owes then is a part of how long it takes.
 */
import { createSale } from '../admin.ts';
import { type AuditReport, audit } from '../audit/audit.ts';
import { readStores, settle } from '../audit/reader.ts';
import type { HistoryRecord } from '../history.ts';
import type { BenchStores } from '../kit/stores.ts';
import { buyerName } from '../load/attempts.ts';
import { type LoadResult, runClosedLoop } from '../load/closed.ts';
import { type OpenResult, runOpenLoop } from '../load/open.ts';
import { poisson } from '../load/schedule.ts';
import { warmGeneratorUp } from '../load/warm-up.ts';
import { type Service, startService } from '../service.ts';
import {
  acceptedRate,
  type Goal,
  judge,
  type Overload,
  overloadOf,
  type Recovery,
  recoveryOf,
} from './overload-figures.ts';
import { residentBytes } from './pin.ts';

export interface OverloadOptions {
  readonly strategy: string;
  /** Null: the service's default. */
  readonly lock: string | null;
  /** How long the overload lasts. */
  readonly durationMs: number;
  /** How many times its capacity. */
  readonly times: number;
  /** As much as one generator can send; where it is less than `times` × capacity, the load is less, and says so. */
  readonly mostPerSecond: number;
  /** Connections of the overload; attempts that come while all of them are busy are dropped. */
  readonly connections: number;
  /** Of the arrivals. */
  readonly seed: number;
}

export interface OverloadContext {
  readonly stores: BenchStores;
  /** Fires when the user wants to stop: the run is then abandoned with this signal's reason. */
  readonly signal: AbortSignal;
  /** What is done now, in words. */
  readonly onStep: (step: string) => void;
}

/** Resident memory of the service process. */
interface Reading {
  /** Since the overload began. */
  readonly atMs: number;
  /** Null: the system does not tell. */
  readonly residentBytes: number | null;
}

export interface OverloadReport {
  readonly options: OverloadOptions;
  /** Accepted a second, in a closed loop, after a warm-up. */
  readonly capacityPerSecond: number;
  /** What the schedule asked for. */
  readonly ratePerSecond: number;
  readonly sending: OpenResult['sending'];
  /** Why the load was not what it should be, in words. */
  readonly reasons: readonly string[];
  readonly overload: Overload;
  readonly recovery: Recovery;
  readonly memory: readonly Reading[];
  readonly audit: AuditReport;
  readonly goals: readonly Goal[];
  /** What was odd: the service died or did not stop in order, or gave answers that the contract does not have. */
  readonly notes: readonly string[];
}

/** A service that is young is slow: group-commit did 3,400/s after 3 s of load, and 7,000/s after half a minute. */
const warmUpMs = 12_000;
const capacityMs = 5_000;
const recoveryMs = 5_000;
/** So many that the stores are busy and nobody is turned down: strategies that gather attempts serve more at a time. */
const closedConnections = (strategy: string): number =>
  strategy === 'lua' || strategy === 'group-commit' ? 128 : 12;
/** More than any strategy answers before the overload; also the stock of that sale. */
const capacityAttempts = 500_000;
/** No strategy admits so many times the capacity that was measured. A stock costs rows with `skip-locked`. */
const most = 5;
/** Longer than any wait inside the service. */
const requestTimeoutMs = 10_000;
const readingEveryMs = 10_000;

/** Throws when a store or the service does not start, and when no attempt is accepted before the overload. */
export async function runOverload(
  options: OverloadOptions,
  context: OverloadContext,
): Promise<OverloadReport> {
  const { signal, onStep } = context;
  onStep('starting');
  await using stores = await context.stores.fresh('overload');
  signal.throwIfAborted();
  const { strategy, lock } = options;
  await using service = await startService({ strategy, lock, ...stores }, { signal });
  const run = new Run(options, context, service);

  onStep('warming the generator up');
  await warmGeneratorUp(options.connections, signal);
  signal.throwIfAborted();
  const capacity = await run.capacity();
  const { saleId, open, after, schedule, ratePerSecond, memory } = await run.overload(capacity.perSecond);

  onStep('settling');
  const place = { databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, saleId };
  const settled = await settle(place);
  const serviceDied = service.died.aborted;
  const stopped = await service.stop();
  signal.throwIfAborted();
  onStep('audit');
  const report = audit(together([open, after]), await readStores(place, settled));
  const overload = overloadOf(open.history, schedule);
  const capacityPerSecond = capacity.perSecond;
  const recovery = recoveryOf(after.history, { durationMs: recoveryMs, capacityPerSecond });
  const duePerSecond = (schedule.length / options.durationMs) * 1_000;
  return {
    options,
    capacityPerSecond,
    ratePerSecond,
    sending: open.sending,
    reasons: open.reasons,
    overload,
    recovery,
    memory,
    audit: report,
    goals: judge({
      capacityPerSecond,
      times: options.times,
      duePerSecond,
      open,
      overload,
      recovery,
      serviceDied,
      audit: report,
    }),
    notes: notes([capacity.load, open, after], { serviceDied, stopped }, service),
  };
}

/** The three loads on one service, and the customers that each of them has for itself. */
class Run {
  readonly #options: OverloadOptions;
  readonly #context: OverloadContext;
  readonly #service: Service;
  readonly #end: AbortSignal;
  #customers = 0;

  constructor(options: OverloadOptions, context: OverloadContext, service: Service) {
    this.#options = options;
    this.#context = context;
    this.#service = service;
    this.#end = AbortSignal.any([context.signal, service.died]);
  }

  async capacity(): Promise<{ readonly load: LoadResult; readonly perSecond: number }> {
    this.#context.onStep('measuring the capacity');
    const saleId = await createSale(this.#service.url, capacityAttempts);
    const load = await this.#closed(saleId, this.#newCustomers(capacityAttempts), warmUpMs + capacityMs);
    this.#context.signal.throwIfAborted();
    const perSecond = Math.round(acceptedRate(load.history, warmUpMs, warmUpMs + capacityMs));
    if (perSecond > 0) return { load, perSecond };
    throw new Error(
      `no attempt was accepted before the overload; the service logged last:\n${this.#service.tail().join('\n')}`,
    );
  }

  async overload(capacityPerSecond: number): Promise<{
    readonly saleId: number;
    readonly open: OpenResult;
    readonly after: LoadResult;
    readonly schedule: Float64Array;
    readonly ratePerSecond: number;
    readonly memory: readonly Reading[];
  }> {
    const { durationMs, times, mostPerSecond, connections, seed } = this.#options;
    const ratePerSecond = Math.min(times * capacityPerSecond, mostPerSecond);
    const schedule = poisson({ ratePerSecond, durationMs, seed });
    const users = this.#newCustomers(schedule.length);
    // As many as the service can serve: whoever comes faster is turned down, before and after.
    const scheduleAfter = poisson({ ratePerSecond: capacityPerSecond, durationMs: recoveryMs, seed });
    const usersAfter = this.#newCustomers(scheduleAfter.length);
    const admitted = Math.min(schedule.length, Math.ceil((capacityPerSecond * most * durationMs) / 1_000));
    const saleId = await createSale(this.#service.url, admitted + usersAfter.length);
    const memory = watchMemory(this.#service.pid);
    let after: Promise<LoadResult> | undefined;
    const open = await runOpenLoop({
      url: this.#service.url,
      saleId,
      users,
      schedule,
      connections,
      maxOutstanding: connections,
      requestTimeoutMs,
      signal: this.#end,
      onProgress: (completed) =>
        this.#context.onStep(`overload: ${completed} of ${schedule.length} answered`),
      onScheduleEnd: () => {
        after = runOpenLoop({
          url: this.#service.url,
          saleId,
          users: usersAfter,
          schedule: scheduleAfter,
          connections,
          maxOutstanding: connections,
          requestTimeoutMs,
          signal: this.#end,
        });
      },
    });
    const recovered = (await after) ?? { history: [], strangeAnswers: [], utilization: null };
    this.#context.signal.throwIfAborted();
    return { saleId, open, after: recovered, schedule, ratePerSecond, memory: memory.end() };
  }

  #closed(saleId: number, users: readonly string[], durationMs: number): Promise<LoadResult> {
    return runClosedLoop({
      url: this.#service.url,
      saleIds: [saleId],
      users,
      connections: closedConnections(this.#options.strategy),
      durationMs,
      requestTimeoutMs,
      signal: this.#end,
    });
  }

  #newCustomers(count: number): string[] {
    const first = this.#customers;
    this.#customers += count;
    return Array.from({ length: count }, (_, n) => buyerName(first + n));
  }
}

/** One history of several loads: records keep their order and get an id of their own. */
function together(loads: readonly LoadResult[]): HistoryRecord[] {
  return loads.flatMap(({ history }) => history).map((record, id) => ({ ...record, id }));
}

/** Reads at once, then every 10 s until it is ended, and then once more. */
function watchMemory(pid: number): { end(): Reading[] } {
  const beganMs = performance.now();
  const readings: Reading[] = [];
  const read = (): void => {
    const atMs = Math.round(performance.now() - beganMs);
    readings.push({ atMs, residentBytes: residentBytes(pid) });
  };
  read();
  const timer = setInterval(read, readingEveryMs);
  return {
    end: () => {
      clearInterval(timer);
      read();
      return readings;
    },
  };
}

function notes(
  loads: readonly LoadResult[],
  end: { readonly serviceDied: boolean; readonly stopped: boolean },
  service: Service,
): string[] {
  const found: string[] = [];
  if (end.serviceDied)
    found.push(`the service died; it logged last: ${service.tail().slice(-3).join(' | ')}`);
  else if (!end.stopped) found.push('the service did not stop in order');
  for (const { status, body } of loads.flatMap(({ strangeAnswers }) => strangeAnswers)) {
    found.push(`an answer outside the contract: ${status} ${body}`);
  }
  return found;
}
