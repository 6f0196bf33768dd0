/**
 * autocannon as the generator, where wrk is not installed: worker processes, one per two processors that the load may use,
 * at most four. It needs several times the CPU of wrk: on few processors it limits the fastest servers.
 */
import { join } from 'node:path';
import { startProgram } from '../../lab/kit/processes.ts';
import { type Layout, pin } from '../kit/pin.ts';
import {
  attemptOf,
  type Generator,
  merged,
  type RateLoad,
  type RateNumbers,
  resultWithinMs,
} from './rate.ts';
import { readLines } from './recorder.ts';

/** The part of one worker: it makes attempts `first`, `first + step`, `first + 2 × step`, … */
export interface WorkerLoad extends Omit<RateLoad, 'record' | 'onSent' | 'signal'> {
  readonly first: number;
  readonly step: number;
  /** A file for `readLines`; null: nothing is recorded. */
  readonly lines: string | null;
}

export type FromWorker =
  | { readonly kind: 'ready' }
  /** Regularly under load. */
  | { readonly kind: 'sent'; readonly sent: number }
  | { readonly kind: 'done'; readonly sent: number; readonly numbers: RateNumbers };
type Done = Extract<FromWorker, { kind: 'done' }>;

const mostWorkers = 4;

export function autocannonGenerator(
  { generatorCount, generator: processors }: Pick<Layout, 'generator' | 'generatorCount'>,
  folder: string,
): Generator {
  const most = Math.max(1, Math.min(mostWorkers, Math.floor(generatorCount / 2)));
  return {
    name: `autocannon 9 in ${most === 1 ? 'one worker process' : `${most} worker processes`}`,
    async run(load) {
      const { signal, durationMs, record, onSent } = load;
      signal.throwIfAborted();
      const workers = Array.from({ length: Math.min(most, load.connections) }, () =>
        startProgram<WorkerLoad, FromWorker>('autocannon-worker'),
      );
      const end = async () => void (await Promise.all(workers.map((one) => one[Symbol.asyncDispose]())));
      await using _ = { [Symbol.asyncDispose]: end };
      const isReady = (message: FromWorker): message is FromWorker => message.kind === 'ready';
      await Promise.all(workers.map((worker) => worker.receive(isReady, { signal })));
      for (const { pid } of workers) await pin(pid, processors);
      const files = workers.map((_, index) => join(folder, `lines-${index}.txt`));
      // A load without a duration ends after its attempts, or with the signal.
      const withinMs = durationMs === null ? 2 ** 31 - 1 : durationMs + resultWithinMs;
      const isDone = (message: FromWorker): message is Done => message.kind === 'done';
      const sent = workers.map(() => 0);
      const results = workers.map((worker, index) => {
        worker.onMessage((message) => {
          if (message.kind === 'ready') return;
          sent[index] = message.sent;
          onSent?.(sent.reduce((sum, one) => sum + one, 0));
        });
        worker.send({ ...shareOf(load, index, workers.length), lines: record ? files[index]! : null });
        return worker.receive(isDone, { signal, withinMs });
      });
      const numbers = merged((await Promise.all(results)).map((result) => result.numbers));
      signal.throwIfAborted();
      return { ...numbers, ...(await readLines(record ? files : [], attemptOf(load))) };
    },
  };
}

/** The share of one worker. */
export function shareOf(load: RateLoad, index: number, count: number): Omit<WorkerLoad, 'lines'> {
  const { record: _, onSent: __, signal: ___, connections, attempts, ...all } = load;
  const part = (whole: number): number => Math.floor((whole + count - 1 - index) / count);
  const own = { connections: part(connections), attempts: attempts === null ? null : part(attempts) };
  return { ...all, first: index + 1, step: count, ...own };
}
