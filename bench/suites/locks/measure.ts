/** One measurement: processes full of waiters start, contend for one resource, and report what happened when. */
import { type Program, startProgram } from '../../kit/processes.ts';
import { type Numbers, numbersOf, type ServerCount } from './numbers.ts';
import {
  type FromWorker,
  type Go,
  nowNs,
  type Order,
  type Span,
  type ToWorker,
  untilNs,
} from './protocol.ts';
import type { Servers } from './servers.ts';

/** Between the last `ready` and the first request, so that `go` has reached every process. */
const leadMs = 30;
/** Processes that start on a busy machine take their time. */
const readyMs = 120_000;
/** After the end of the run: waiters are cancelled, locks are closed. */
const reportMs = 15_000;

export interface Measuring {
  readonly lock: string;
  readonly processes: number;
  /** Of all processes together. */
  readonly waiters: number;
  readonly servers: Servers;
  readonly resource: string;
  readonly warmupMs: number;
  readonly durationMs: number;
  readonly signal: AbortSignal;
}

type Worker = Program<ToWorker, FromWorker>;

/** @throws when a process could not open its lock, or ended by itself */
export async function measure(measuring: Measuring): Promise<Numbers> {
  const { servers, warmupMs, durationMs, signal } = measuring;
  const orders = ordersOf(measuring);
  const workers = orders.map((): Worker => startProgram('suites/locks/worker.ts'));
  try {
    const ready = workers.map((worker, n) => {
      worker.send(orders[n]!);
      return answer(worker, 'ready', readyMs, signal);
    });
    await Promise.all(ready);
    await servers.empty();
    const beginNs = nowNs() + leadMs * 1e6;
    const startNs = beginNs + warmupMs * 1e6;
    const go: Go = { kind: 'go', beginNs, startNs, endNs: startNs + durationMs * 1e6 };
    for (const worker of workers) worker.send(go);
    const withinMs = leadMs + warmupMs + durationMs + reportMs;
    const reports = Promise.all(workers.map((worker) => answer(worker, 'done', withinMs, signal)));
    const [done, server] = await Promise.all([reports, countOnServers(servers, go)]);
    await Promise.all(workers.map((worker) => worker.ended));
    const written = done.map(({ report }) => report);
    return numbersOf(written, server, measuring.waiters, go);
  } finally {
    await Promise.all(workers.map((worker) => worker[Symbol.asyncDispose]()));
  }
}

async function answer<K extends 'ready' | 'done'>(
  worker: Worker,
  kind: K,
  withinMs: number,
  signal: AbortSignal,
): Promise<Extract<FromWorker, { kind: K }>> {
  const isAnswer = (message: FromWorker): message is FromWorker =>
    message.kind === kind || message.kind === 'failed';
  const message: FromWorker = await worker.receive(isAnswer, { withinMs, signal });
  if (message.kind === 'failed') throw new Error(message.reason);
  return message as Extract<FromWorker, { kind: K }>;
}

/** One for each process; waiters that cannot be divided evenly go to the first ones. */
function ordersOf({ lock, servers: { urls }, resource, processes, waiters }: Measuring): Order[] {
  const numbers = Array.from({ length: waiters }, (_, waiter) => waiter);
  return Array.from({ length: processes }, (_, process) => {
    const own = numbers.filter((waiter) => waiter % processes === process);
    return { kind: 'order', lock, urls, resource, waiters: own, yieldsWhileHolding: waiters > 1 };
  });
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
