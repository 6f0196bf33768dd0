/** One measurement: processes full of waiters start, contend for one resource, and report what happened when. */
import { LockClients } from '../../../lab/clients/lock-clients.ts';
import type { Span } from '../../../lab/clients/protocol.ts';
import { nowNs, untilNs } from '../../../lab/kit/monotonic.ts';
import { type Numbers, numbersOf, type ServerCount } from './numbers.ts';
import type { Servers } from './servers.ts';

/** Delay from the last reply to `open` to the first request, for the command to reach every process. */
const leadMs = 30;
/** Time to report after the end of the run. */
const reportMs = 15_000;

export interface Measuring {
  readonly lock: string;
  readonly processes: number;
  /** In all processes together. */
  readonly waiters: number;
  readonly servers: Servers;
  readonly resource: string;
  readonly warmupMs: number;
  readonly durationMs: number;
  readonly signal: AbortSignal;
}

/** @throws when a process could not open its lock, or ended by itself */
export async function measure(measuring: Measuring): Promise<Numbers> {
  const { lock, servers, resource, processes, waiters, warmupMs, durationMs, signal } = measuring;
  const { urls } = servers;
  const numbers = Array.from({ length: waiters }, (_, waiter) => waiter);
  const clients = Array.from({ length: processes }, () => new LockClients());
  try {
    await Promise.all(clients.map((client) => client.send('open', { lock, urls }, { signal })));
    await servers.empty();
    const beginNs = nowNs() + leadMs * 1e6;
    const startNs = beginNs + warmupMs * 1e6;
    const span = { startNs, endNs: startNs + durationMs * 1e6 };
    const contending = clients.map((client, n) => {
      // Waiters that cannot be divided evenly go to the first processes.
      const own = numbers.filter((waiter) => waiter % processes === n);
      const order = { resource, waiters: own, beginNs, yieldsWhileHolding: waiters > 1, ...span };
      return client.send('contend', order, { withinMs: warmupMs + durationMs + reportMs, signal });
    });
    const counting = countOnServers(servers, span);
    const [reports, server] = await Promise.all([Promise.all(contending), counting]);
    await Promise.all(clients.map((client) => client.send('close', {})));
    return numbersOf(reports, server, waiters, span);
  } finally {
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
  }
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
