/** One measurement: processes full of waiters are started, let loose on one resource, and asked what happened. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type Numbers, numbersOf, type ServerCount, type Span } from './numbers.ts';
import {
  type FromWorker,
  type Go,
  nowNs,
  type Order,
  type ToWorker,
  untilNs,
  type WorkerReport,
} from './protocol.ts';
import type { Servers } from './servers.ts';

const entry = fileURLToPath(new URL('worker.ts', import.meta.url));
/** Found from here, not from the folder that the command is given in. */
const loader = import.meta.resolve('tsx');

/** Between the last `ready` and the first request, so that `go` has reached everybody. */
const LEAD_MS = 30;
/** Processes that start on a machine that is busy take their time. */
const READY_MS = 120_000;
/** After the end of the run: waiters are called off, locks are closed. */
const REPORT_MS = 15_000;
const EXIT_MS = 5_000;
const ERROR_LINES = 5;

export interface Shape {
  readonly processes: number;
  /** Of all processes together. */
  readonly waiters: number;
}

export interface Measuring {
  readonly contender: string;
  readonly shape: Shape;
  readonly servers: Servers;
  readonly resource: string;
  readonly warmupMs: number;
  readonly durationMs: number;
  readonly signal: AbortSignal;
}

/** @throws when a process could not open its contender, or ended by itself */
export async function measure(measuring: Measuring): Promise<Numbers> {
  const { shape, servers, warmupMs, durationMs, signal } = measuring;
  const workers = orders(measuring).map((order) => new WaiterProcess(order, signal));
  try {
    await Promise.all(workers.map((worker) => worker.ready()));
    await servers.empty();
    const beginNs = nowNs() + LEAD_MS * 1e6;
    const startNs = beginNs + warmupMs * 1e6;
    const go: Go = { kind: 'go', beginNs, startNs, endNs: startNs + durationMs * 1e6 };
    for (const worker of workers) worker.tell(go);
    const reports = Promise.all(workers.map((worker) => worker.report(warmupMs + durationMs)));
    const counted = countOnServers(servers, go);
    const [written, server] = await Promise.all([reports, counted]);
    return numbersOf(written, server, shape.waiters, go);
  } catch (error) {
    for (const worker of workers) worker.kill(); // some may wait for a word that does not come
    throw error;
  } finally {
    await Promise.all(workers.map((worker) => worker.end()));
  }
}

/** One for each process; waiters that cannot be shared out evenly go to the first ones. */
function orders({ contender, servers, resource, shape }: Measuring): Order[] {
  const numbers = Array.from({ length: shape.waiters }, (_, waiter) => waiter);
  return Array.from({ length: shape.processes }, (_, process) => ({
    kind: 'order',
    contender,
    urls: servers.urls,
    resource,
    waiters: numbers.filter((waiter) => waiter % shape.processes === process),
    holdsATurn: shape.waiters > 1,
  }));
}

async function countOnServers(servers: Servers, { startNs, endNs }: Span): Promise<ServerCount> {
  const look = async () => {
    const askedNs = nowNs();
    const counts = await servers.count();
    return { ...counts, ns: (askedNs + nowNs()) / 2 };
  };
  await untilNs(startNs);
  const before = await look();
  await untilNs(endNs);
  const after = await look();
  const grown = (from: number | null, to: number | null) => (from === null || to === null ? null : to - from);
  return {
    fromNs: before.ns,
    toNs: after.ns,
    commands: grown(before.commands, after.commands),
    requests: grown(before.requests, after.requests),
  };
}

/** A process of waiters, seen from here. */
class WaiterProcess {
  readonly #child: ChildProcess;
  readonly #signal: AbortSignal;
  readonly #exited: Promise<void>;
  #errors = '';

  constructor(order: Order, signal: AbortSignal) {
    this.#signal = signal;
    this.#child = fork(entry, [], {
      execArgv: ['--import', loader],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.#errors = `${this.#errors}${chunk}`
        .split('\n')
        .slice(-ERROR_LINES - 1)
        .join('\n');
    });
    this.#child.on('error', () => {}); // a message to one that is gone: its exit tells
    this.#exited = new Promise((resolve) => this.#child.once('exit', () => resolve()));
    this.tell(order);
  }

  tell(message: ToWorker): void {
    this.#child.send(message, () => {});
  }

  async ready(): Promise<void> {
    await this.#hear('ready', READY_MS);
  }

  async report(runMs: number): Promise<WorkerReport> {
    const message = await this.#hear('done', LEAD_MS + runMs + REPORT_MS);
    return message.report;
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  /** Waits for its exit, and ends it when that takes too long. */
  async end(): Promise<void> {
    const timer = setTimeout(() => this.kill(), EXIT_MS);
    await this.#exited;
    clearTimeout(timer);
  }

  #hear<K extends FromWorker['kind']>(kind: K, withinMs: number): Promise<Extract<FromWorker, { kind: K }>> {
    return new Promise((resolve, reject) => {
      const done = (outcome: () => void) => {
        clearTimeout(timer);
        this.#child.off('message', hear).off('exit', exit);
        this.#signal.removeEventListener('abort', abort);
        outcome();
      };
      const fail = (reason: string) => done(() => reject(new Error(reason)));
      const hear = (message: FromWorker) => {
        if (message.kind === 'failed') fail(message.reason);
        else if (message.kind === kind) done(() => resolve(message as Extract<FromWorker, { kind: K }>));
      };
      const exit = () => fail(`a process of waiters ended by itself\n${this.#errors}`.trimEnd());
      const abort = () => fail('interrupted');
      const timer = setTimeout(() => fail(`a process of waiters was silent for ${withinMs} ms`), withinMs);
      this.#child.on('message', hear).on('exit', exit);
      this.#signal.addEventListener('abort', abort, { once: true });
      if (this.#signal.aborted) abort();
    });
  }
}
