/**
 * One race: each strategy in a separate service with separate stores, the same customers for all, faults during the sale, the audit
 * at the end. Independent of the page and of the command. For the states see view.ts.
 *
 * All lanes share the machine with the load: a race shows correctness, outages and recovery. It does not measure speed.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isActive } from '../../lab/audit/check.ts';
import type { StrategyFault } from '../../lab/faults/strategy-fault.ts';
import type { HistoryRecord } from '../../lab/history.ts';
import { removeFolder, temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { reasonOf } from '../../lab/kit/text.ts';
import { SaleTrial } from '../../lab/sale-trial.ts';
import { noShedding } from '../../lab/service.ts';
import { type OpenShop, openShop } from '../../lab/shop.ts';
import { strategies } from '../../src/strategies/registry.ts';
import { buyerName, poisson } from '../load/attempts.ts';
import { runOpenLoop } from '../load/open.ts';
import { Lane } from './lane.ts';
import type { Phase, RaceOptions, RaceView, Strike } from './view.ts';

/** Time added to each round trip to a store: simulated distance. Overlapping reads cause overselling. */
const RTT_MS = 2;
/** Connections of a lane: enough for all attempts at the default rate during a fault of 2 s. */
const CONNECTIONS = 256;
const TIMEOUT_MS = 6_000;
const VIEW_EVERY_MS = 200;

/** A command that is invalid in the current state. */
export class RaceError extends Error {}

/** A lane, with its servers during a race. */
interface Entrant {
  readonly lane: Lane;
  readonly shop: OpenShop;
  /** Its sale, once all shops are open. */
  trial?: SaleTrial;
}

export interface PlannedFault {
  readonly fault: StrategyFault;
  readonly atMs: number;
}

export class Race {
  readonly #onView: (view: RaceView) => void;
  #options: RaceOptions;
  #phase: Phase = 'idle';
  #problem: string | null = null;
  #lanes: Lane[] = [];
  #entrants: Entrant[] = [];
  #strikes: Strike[] = [];
  /** The fault in progress. */
  #striking: Promise<void> | null = null;
  /** `performance.now` at the start of the load. */
  #beganMs: number | null = null;
  #endedMs: number | null = null;
  #work: Promise<void> = Promise.resolve();
  /** Data of all servers. */
  #folder: string | null = null;
  #stop = new AbortController();

  /** @param onView called on each change, and five times a second during a race */
  constructor(options: RaceOptions, onView: (view: RaceView) => void) {
    this.#options = options;
    this.#onView = onView;
  }

