/** One measurement: processes full of waiters start, contend for one resource, and report what happened when. */
import { nowNs, untilNs } from '../../../lab/kit/monotonic.ts';
import { type Program, startProgram } from '../../../lab/kit/processes.ts';
import { type Numbers, numbersOf, type ServerCount } from './numbers.ts';
import type { Done, FromWorker, Go, Order, Ready, Span, ToWorker } from './protocol.ts';
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
  const workers = orders.map((): Worker => startProgram('bench/suites/locks/worker.ts'));
  try {
    const isReady = (message: FromWorker): message is Ready => message.kind === 'ready';
    for (const [n, worker] of workers.entries()) worker.send(orders[n]!);
    await Promise.all(workers.map((worker) => worker.receive(isReady, { withinMs: readyMs, signal })));
    await servers.empty();
    const beginNs = nowNs() + leadMs * 1e6;
    const startNs = beginNs + warmupMs * 1e6;
    const go: Go = { kind: 'go', beginNs, startNs, endNs: startNs + durationMs * 1e6 };
    for (const worker of workers) worker.send(go);
    const withinMs = leadMs + warmupMs + durationMs + reportMs;
    const isDone = (message: FromWorker): message is Done => message.kind === 'done';
    const reports = Promise.all(workers.map((worker) => worker.receive(isDone, { withinMs, signal })));
    const [done, server] = await Promise.all([reports, countOnServers(servers, go)]);
    await Promise.all(workers.map((worker) => worker.ended));
    return numbersOf(
      done.map(({ report }) => report),
      server,
      measuring.waiters,
      go,
    );
  } finally {
    await Promise.all(workers.map((worker) => worker[Symbol.asyncDispose]()));
  }
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
