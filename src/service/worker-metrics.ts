/**
 * The metrics of all workers, summed by the primary. What a worker that ended has counted stays in the sums: to Prometheus, a counter that falls
 * was restarted, and all that it has is an increase.
 *
 *   primary ──count──▶ each worker ──counted──▶ primary adds what workers that ended had counted
 */
import type { Worker } from 'node:cluster';
import { AggregatorRegistry, type Registry } from 'prom-client';

/** Metrics of a process as JSON, and as prom-client aggregates them. */
type Metrics = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

export type ToCount = { readonly stampede: 'count' };
export type FromCounted = { readonly stampede: 'counted'; readonly metrics: Metrics };

/** Wait for the metrics of one worker. */
const ANSWER_MS = 5_000;

export const metricsOfProcess = async (registries: readonly Registry[]): Promise<Metrics> =>
  (await Promise.all(registries.map((one) => one.getMetricsAsJSON()))).flat();

/** Reads the metrics of several registries of this process as one text. */
export const metricsOf = (registries: readonly Registry[]) => async (): Promise<string> =>
  sumOf([await metricsOfProcess(registries)]).metrics();

const sumOf = (all: readonly Metrics[]): Registry => AggregatorRegistry.aggregate([...all]);

export interface WorkerMetrics {
  /** Call it for each worker that starts. */
  add(worker: Worker): void;
  /** Asks these workers. @returns the metrics of all, as Prometheus reads them @throws when one does not answer */
  text(workers: readonly Worker[], ask: (worker: Worker) => void): Promise<string>;
}

export function workerMetrics(): WorkerMetrics {
  /** The last ones of each worker that answered. */
  const last = new Map<Worker, Metrics>();
  let ofEnded: Promise<Metrics> = Promise.resolve([]);

  /** Waits until the worker has answered, or ended. */
  const answerOf = (worker: Worker) =>
    new Promise<void>((resolve, reject) => {
      const settle = (then: () => void) => () => {
        clearTimeout(timeout);
        worker.off('message', onMessage).off('exit', onExit);
        then();
      };
      const onExit = settle(resolve);
      const onMessage = (message: FromCounted) => message?.stampede === 'counted' && onExit();
      const timeout = setTimeout(
        settle(() => reject(new Error('a worker does not answer'))),
        ANSWER_MS,
      );
      worker.on('message', onMessage).once('exit', onExit);
    });

  return {
    add(worker) {
      worker.on('message', (message: FromCounted) => {
        if (message?.stampede === 'counted' && !worker.isDead()) last.set(worker, message.metrics);
      });
      worker.once('exit', () => {
        const counted = last.get(worker)?.filter(({ type }) => String(type) !== 'gauge');
        last.delete(worker);
        if (counted !== undefined)
          ofEnded = ofEnded.then((before) => sumOf([before, counted]).getMetricsAsJSON());
      });
    },
    async text(workers, ask) {
      const answers = workers.map(answerOf);
      for (const worker of workers) ask(worker);
      await Promise.all(answers);
      const living = [...last.values()];
      return sumOf([...living, await ofEnded]).metrics();
    },
  };
}
