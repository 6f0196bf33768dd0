/**
 * WORKERS=n: processes that share the port. The first process serves nobody; it starts the others and looks after them.
 *
 *   start ──▶ starting ──listens──▶ serving ──told to stop──▶ ended
 *      ▲          │ died               │ died
 *      │          ▼                    ▼
 *      │   given up, when it is     replaced at once
 *      └── one of the first ones
 *
 * A worker is a whole service: what it cannot share (the latch, the batches, the queues) it has for itself, and what must
 * not be done twice (recovery, tasks, expiry) is safe with several instances anyhow. A worker that loses the first
 * process ends.
 */
import cluster, { type Worker } from 'node:cluster';
import { AggregatorRegistry, type Registry } from 'prom-client';
import { limits } from './config/limits.ts';

export interface WorkersOptions {
  readonly count: number;
  /** The environment of each, with the stores that were found. */
  readonly env: Readonly<Record<string, string>>;
  readonly log: (message: string, details: object) => void;
  /** Told when workers die one after the other before they serve: nothing is served any more. */
  readonly onHopeless: (error: Error) => void;
}

/** What a worker asks the first process, and is answered. */
interface MetricsQuestion {
  readonly stampede: 'metrics?';
  readonly id: number;
}
interface MetricsAnswer {
  readonly stampede: 'metrics';
  readonly id: number;
  readonly text: string | null;
}

interface Stop {
  readonly stampede: 'stop';
}

/** After a worker that died before it served, milliseconds. */
const AGAIN_MS = 1_000;
/** So many of them one after the other, and it is hopeless. */
const HOPELESS = 5;
const METRICS_MS = 6_000;

/**
 * Starts the workers, and waits until all of them serve.
 * @returns the port, and what stops them
 * @throws when one of them ends before it serves
 */
export async function startWorkers(
  options: WorkersOptions,
): Promise<{ readonly port: number; stop(): Promise<void> }> {
  const { count, env, log, onHopeless } = options;
  const all = new AggregatorRegistry();
  let stopping = false;
  let early = 0;

  function fork(): Worker {
    const worker = cluster.fork(env);
    let serves = false;
    worker.once('listening', () => {
      serves = true;
      early = 0;
    });
    worker.on('message', (message: MetricsQuestion) => {
      if (message?.stampede !== 'metrics?') return;
      all.clusterMetrics().then(
        (text) => tell(worker, { stampede: 'metrics', id: message.id, text }),
        () => tell(worker, { stampede: 'metrics', id: message.id, text: null }),
      );
    });
    worker.once('exit', (code, signal) => {
      if (stopping) return;
      log('a worker died; another takes its place', { worker: worker.id, code, signal });
      early = serves ? 0 : early + 1;
      if (early >= HOPELESS) onHopeless(new Error(`${early} workers died before they served`));
      else setTimeout(() => stopping || fork(), serves ? 0 : AGAIN_MS);
    });
    return worker;
  }

  async function stop(): Promise<void> {
    stopping = true;
    const workers = Object.values(cluster.workers ?? {}) as Worker[];
    const ended = workers.map(
      (worker) => worker.isDead() || new Promise((resolve) => worker.once('exit', resolve)),
    );
    for (const worker of workers) tell(worker, { stampede: 'stop' });
    const late = setTimeout(() => {
      for (const worker of workers) worker.process.kill('SIGKILL');
    }, limits.shutdownMs + 5_000);
    await Promise.all(ended);
    clearTimeout(late);
  }

  const ports = await Promise.all(Array.from({ length: count }, () => served(fork()))).catch(
    async (error) => {
      await stop();
      throw error;
    },
  );
  return { port: ports[0]!, stop };
}

/** @returns the port, once a worker listens. @throws when it ends before */
function served(worker: Worker): Promise<number> {
  return new Promise((resolve, reject) => {
    worker.once('listening', ({ port }) => resolve(port));
    worker.once('exit', (code) =>
      reject(new Error(`a worker ended with ${code} before it served: see above`)),
    );
  });
}

function tell(worker: Worker, message: MetricsAnswer | Stop): void {
  if (worker.isConnected()) worker.send(message, () => {}); // who died needs no message
}

/** In a worker: hears the first process say that it shall stop. A signal to all of them would come to it twice. */
export function stopWhenTold(stop: () => void): void {
  cluster.worker!.on('message', (message: Stop) => {
    if (message?.stampede === 'stop') stop();
  });
}

/**
 * In a worker: lends its metrics to the first process, which adds them up.
 * @returns asks for those of all workers; null when they cannot be had now
 */
export function metricsOfAll(registry: Registry): () => Promise<string | null> {
  AggregatorRegistry.setRegistries(registry);
  new AggregatorRegistry(); // hears the first process's questions
  const asked = new Map<number, (text: string | null) => void>();
  let questions = 0;
  const self = cluster.worker!;
  self.on('message', (message: MetricsAnswer) => {
    if (message?.stampede === 'metrics') asked.get(message.id)?.(message.text);
  });
  return () =>
    new Promise((resolve) => {
      const id = ++questions;
      const late = setTimeout(() => settle(null), METRICS_MS);
      const settle = (text: string | null) => {
        clearTimeout(late);
        asked.delete(id);
        resolve(text);
      };
      asked.set(id, settle);
      const question: MetricsQuestion = { stampede: 'metrics?', id };
      self.send(question, () => {});
    });
}