  get view(): RaceView {
    const nowMs = this.#nowMs();
    const { customers, rate } = this.#options;
    return {
      phase: this.#phase,
      options: this.#options,
      elapsedMs: Math.round(nowMs),
      durationMs: Math.round((customers / rate) * 1_000),
      strikes: [...this.#strikes],
      lanes: this.#lanes.map((lane) => lane.view(nowMs)),
      problem: this.#problem,
    };
  }

  /** Starts a race. @throws RaceError while one is running */
  start(options: RaceOptions, faults: readonly PlannedFault[] = []): void {
    if (!['idle', 'done', 'failed'].includes(this.#phase)) throw new RaceError('a race runs already');
    this.#options = options;
    [this.#problem, this.#beganMs, this.#endedMs, this.#striking] = [null, null, null, null];
    [this.#entrants, this.#strikes] = [[], []];
    this.#lanes = options.strategies.map(
      (name) => new Lane(strategies.get(name)!.description, options.units),
    );
    this.#stop = new AbortController();
    this.#become('preparing');
    this.#work = this.#run(faults);
  }

  /** Injects a fault into all lanes and heals it after 2 s. @throws RaceError without a running race, or during a fault */
  strike(fault: StrategyFault): void {
    if (this.#phase !== 'running') throw new RaceError('a fault needs a race that runs');
    if (this.#striking !== null) throw new RaceError('one fault at a time: the last one still lasts');
    const { signal } = this.#stop;
    const one = async ({ lane, trial }: Entrant): Promise<void> => {
      await trial!.strike(fault, signal);
      lane.healed(Math.round(this.#nowMs()));
    };
    const work = async (): Promise<void> => {
      const { name, title } = fault;
      const strike: Strike = { name, title, struckMs: Math.round(this.#nowMs()), isHealed: false };
      for (const { lane } of this.#entrants) lane.struck(strike.struckMs);
      this.#strikes.push(strike);
      // Waits for all: a server that starts while its lane closes would leak.
      const ends = await Promise.allSettled(this.#entrants.map(one));
      for (const end of ends) if (end.status === 'rejected') throw end.reason;
      this.#strikes = this.#strikes.map((other) => (other === strike ? { ...other, isHealed: true } : other));
    };
    const striking = work();
    this.#striking = striking;
    const free = (): void => {
      if (this.#striking === striking) this.#striking = null;
    };
    striking.then(free, (error) => this.#stop.abort(error));
  }

  /** Stops the race; resolves when all its servers and data are gone. */
  async stop(): Promise<void> {
    this.#stop.abort(new RaceError('stopped'));
    await this.#work;
  }

  /** Resolves when the race has ended. */
  async ended(): Promise<RaceView> {
    await this.#work;
    return this.view;
  }

  async #run(faults: readonly PlannedFault[]): Promise<void> {
    const views = setInterval(() => this.#onView(this.view), VIEW_EVERY_MS);
    try {
      await this.#prepare();
      this.#stop.signal.throwIfAborted();
      await Promise.all(
        this.#entrants.map(async (entrant) => {
          entrant.trial = await SaleTrial.open(entrant.shop, this.#options.units, !entrant.lane.isSafe);
        }),
      );
      this.#become('running');
      const histories = await this.#sell(faults);
      this.#become('auditing');
      await Promise.all(this.#entrants.map((entrant, n) => this.#judge(entrant, histories[n]!)));
      await this.#close();
      this.#become('done');
    } catch (error) {
      await this.#close();
      const { aborted, reason } = this.#stop.signal;
      const cause = aborted ? reason : error;
      const isStopped = cause instanceof RaceError;
      this.#problem = isStopped ? null : reasonOf(cause);
      this.#become(isStopped ? 'idle' : 'failed');
    } finally {
      clearInterval(views);
    }
  }

  /** Opens all shops concurrently; `#close` ends those that opened. The first failure stops the race. */
  async #prepare(): Promise<void> {
    const { signal } = this.#stop;
    const folder = await temporaryFolder('stampede-race-');
    this.#folder = folder;
    const opened = this.#lanes.map(async (lane, n): Promise<Entrant> => {
      const env = lane.isSafe ? { PAYMENT_WINDOW_S: noShedding.PAYMENT_WINDOW_S } : noShedding;
      const strategy = this.#options.strategies[n]!;
      const own = join(folder, strategy);
      const shop = await openShop({ strategy, env, folder: own, rttMs: RTT_MS, signal });
      lane.isReady = true;
      return { lane, shop };
    });
    for (const one of opened) one.catch((error) => this.#stop.abort(error));
    const settled = await Promise.allSettled(opened);
    this.#entrants = settled.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  }

  /** @returns the history of each lane */
  async #sell(faults: readonly PlannedFault[]): Promise<readonly (readonly HistoryRecord[])[]> {
    const { customers, rate, seed } = this.#options;
    const { signal } = this.#stop;
    const schedule = arrivals(customers, rate, seed);
    const users = Array.from(schedule, (_, n) => buyerName(n));
    const bounds = { connections: CONNECTIONS, maxOutstanding: customers, mayWait: true };
    const loads = this.#entrants.map(async ({ lane, trial }) => {
      const { url, saleId } = trial!;
      const { history } = await runOpenLoop({
        ...{ url, saleId, users, schedule, ...bounds, requestTimeoutMs: TIMEOUT_MS, signal },
        onBegin: (originMs) => this.#begin(originMs, faults),
        onMissing: (wasSent) => lane.missing(wasSent),
        onAnswer: ({ outcome }) => {
          lane.answered(outcome, this.#nowMs());
          return false;
        },
      });
      lane.ended(this.#nowMs());
      return history;
    });
    const histories = await Promise.all(loads);
    this.#endedMs = performance.now();
    await this.#striking; // a service that a fault killed must run again, for the audit
    signal.throwIfAborted();
    return histories;
  }

  /** The race starts when the first lane has its connections open; the others follow within milliseconds. */
  #begin(originMs: number, faults: readonly PlannedFault[]): void {
    if (this.#beganMs !== null) return;
    this.#beganMs = originMs;
    const { signal } = this.#stop;
    const plan = async (): Promise<void> => {
      for (const { fault, atMs } of [...faults].sort((a, b) => a.atMs - b.atMs)) {
        await sleep(Math.max(0, atMs - this.#nowMs()), undefined, { signal });
        await this.#striking;
        if (this.#phase === 'running' && this.#endedMs === null) this.strike(fault);
      }
    };
    plan().catch((error) => this.#stop.abort(error));
  }

  async #judge({ lane, trial }: Entrant, history: readonly HistoryRecord[]): Promise<void> {
    const { report, orders } = await trial!.judge(history);
    lane.judged(report, orders.filter(isActive).length);
    this.#onView(this.view);
  }

  async #close(): Promise<void> {
    await Promise.all(this.#entrants.splice(0).map(({ shop }) => shop[Symbol.asyncDispose]()));
    if (this.#folder !== null) await removeFolder(this.#folder);
    this.#folder = null;
  }

  #become(phase: Phase): void {
    this.#phase = phase;
    this.#onView(this.view);
  }

  #nowMs(): number {
    return this.#beganMs === null ? 0 : (this.#endedMs ?? performance.now()) - this.#beganMs;
  }
}

/** The first `customers` arrival times, µs, of a Poisson process. */
function arrivals(customers: number, ratePerSecond: number, seed: number): Float64Array {
  const meanMs = (customers / ratePerSecond) * 1_000;
  for (let durationMs = 2 * meanMs + 1_000; ; durationMs *= 2) {
    const enough = poisson({ ratePerSecond, durationMs, seed });
    if (enough.length >= customers) return enough.slice(0, customers);
  }
}
