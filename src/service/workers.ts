/**
 * WORKERS=n: worker processes that share the port. The primary process serves no requests; it starts and supervises them.
 *
 *   fork ──▶ starting ──reports──▶ opening ──reports──▶ serving ──stop──▶ ended
 *               │ died                │ died               │ died
 *               ▼                     ▼                    ▼
 *            at first start: fails; later: replaced    replaced at once
 *            after 1 s
 *
 * A stop kills a worker that is starting: it has no requests, and a message to a worker that still loads its modules is lost. One
 * that is opening may have requests already; it gets the message once it serves, when it can drain.
 *
 * Each worker is a complete service: it has its own latch, batches and queues, and background work (recovery, tasks, expiry)
 * is safe in several instances. A worker ends when the primary does.
 */
import cluster, { type Worker } from 'node:cluster';
import type { Registry } from 'prom-client';
import { coalesce } from '../concurrency/coalesce.ts';
import { StartError } from '../config/errors.ts';
import type { Ports } from '../http/listen.ts';
import { type FromCounted, metricsOfProcess, type ToCount, workerMetrics } from './worker-metrics.ts';

export interface WorkersOptions {
  readonly count: number;
  /** Environment of the workers, with the URLs of the stores. */
  readonly env: Readonly<Record<string, string>>;
  /** Workers that have not ended this long after a stop are killed, milliseconds. */
  readonly stopMs: number;
  readonly log: (message: string, details: object) => void;
  /** Called when several workers in a row died before they served, and none serves. */
  readonly onGiveUp: (error: Error) => void;
  /** Receives, before the first worker starts, what stops them all. Repeated calls wait for the same end. */
  readonly onStarting: (stop: () => Promise<void>) => void;
}

type FromWorker =
  /** Before it listens on its first port. */
  | { readonly stampede: 'opening' }
  /** Once it listens on all its ports. */
  | { readonly stampede: 'serving'; readonly ports: Ports }
  /** It requests the metrics of all workers. */
  | { readonly stampede: 'metrics?'; readonly id: number }
  | FromCounted;
type ToWorker =
  | ToCount
  | { readonly stampede: 'metrics'; readonly id: number; readonly text: string | null }
  | { readonly stampede: 'stop' };

/** As the worker reports it; none while it is starting. */
type State = 'opening' | 'serving';

/** Delay before replacing a worker that died before it served. */
const RESTART_MS = 1_000;
/** Early deaths in a row after which the service gives up, if no worker serves. */
const MAX_EARLY_DEATHS = 5;
/** Wait for the primary's reply with all metrics. */
const METRICS_MS = 6_000;

/**
 * Starts the workers and waits until all of them serve.
 * @throws StartError when one of them ends before it serves
 */
export async function startWorkers(options: WorkersOptions): Promise<Ports> {
  const { count, env, stopMs, log, onGiveUp, onStarting } = options;
  const metrics = workerMetrics();
  const states = new WeakMap<Worker, State>();
  // A worker that is starting has counted nothing.
  const counting = () => livingWorkers().filter((worker) => states.has(worker));
  const textOfAll = coalesce(() => metrics.text(counting(), (worker) => send(worker, { stampede: 'count' })));
  let stopping: Promise<void> | null = null;
  let earlyDeaths = 0;

  function fork(): Worker {
    const worker = cluster.fork(env);
    metrics.add(worker);
    endUnaccepted(worker);
    worker.on('message', (message: FromWorker) => {
      if (message?.stampede === 'opening' || message?.stampede === 'serving')
        states.set(worker, message.stampede);
      if (message?.stampede === 'serving') {
        earlyDeaths = 0;
        if (stopping !== null) send(worker, { stampede: 'stop' });
      }
      if (message?.stampede !== 'metrics?') return;
      textOfAll('all').then(
        (text) => send(worker, { stampede: 'metrics', id: message.id, text }),
        () => send(worker, { stampede: 'metrics', id: message.id, text: null }),
      );
    });
    worker.once('exit', (code, signal) => {
      if (stopping !== null) return;
      const isServing = states.get(worker) === 'serving';
      log('Worker died; starting another', { worker: worker.id, code, signal });
      earlyDeaths = isServing ? 0 : earlyDeaths + 1;
      const serves = livingWorkers().some((other) => states.get(other) === 'serving');
      if (earlyDeaths >= MAX_EARLY_DEATHS && !serves)
        onGiveUp(new Error(`${earlyDeaths} workers in a row died before they served`));
      else setTimeout(() => stopping ?? fork(), isServing ? 0 : RESTART_MS);
    });
    return worker;
  }

  const stop = () => {
    stopping ??= stopAll(states, stopMs);
    return stopping;
  };
  onStarting(stop);
  const ports = await Promise.all(Array.from({ length: count }, () => untilServing(fork()))).catch(
    async (error) => {
      await stop();
      throw error;
    },
  );
  return ports[0]!;
}

