/**
 * autocannon as the generator, where wrk is not installed: worker processes, one for two processors that the load may use,
 * up to four. It takes several times the CPU of wrk, so that on few processors it limits the fastest servers.
 */
import { join } from 'node:path';
import { type Layout, pin } from '../kit/pin.ts';
import { type Program, startProgram } from '../kit/processes.ts';
import { readLines } from './lines.ts';
import { customerOf, type Generator, type RateLoad, type RateResult } from './rate.ts';

/** The part of one worker: it makes attempts `first`, `first + step`, `first + 2 × step`, … */
export interface WorkerLoad
  extends Pick<RateLoad, 'url' | 'saleIds' | 'connections' | 'prefix' | 'durationMs' | 'attempts'> {
  readonly first: number;
  readonly step: number;
  /** A file for lines.ts; null: nothing is recorded. */
  readonly lines: string | null;
}

export type ToWorker = { readonly kind: 'load'; readonly load: WorkerLoad } | { readonly kind: 'go' };
export type WorkerNumbers = Omit<RateResult, 'history' | 'strangeAnswers'>;
export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'sent'; readonly sent: number }
  | { readonly kind: 'done'; readonly numbers: WorkerNumbers };

const mostWorkers = 4;
/** After its end, the load may take so long to report its result. */
const resultMs = 30_000;

export function autocannonGenerator(
  layout: Pick<Layout, 'generator' | 'generatorCount'>,
  folder: string,
): Generator {
  const workers = Math.max(1, Math.min(mostWorkers, Math.floor(layout.generatorCount / 2)));
  return {
    name: `autocannon 9 in ${workers === 1 ? 'one worker process' : `${workers} worker processes`}`,
    async run(load) {
      load.signal.throwIfAborted();
      const count = Math.min(workers, load.connections);
      const programs = Array.from({ length: count }, () =>
        startProgram<ToWorker, FromWorker>('load/autocannon-worker.ts'),
      );
      await using _ = { [Symbol.asyncDispose]: () => endAll(programs) };
      const files = programs.map((_, index) => join(folder, `lines-${index}.txt`));
      for (const [index, program] of programs.entries()) {
        await pin(program.pid, layout.generator);
        const lines = load.record ? files[index]! : null;
        program.send({ kind: 'load', load: { ...shareOf(load, index, count), lines } });
      }
      const numbers = await fire(programs, load);
      if (!load.record) return { ...numbers, history: [], strangeAnswers: [] };
      const { prefix, saleIds } = load;
      const attempts = {
        user: (n: number) => customerOf(prefix, n),
        sale: (n: number) => saleIds[n % saleIds.length] ?? 0,
      };
      return { ...numbers, ...(await readLines(files.slice(0, count), attempts)) };
    },
  };
}

async function endAll(programs: readonly AsyncDisposable[]): Promise<void> {
  await Promise.all(programs.map((program) => program[Symbol.asyncDispose]()));
}

/** What one worker does of a load. */
export function shareOf(load: RateLoad, index: number, count: number): Omit<WorkerLoad, 'lines'> {
  const { url, saleIds, prefix, connections, durationMs, attempts } = load;
  const part = (whole: number): number => Math.floor((whole + count - 1 - index) / count);
  const own = { connections: part(connections), attempts: attempts === null ? null : part(attempts) };
  return { url, saleIds, prefix, durationMs, first: index + 1, step: count, ...own };
}

/** Sums; a percentile is that of the slowest worker, since percentiles cannot be added. */
export function merged(parts: readonly WorkerNumbers[]): WorkerNumbers {
  const sum = (read: (numbers: WorkerNumbers) => number | null): number =>
    parts.reduce((total, numbers) => total + (read(numbers) ?? 0), 0);
  const latencies = parts.flatMap(({ latencyMs }) => latencyMs ?? []);
  const slowest = (read: (latency: { p50: number; p99: number }) => number): number =>
    Math.max(...latencies.map(read));
  return {
    durationMs: Math.max(...parts.map(({ durationMs }) => durationMs)),
    answers: sum(({ answers }) => answers),
    refused: sum(({ refused }) => refused),
    unanswered: sum(({ unanswered }) => unanswered),
    latencyMs:
      latencies.length === 0 ? null : { p50: slowest(({ p50 }) => p50), p99: slowest(({ p99 }) => p99) },
    cpuS: sum(({ cpuS }) => cpuS),
  };
}

/** All begin at the same time. */
async function fire(
  programs: readonly Program<ToWorker, FromWorker>[],
  { signal, durationMs, onSent }: RateLoad,
): Promise<WorkerNumbers> {
  const isReady = (message: FromWorker): message is Extract<FromWorker, { kind: 'ready' }> =>
    message.kind === 'ready';
  const isDone = (message: FromWorker): message is Extract<FromWorker, { kind: 'done' }> =>
    message.kind === 'done';
  await Promise.all(programs.map((program) => program.receive(isReady, { signal })));
  const sent = programs.map(() => 0);
  for (const [index, program] of programs.entries()) {
    program.onMessage((message) => {
      if (message.kind !== 'sent') return;
      sent[index] = message.sent;
      onSent?.(sent.reduce((sum, one) => sum + one, 0));
    });
    program.send({ kind: 'go' });
  }
  // Without an end in time, its attempts end it, or the signal.
  const withinMs = durationMs === null ? 2 ** 31 - 1 : durationMs + resultMs;
  const done = await Promise.all(programs.map((program) => program.receive(isDone, { signal, withinMs })));
  signal.throwIfAborted();
  return merged(done.map(({ numbers }) => numbers));
}