/**
 * The primary passes each connection to a worker. Node forgets one whose worker dies before it has accepted it, and the client would wait for
 * ever; here it is closed. Node's messages are not documented: if they change, nothing is closed.
 */
function endUnaccepted({ process: child }: Worker): void {
  const passed = new Map<unknown, { close?(): void }>();
  const send = child.send as (...all: unknown[]) => boolean;
  child.send = (message: { act?: string; seq?: number }, handle?: object, ...rest: unknown[]) => {
    if (message.act === 'newconn' && handle) passed.set(message.seq, handle);
    return send.call(child, message, handle, ...rest);
  };
  child.on('internalMessage', ({ ack }: { ack?: number }) => passed.delete(ack));
  // Between the two, in whichever order they come, Node still passes connections to a worker that has ended.
  for (const event of ['exit', 'disconnect'])
    child.once(event, () => {
      for (const handle of passed.values()) handle.close?.();
      passed.clear();
    });
}

const livingWorkers = () =>
  (Object.values(cluster.workers ?? {}) as Worker[]).filter((worker) => !worker.isDead());

async function stopAll(states: WeakMap<Worker, State>, stopMs: number): Promise<void> {
  const workers = livingWorkers();
  const ended = workers.map((worker) => new Promise((resolve) => worker.once('exit', resolve)));
  for (const worker of workers) {
    const state = states.get(worker);
    if (state === undefined) worker.process.kill('SIGKILL');
    else if (state === 'serving') send(worker, { stampede: 'stop' });
  }
  const kill = setTimeout(() => {
    for (const worker of workers) worker.process.kill('SIGKILL');
  }, stopMs);
  await Promise.all(ended);
  clearTimeout(kill);
}

/** @returns the ports once the worker listens @throws StartError when it ends before */
function untilServing(worker: Worker): Promise<Ports> {
  return new Promise((resolve, reject) => {
    worker.on('message', (message: FromWorker) => {
      if (message?.stampede === 'serving') resolve(message.ports);
    });
    worker.once('exit', (code) =>
      reject(
        new StartError(`A worker ended with exit code ${code} before it served. Its error is logged above.`),
      ),
    );
  });
}

function send(worker: Worker, message: ToWorker): void {
  if (worker.isConnected()) worker.send(message, () => {}); // an error means that the worker died
}

function report(message: FromWorker): void {
  cluster.worker!.send(message, () => {}); // an error means that the primary died
}

/** In a worker: reports to the primary that it is about to listen. The channel keeps the order, so this precedes any request. */
export const reportOpening = () => report({ stampede: 'opening' });

/** In a worker: reports to the primary that it listens. */
export const reportServing = (ports: Ports) => report({ stampede: 'serving', ports });

/** In a worker: calls `stop` when the primary says so. (A worker ignores signals: a terminal would deliver each one twice.) */
export function onStopMessage(stop: () => void): void {
  cluster.worker!.on('message', (message: ToWorker) => {
    if (message?.stampede === 'stop') stop();
  });
}

/**
 * In a worker: exposes its metrics to the primary, which aggregates them.
 * @returns a function that reads the metrics of all workers; null when they are unavailable
 */
export function metricsOfAll(registries: readonly Registry[]): () => Promise<string | null> {
  const pending = new Map<number, (text: string | null) => void>();
  let lastId = 0;
  cluster.worker!.on('message', (message: ToWorker) => {
    if (message?.stampede === 'metrics') pending.get(message.id)?.(message.text);
    if (message?.stampede === 'count')
      metricsOfProcess(registries).then(
        (metrics) => report({ stampede: 'counted', metrics }),
        () => {}, // without an answer the primary has no metrics
      );
  });
  return () =>
    new Promise((resolve) => {
      const id = ++lastId;
      const timeout = setTimeout(() => settle(null), METRICS_MS);
      const settle = (text: string | null) => {
        clearTimeout(timeout);
        pending.delete(id);
        resolve(text);
      };
      pending.set(id, settle);
      report({ stampede: 'metrics?', id });
    });
}
